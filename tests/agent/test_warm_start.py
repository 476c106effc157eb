"""A new run from old weights: what belongs to a game follows its name, the rest goes along."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ritornello.agent.models.base import Inputs
from ritornello.agent.run.messages import log_start
from ritornello.agent.run.training import Session
from ritornello.agent.run.warm_start import carry_over, keep_actions, warm_start
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.errors import CheckpointError, ConfigError
from tests.agent.builders import make_small_model, make_spec
from tests.agent.runs import QUIET, make_blueprint, saved_state, states_at_start

ONE, OTHER = "tests.fakes:tests/Counting-v0", "tests.fakes:tests/Owing-v0"
ONE_BY_ANOTHER_ID = "tests.fakes:Counting-v0"
BOTH = f"{ONE},{OTHER}"
STEPS = 7000
MODELS = [
    {},
    {"use_popart": False},
    {"use_task_id": True},
    {"use_task_id": True, "use_last_action": True, "use_lstm": True, "lstm_size": 8},
]


def trained(blueprint):
    """A checkpoint whose weights and statistics are like nothing that is drawn at the start."""
    learner = blueprint.learner()
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in learner.model.state_dict().values():
            tensor.add_(torch.rand(tensor.shape, generator=draw).to(tensor.dtype))
    state = saved_state(blueprint, learner, agent_steps=STEPS, updates=90)
    return Checkpoint(Path("old/checkpoints/update_000000090.pt"), state)


def answers(blueprint, weights, task):
    """Logits and values of a model over a few steps in one of its games."""
    model = blueprint.learner().model.eval()
    model.load_state_dict(weights)
    draw = torch.Generator().manual_seed(9)
    state, steps = model.initial_state(3), []
    with torch.no_grad():
        for step in range(3):
            inputs = Inputs(
                torch.randn(3, *blueprint.env_spec.obs_shape, generator=draw),
                torch.tensor([step == 0, step == 1, False]),
                torch.randint(0, 3, (3,), generator=draw),
                torch.randn(3, generator=draw),
                torch.full((3,), task),
            )
            _, heads, state = model(inputs, state)
            steps.append(heads)
    return torch.stack([h.params for h in steps]), torch.stack([h.value for h in steps])


@pytest.mark.parametrize("options", MODELS, ids=str)
@pytest.mark.parametrize(
    ("old", "new", "sources"),
    [
        (BOTH, f"{OTHER},{ONE}", [1, 0]),
        (BOTH, OTHER, [1]),
        (BOTH, ONE_BY_ANOTHER_ID, [0]),
        (ONE, f"{OTHER},{ONE}", [None, 0]),
    ],
)
def test_a_game_that_both_know_is_played_and_valued_as_before(options, old, new, sources):
    before, after = make_blueprint(old, **options), make_blueprint(new, **options)
    checkpoint = trained(before)
    start = warm_start(checkpoint, after)
    saved = checkpoint.state["learner"]["model"]
    games = after.env_spec.tasks
    assert start.agent_steps == STEPS
    assert start.known == tuple(g for g, j in zip(games, sources, strict=True) if j is not None)
    assert start.fresh == tuple(g for g, j in zip(games, sources, strict=True) if j is None)
    for task, source in enumerate(sources):
        if source is None:
            continue
        logits, values = answers(after, start.weights, task)
        expected_logits, expected_values = answers(before, saved, source)
        torch.testing.assert_close(logits, expected_logits)
        torch.testing.assert_close(values, expected_values)
        for name in ("mu", "nu"):
            was, now = saved[f"value_head.{name}"], start.weights[f"value_head.{name}"]
            assert torch.equal(now[task], was[source])


@pytest.mark.parametrize(
    ("env", "options"),
    [
        (ONE, {"normalise_vectors": True}),
        ("tests.worlds:tests/Sign-v0", {"normalise_vectors": True}),
    ],
)
def test_a_new_run_starts_from_weights_that_several_games_cannot_have(env, options):
    blueprint = make_blueprint(env, **options)
    checkpoint = trained(blueprint)
    weights = warm_start(checkpoint, blueprint).weights
    saved = checkpoint.state["learner"]["model"]
    assert all(torch.equal(weights[name], tensor) for name, tensor in saved.items())


def test_a_new_game_has_the_head_that_any_new_run_would_have():
    after = make_blueprint(BOTH)
    start = warm_start(trained(make_blueprint(ONE)), after)
    drawn = after.learner().model.state_dict()
    for name in ("linear.weight", "linear.bias", "mu", "nu"):
        got = start.weights[f"value_head.{name}"]
        assert torch.equal(got[1], drawn[f"value_head.{name}"][1]), name
        assert not torch.equal(got[0], drawn[f"value_head.{name}"][0]), name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"normalise_pixels": "each"}, {"normalise_pixels": "rare"}),
        ({"use_last_reward": "raw"}, {"use_last_reward": True}),
    ],
)
def test_inputs_in_other_units_are_refused(before, after):
    checkpoint = trained(make_blueprint(ONE, **before))
    (name,) = before
    with pytest.raises(ConfigError, match=f"--{name}={after[name]}, but .*expected the same"):
        warm_start(checkpoint, make_blueprint(ONE, **after))


def test_a_start_tells_what_its_values_stood_for_where_that_is_changed():
    checkpoint = trained(make_blueprint(ONE, gamma=0.9))
    same = make_blueprint(ONE, gamma=0.9, lr=0.01)
    assert "learned with" not in str(warm_start(checkpoint, same))
    other = make_blueprint(ONE, gamma=0.99, clip_rewards=True)
    assert "learned with --gamma=0.9 --reward_clipping_method=none:" in str(
        warm_start(checkpoint, other)
    )
    assert "learned with" not in str(warm_start(checkpoint, make_blueprint(OTHER, gamma=0.99)))


def test_who_acts_by_values_of_actions_explores_anew_before_the_first_update():
    blueprint = make_blueprint(ONE, algorithm="q_lambda", use_popart=False)
    checkpoint = trained(blueprint)
    checkpoint.state["learner"]["model"]["epsilon"].fill_(0.01)
    assert warm_start(checkpoint, blueprint).weights["epsilon"] == 1.0


def test_what_the_pixels_of_a_game_look_like_follows_its_name():
    saved = {f"game_pixels.{game}.mean": torch.full((2,), float(game + 1)) for game in range(2)}
    saved |= {f"game_pixels.{game}.batches": torch.tensor(game) for game in range(2)}
    drawn, pixels = torch.zeros(2), "torso_net.convs.0.statistics"
    alone, fresh = f"{pixels}.mean", {f"{pixels}.batches": torch.tensor(0)}
    fresh[alone] = drawn
    assert carry_over(saved, fresh, [1])[alone].tolist() == [2, 2]
    assert carry_over(saved, fresh, [None])[alone].tolist() == [0, 0]
    swapped = {f"game_pixels.{game}.mean": drawn for game in range(3)}
    found = carry_over(saved, swapped, [1, None, 0])
    assert [tensor[0].item() for tensor in found.values()] == [2, 0, 1]
    parts = {f"torso_net.{part}.statistics.mean": torch.full((2,), part) for part in (3, 4)}
    parts |= {f"torso_net.{part}.statistics.batches": torch.full((2,), part) for part in (3, 4)}
    found = carry_over(parts, dict.fromkeys(parts, drawn), [0])
    assert [tensor[0].item() for tensor in found.values()] == [3, 4] * 2, "each part has its own"


def test_a_new_game_of_vectors_is_seen_in_the_units_of_the_network_that_goes_along():
    spec = make_spec((6,))
    old = make_small_model(spec, normalise_vectors=True)
    vectors = torch.randn(200, 6) * torch.tensor([0.01, 0.1, 1.0, 10.0, 30.0, 100.0])
    old.observe(vectors)
    fresh = make_small_model(spec, normalise_vectors=True)
    fresh.load_state_dict(carry_over(old.state_dict(), fresh.state_dict(), [None]))
    torch.testing.assert_close(fresh.torso(vectors), old.torso(vectors))


def test_weights_of_another_network_and_values_in_other_units_are_refused():
    checkpoint = trained(make_blueprint(BOTH))
    with pytest.raises(CheckpointError, match="another network"):
        warm_start(checkpoint, make_blueprint(ONE, feature_out_layer_size=8))
    with pytest.raises(ConfigError, match="--use_popart=True"):
        warm_start(checkpoint, make_blueprint(ONE, use_popart=False))
    with pytest.raises(CheckpointError, match="frame_shape"):
        warm_start(checkpoint, make_blueprint("tests.fakes:tests/Chain-v0"))


def test_only_an_atari_game_is_told_of_the_action_set():
    spec = make_blueprint(ONE).env_spec
    checkpoint = Checkpoint(Path("old.pt"), {"env_spec": spec.to_dict()})
    more = replace(spec, action_meanings=(*spec.action_meanings, "UP"))
    with pytest.raises(CheckpointError, match=r"also has UP: .*Start without --load\."):
        keep_actions(checkpoint, more)


@pytest.fixture
def run(tmp_path):
    """The folder of a run of two games."""
    blueprint = make_blueprint(BOTH, reproducible=True, environment_max_steps=60, seed=11)
    state = trained(blueprint).state
    folder = tmp_path / "old"
    CheckpointWriter(folder / "checkpoints").save(state, updates=90, agent_steps=STEPS)
    return folder


def prepared(run, *flags):
    return prepare([f"--load_model_url={run}", f"--results_dir={run.parent / 'new'}", *flags])


def test_a_new_run_in_one_of_the_games_starts_from_the_weights(run, monkeypatch):
    starts = states_at_start(monkeypatch)
    training = prepared(run, f"--env={OTHER}", "--seed=3", *QUIET)
    assert training.run() == 0
    (start,) = starts
    for name, tensor in training.start.weights.items():
        assert torch.equal(start["learner"]["model"][name], tensor), name
    assert start["learner"]["version"] == start["tally"]["agent_steps"] == 0
    assert start["learner"]["optimiser"]["state"] == {}
    (folder,) = (run.parent / "new").iterdir()
    flags = json.loads((folder / "flags.json").read_text("utf-8"))
    assert (flags["env"], flags["seed"], flags["feature_out_layer_size"]) == (OTHER, 3, 16)
    log = (folder / "train.log").read_text("utf-8")
    assert f"values go along in {OTHER}" in log
    assert "resuming" not in log


@pytest.mark.slow
def test_one_replay_for_all_games_keeps_those_that_a_resume_does_not_play(tmp_path):
    """CLEAR's setting: half of each batch is of all that was ever played."""
    replay = json.dumps(
        [
            {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
            {
                "type": "standard", "capacity": 300, "sample_ratio": 0.5,
                "reservoir": True, "per_game": False,
            },
        ]
    )  # fmt: skip
    first = (
        f"--results_dir={tmp_path}", f"--env={BOTH}", "--env_shares=1,0", "--worker_count=1",
        "--envs_per_worker=2", f"--replay_parameters={replay}", "--save_replay=True",
        "--environment_max_steps=2000", "--seed=3", *QUIET,
    )  # fmt: skip
    assert prepare(first).run() == 0
    (folder,) = tmp_path.iterdir()
    resume = ("--op_mode=train_w_load", f"--load_model_url={folder}", "--env_shares=0,1")
    resumed = prepare([*resume, "--environment_max_steps=4000"])
    assert resumed.run() == 0
    log = (folder / "train.log").read_text("utf-8")
    assert "empty buffers" not in log
    assert "Counting is not played any more and stays in the replay" in log
    contents = load(folder).load_replay()
    replay_now, view = resumed.blueprint.replay(), resumed.blueprint.schema.view
    replay_now.load_state_dict(contents)
    games = [int(view(item.record(), "task_id")) for item in replay_now.buffers[1].items]
    assert min(games.count(0), games.count(1)) > 20


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ((), "Give --value_cloning_loss_weight=0.005"),
        (("--preset=clear,q_lambda",), "Give --load_replay=False"),  # it has no such loss
    ],
    ids=["impala", "q_lambda"],
)
def test_who_stops_playing_a_game_that_is_replayed_is_told_what_helps(
    flags, advice, tmp_path, caplog
):
    argv = (
        f"--env={BOTH}", "--env_shares=0,1", *flags,
        "--reward_clipping_method=abs_one_sign", "--worker_count=1", "--envs_per_worker=2",
        "--replay=queue:4:0.5,standard:300:0.5:per_game=False",
    )  # fmt: skip
    blueprint = prepare(argv).blueprint
    checkpoint = Checkpoint(tmp_path, saved_state(blueprint, has_replay=True))
    log_start(Session(blueprint, checkpoint, list(argv)), RunFolder(tmp_path))
    (said,) = [line for line in caplog.messages if "is not played any more" in line]
    assert f". {advice}" in said


def test_a_test_is_played_by_the_model_of_all_games_in_the_games_asked_for(run):
    tested = prepared(run, "--op_mode=test", f"--env={OTHER}")
    assert tested.envs == (OTHER,)
    assert tested.blueprint.env_spec.tasks == (ONE, OTHER)
    assert prepared(run, "--op_mode=test").envs == (ONE, OTHER)


def test_an_atari_agent_goes_on_in_another_game_with_its_own_actions(tmp_path):
    small = {"model": "nature", "clip_rewards": True, "frame_scale_resolution": "40,40"}
    pong = make_blueprint("PongNoFrameskip-v4", **small)
    folder = tmp_path / "pong"
    CheckpointWriter(folder / "checkpoints").save(trained(pong).state, updates=1, agent_steps=1)
    start = prepared(folder, "--env=BreakoutNoFrameskip-v4").blueprint
    assert start.env_spec.action_meanings == pong.env_spec.action_meanings
    assert start.flags.action_set == "NOOP,FIRE,RIGHT,LEFT,RIGHTFIRE,LEFTFIRE"
    with pytest.raises(CheckpointError, match=r"also has UP, DOWN.*--action_set=all"):
        prepared(folder, "--env=FreewayNoFrameskip-v4")
    assert prepared(folder, "--env=PongNoFrameskip-v4").blueprint.flags.action_set == ""
