"""An algorithm of one's own, with a state that is saved with the run."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from ritornello.agent.algorithms.base import Algorithm, ImpalaConfig, Loss, register_algorithm
from ritornello.agent.algorithms.q_lambda import QLambda
from ritornello.agent.assembly import build_model, make_algorithm, model_config, optimiser_config
from ritornello.agent.learning.optim import OptimiserConfig
from ritornello.agent.models.action_values import ActionValueModel
from ritornello.agent.models.factory import ModelConfig
from ritornello.agent.run.checks import check_resume
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.testing.evaluation import Evaluation
from ritornello.core.errors import ConfigError
from ritornello.core.saved_state import StateError
from ritornello.flags.options import Flags
from ritornello.flags.parsing import parse
from ritornello.flags.parts import ALGORITHMS
from ritornello.wrappers.trusted_modules import trust_forgotten
from tests.agent.builders import make_batch, make_small_model
from tests.agent.learners import fail_to_step, make_learner, same, with_bad_reward
from tests.agent.runs import make_blueprint
from tests.extensions import own_algorithm
from tests.extensions.own_algorithm import Ppo, PpoConfig
from tests.extensions.runs import new_folder, saved_in, trained

PPO = f"{own_algorithm.__name__}:ppo"


@register_algorithm("no_class")
def no_class():
    """Not what is asked for."""


@dataclass(frozen=True)
class Sparse:
    """A config without anything that other algorithms have."""

    step: int = 1


@register_algorithm("sparse")
class SparseAlgorithm(Algorithm):
    Config = Sparse

    def loss(self, model, batch, optimiser=None, progress=0.0):
        total = model.torso(batch.obs).square().mean() * self.config.step
        return Loss(total, {"loss/total": total.detach()})


@register_algorithm("of_values")
class OfValues(QLambda):
    """By values of actions as well, and with a loss of its own."""


def test_it_is_trained_saved_and_resumed_to_what_it_would_have_been(tmp_path):
    flags = {"algorithm": PPO, "algorithm_kwargs": '{"dropped": 0.25}', "save_model_period": 6}
    straight, halved = new_folder(tmp_path / "a"), new_folder(tmp_path / "b")
    whole, records = trained(straight, steps=360, **flags)
    assert whole.updates > 0
    assert {"loss/policy", "vtrace/rho_mean", "value/explained_variance"} <= set(records[-1].values)
    half, _ = trained(halved, steps=180, **flags)
    assert 0 < half.updates < whole.updates
    again, _ = trained(halved, steps=360, checkpoint=saved_in(halved), **flags)
    assert again.updates == whole.updates
    assert same(saved_in(straight).state["learner"], saved_in(halved).state["learner"])
    assert "generator" in saved_in(straight).state["learner"]["algorithm"]


def test_an_update_that_cannot_be_made_moves_neither_the_state_nor_the_weights():
    class Counts(Ppo):
        def loss(self, *arguments, **more):
            torch.rand(1, generator=self.generator)
            return super().loss(*arguments, **more)

    learner = make_learner(make_small_model(popart=True))
    learner.algorithm = Counts(PpoConfig(reward_transform="none"))
    learner.step(make_batch(seed=1), 0.0)
    fail_to_step(learner, with_bad_reward(make_batch()), match="reward")


@pytest.mark.parametrize("name", [PPO, f"{__name__}:of_values"])
def test_an_agent_acts_as_it_was_trained_where_its_algorithm_is_not(name, tmp_path, monkeypatch):
    folder = new_folder(tmp_path)
    trained(folder, steps=60, algorithm=name, use_popart=False)
    training = make_blueprint(algorithm=name, use_popart=False)
    with monkeypatch.context() as without, trust_forgotten():
        without.delitem(ALGORITHMS._parts, name)
        tested = prepare(["--op_mode=test", f"--load_model_url={folder.path}"]).blueprint
        with pytest.raises(ConfigError):
            ALGORITHMS.find(name)
        models = [
            build_model(tested.flags, tested.env_spec),
            Evaluation(training, tmp_path)._trained,  # beside a training, in a process of its own
        ]
    assert [isinstance(model, ActionValueModel) for model in models] == [name != PPO] * 2


def checkpoint_of(blueprint, **changes):
    learner = {**blueprint.learner().state_dict(), **changes}
    state = {
        "flags": blueprint.flags.to_json(), "learner": learner, "tally": {"games": {"count": 0}},
        "replay": blueprint.replay().state_dict(contents=False),
    }  # fmt: skip
    return Checkpoint(Path("run/checkpoints/update_000000001.pt"), state)


def test_a_run_goes_on_with_its_own_algorithm_only():
    of_ppo, of_impala = make_blueprint(algorithm=PPO), make_blueprint()
    assert check_resume(checkpoint_of(of_ppo), of_ppo)
    with pytest.raises(ConfigError, match=f"--algorithm=impala, but .* --algorithm={PPO}"):
        check_resume(checkpoint_of(of_ppo), of_impala)
    old = checkpoint_of(of_impala)
    del old.state["flags"]["algorithm"]  # as an earlier version saved it
    assert check_resume(old, of_impala)


@pytest.mark.parametrize("state", [None, {"generator": 3}])
def test_a_state_that_the_algorithm_has_not_written_is_refused(state):
    blueprint = make_blueprint(algorithm=PPO)
    learner = blueprint.learner()
    with pytest.raises(StateError, match=r"state\['algorithm'\]"):
        learner.load_state_dict({**learner.state_dict(), "algorithm": state})


def test_one_set_of_defaults():
    """Who builds a part by hand gets what `python main.py` trains."""
    flags = Flags()
    assert make_algorithm(flags).config == ImpalaConfig()
    assert optimiser_config(flags) == OptimiserConfig()
    assert model_config(flags) == ModelConfig()
    assert make_learner()._max_grad_norm == flags.gradient_clip_by_norm_threshold


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"algorithm_kwargs": {"clip": 0.1}}, "impala does not know: expected one of policy_cost"),
        ({"algorithm": PPO, "algorithm_kwargs": {"discount": 1}}, "expected it as --gamma"),
        ({"algorithm": PPO, "algorithm_kwargs": {"clip": "much"}}, "clip='much': input should be"),
        ({"algorithm": "impact", "algorithm_kwargs": {"surrogate_clip": 0}}, "greater than 0"),
        (
            {"algorithm": "impact", "algorithm_kwargs": {"value_source": "both"}},
            "'target' or 'policy'",
        ),
        ({"algorithm": "q_lambda", "algorithm_kwargs": {"trace_lambda": 1.1}}, "from 0 to 1"),
        ({"algorithm": f"{__name__}:no_class"}, "expected a class that is an Algorithm"),
    ],
)
def test_arguments_and_classes_that_cannot_be_are_told(said, message):
    with pytest.raises(ConfigError, match=message):
        make_algorithm(Flags(**said))


class NoDataclass:
    pass


@dataclass(frozen=True)
class Needy:
    step: int


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("Config", NoDataclass, "dataclass type or instance"),
        ("Config", None, "dataclass type or instance"),
        ("Config", Needy, "missing 1 required positional argument: 'step'"),
        ("__init__", lambda own, config: None, "3 were given"),
        ("__init__", lambda *_: {}["clip"], "KeyError: 'clip' .*test_algorithm.py, line"),
    ],
)
def test_what_fails_when_it_is_made_is_told(monkeypatch, name, value, told):
    monkeypatch.setattr(SparseAlgorithm, name, value)
    with pytest.raises(ConfigError, match=f":sparse cannot be made: .*{told}.*Expected a Config"):
        make_algorithm(Flags(algorithm=f"{__name__}:sparse"))


def test_an_algorithm_need_not_have_anything_of_another():
    flags = Flags(algorithm=f"{__name__}:sparse", algorithm_kwargs='{"step": 2}')
    learner = make_learner()
    learner.algorithm = make_algorithm(flags)
    assert learner.step(make_batch(), 0.0)["loss/total"] > 0
    assert "algorithm" not in learner.state_dict()
    fail_to_step(learner, replace(make_batch(), obs=make_batch().obs * float("nan")), match="obs")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda loss: loss.total, "returned tensor.*expected Loss"),
        (lambda loss: (loss.total, loss.metrics), "expected Loss"),
        (lambda loss: None, "returned None; expected Loss"),
        (lambda loss: loss._replace(total=loss.total.detach()), "depends on the weights"),
        (lambda loss: loss._replace(total=loss.total[None]), "a total of tensor.*0-d"),
        (lambda loss: loss._replace(total=1.0), "a total of 1.0; expected"),
        (lambda loss: loss._replace(metrics={"loss/total": 0.5}), "loss/total=0.5; expected 0-d"),
        (lambda loss: loss._replace(metrics={"loss/total": torch.ones(2)}), "0-d tensors as"),
        (lambda loss: loss._replace(metrics=None), "the metrics None; expected a dict"),
        (lambda loss: loss._replace(errors=torch.ones(4)),
         r"errors of shape \[4\]; expected errors of shape \[5, 4\]"),
        (lambda loss: loss._replace(errors=[0.1]), r"returned \[0.1\]; expected errors of shape"),
    ],
)  # fmt: skip
def test_what_is_no_loss_is_told_and_moves_nothing(monkeypatch, change, told):
    learner = make_learner()
    learner.algorithm = make_algorithm(Flags(algorithm=f"{__name__}:sparse"))
    before = [parameter.clone() for parameter in learner.model.parameters()]
    loss = SparseAlgorithm.loss
    monkeypatch.setattr(SparseAlgorithm, "loss", lambda *args: change(loss(*args)))
    with pytest.raises(ConfigError, match=f"SparseAlgorithm.loss .*{told}"):
        learner.step(make_batch(), 0.0)
    after = learner.model.parameters()
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert learner.version == 0


def test_a_file_may_not_name_a_module_unless_nothing_is_learned():
    stored = {"algorithm": "stranger_learns:evil", "env": "CartPole-v1"}
    for mode in ("train", "train_w_load"):
        with pytest.raises(ConfigError, match="algorithm is 'stranger_learns:evil', from"):
            parse([f"--op_mode={mode}", "--load_model_url=x"], lambda *_: stored)
    assert parse(["--op_mode=test", "--load_model_url=x"], lambda *_: stored)


def test_errors_and_metrics_need_not_be_detached(monkeypatch):
    learner = make_learner()
    learner.algorithm = make_algorithm(Flags(algorithm=f"{__name__}:sparse"))
    loss = SparseAlgorithm.loss

    def attached(*args):
        found = loss(*args)
        return Loss(found.total, {"loss/total": found.total}, found.total.expand(5, 4))

    monkeypatch.setattr(SparseAlgorithm, "loss", attached)
    metrics = learner.step(make_batch(), 0.0)
    assert not metrics["loss/total"].requires_grad
    assert not learner.errors.requires_grad
