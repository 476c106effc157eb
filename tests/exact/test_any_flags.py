"""Whatever its flags, a reproducible run that ends early and is resumed is the run that went on."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.exact.runs import MORE_STEPS, difference, one_process, only_run, product, resume, train

pytestmark = pytest.mark.usefixtures("one_process")
__all__ = ["one_process"]

ENVS = (
    "CartPole-v1",
    "tests.fakes:tests/Counting-v0",
    "tests.fakes:tests/Counting-v0,tests.fakes:tests/Owing-v0",
    *(f"tests.worlds:tests/{world}-v0" for world in ("Reach", "Dials", "Mixed", "Sign", "Lamp")),
)
SCORED = ("elite", "attentive")
KINDS = ("queue", "standard", *SCORED, "prioritised", "least_drawn", "circular")
FLAGS = {
    "algorithm": st.sampled_from(["impala", "impact", "q_lambda"]),
    "use_popart": st.booleans(),
    "use_lstm": st.booleans(),
    "burn_in_steps": st.integers(0, 1),
    "use_task_id": st.booleans(),
    "frames_stacked": st.sampled_from([1, 2, 7]),
    "normalise_vectors": st.booleans(),
    "kl_mask_kind": st.sampled_from(["implied", "kl_pi_mu", "kl_mu_pi"]),
    "policy_cloning_loss_weight": st.sampled_from([0, 0.01]),
    "entropy_on": st.sampled_from(["all", "online"]),
    "entropy_end_weight": st.just(0.001),
    "advantage_normalisation": st.sampled_from(["none", "rms"]),
    "loss_reduction": st.sampled_from(["sum", "mean"]),
    "optimizer": st.sampled_from(["rmsprop", "rmsprop_tf", "adam"]),
    "discarding_strategy": st.sampled_from(["keep_latest", "keep_oldest", "alternating"]),
    "rho_const": st.sampled_from([1, "inf"]),
    "reward_clipping_method": st.sampled_from(["none", "abs_one_sign", "log", "soft_asymmetric"]),
    "learner_thread_count": st.integers(1, 2),
    "use_replay_compression": st.booleans(),
}


@st.composite
def buffers(draw):
    """Draw the value of --replay_parameters: one to three kinds in equal shares."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True))
    parts = []
    for kind in kinds:
        part = {"type": kind, "capacity": draw(st.integers(8, 30)), "sample_ratio": 1 / len(kinds)}
        if kind not in ("queue", "circular"):
            part["per_game"] = draw(st.booleans())
            part["reservoir"] = kind not in SCORED and draw(st.booleans())
        parts.append(part)
    return json.dumps(parts)


@st.composite
def command_lines(draw):
    """Draw flags of a small run, most of which go together."""
    given = draw(st.fixed_dictionaries({}, optional=FLAGS))
    given |= {"env": draw(st.sampled_from(ENVS)), "replay_parameters": draw(buffers())}
    given |= {"r_f_steps": draw(st.sampled_from([2, 3, 5])), "batch_size": draw(st.integers(1, 4))}
    return [f"--{name}={value}" for name, value in given.items()]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(  # each example takes seconds, and is short enough to read as it is
    max_examples=20, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)
@given(flags=command_lines(), early=st.integers(40, 120))
def test_a_run_that_is_resumed_becomes_the_run_that_went_on(flags, early):
    flags = [*flags, "--save_replay=True", "--lr_scheduler_steps=200"]
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder, "whole"), Path(folder, "cut")
        outcome = train(whole, *flags, f"--environment_max_steps={MORE_STEPS}")
        assume(outcome.escaped is None and outcome.status != 2)  # 2: refused, they do not fit
        assert outcome.status == 0
        begun = train(cut, *flags, f"--environment_max_steps={early}")
        assume(begun.updates)  # else these steps were too few for a batch
        assert begun.status == 0
        assert resume(cut).status == 0
        assert difference(product(only_run(whole)), product(only_run(cut))) == ""
