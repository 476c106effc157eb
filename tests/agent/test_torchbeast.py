import collections
import os
import shlex

import numpy as np
import pytest
import torch

from ritornello.agent import torchbeast
from ritornello.agent.assembly import build_model
from ritornello.agent.models.base import Inputs
from ritornello.agent.session import prepare
from ritornello.agent.stored.model_file import load_model
from ritornello.agent.torchbeast import main, migrate, read
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.spec import EnvSpec
from ritornello.flags.earlier import is_earlier
from ritornello.flags.parsing import parse
from tests.reference.torchbeast_networks import draw_weights, play

PONG, CARNIVAL = "PongNoFrameskip-v4", "CarnivalNoFrameskip-v4"
ACTIONS = 6  # of both
STEPS = 7
# A MonoBeast file, a PolyBeast file, those of the fork with PopArt, and LASER's ports of both.
VARIANTS = {
    "AtariNet": {"net": "AtariNet", "extras": 7},
    "ResNet": {"net": "ResNet", "extras": 1},
    "ResNet, LSTM": {"net": "ResNet", "extras": 1, "lstm_layers": 1, "lstm_size": 256},
    "ResNet, PopArt": {"net": "ResNet", "extras": 1, "values": 2, "popart": True},
    "AtariNet, LSTM, PopArt": {
        **{"net": "AtariNet", "extras": 7, "lstm_layers": 2, "lstm_size": 519},
        **{"values": 2, "popart": True},
    },
    "ResNet, one head for two games": {"net": "ResNet", "extras": 1},
}


def save(path, weights, **flags):
    """Write a file as TorchBeast does, with all that stands beside the weights."""
    parameters = [torch.nn.Parameter(weights["policy.bias"].clone())]
    optimiser = torch.optim.RMSprop(parameters, lr=4.8e-4, eps=0.01, alpha=0.99)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda epoch: 1 - epoch / 100)
    parameters[0].sum().backward()
    optimiser.step()
    scheduler.step()
    returns = torch.tensor([21.0, 20.0]).numpy()
    torch.save(
        {
            "model_state_dict": weights,
            "optimizer_state_dict": optimiser.state_dict(),
            "scheduler_state_dict": scheduler.state_dict(),
            "stats": {"step": 51_200, "episode_returns": tuple(returns), "sigma": returns},
            "flags": {
                **{"unroll_length": 80, "batch_size": 8, "discounting": 0.98, "env": PONG},
                **{"learner_device": torch.device("cpu"), "reward_clipping": "abs_one", **flags},
            },
        },
        path,
    )
    return path


def draw_game(seed):
    """Return frames, last rewards, one-hot last actions and resets of one environment."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (STEPS, 4, 84, 84), dtype=torch.uint8, generator=generator)
    reward = torch.randn(STEPS, generator=generator) * 3
    action = torch.randint(0, ACTIONS, (STEPS,), generator=generator)
    done = torch.zeros(STEPS, dtype=torch.bool)
    done[[0, 3 + seed]] = True
    return frames, reward, action, done


def load(folder):
    """Build the model from the folder as the program does."""
    state = load_model(folder).state
    flags = parse(["--op_mode=test", f"--load_model_url={folder}"], lambda *_: state["flags"])
    spec = EnvSpec.from_dict(state["env_spec"])
    model = build_model(flags, spec)
    model.load_state_dict(state["learner"]["model"])
    return model.eval(), spec


@torch.no_grad()
def compare(folder, weights, *, clamp=True):
    """Let both play two environments with resets at different steps, in the second game."""
    model, spec = load(folder)
    games = [draw_game(0), draw_game(1)]
    theirs = []
    for frames, reward, action, done in games:
        # After a reset our models are told of no last action and no last reward.
        one_hot = torch.nn.functional.one_hot(action, ACTIONS) * ~done[:, None]
        theirs.append(play(weights, frames, reward * ~done, one_hot.float(), done, clamp=clamp))
    frames, reward, action, done = (torch.stack(parts, 1) for parts in zip(*games, strict=True))
    task = spec.task_count - 1
    state = model.initial_state(2)
    for t in range(STEPS):
        task_id = torch.full((2,), task)
        inputs = Inputs(frames[t], done[t], action[t], reward[t], task_id)
        _, heads, state = model(inputs, state)
        for env, (logits, values) in enumerate(theirs):
            expected = values[t, min(task, values.shape[1] - 1)]
            torch.testing.assert_close(heads.params[env], logits[t], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(heads.value[env], expected, rtol=1e-4, atol=1e-4)
    spread = torch.stack([logits for logits, _ in theirs]).std(1)
    assert spread.min() > 1e-3, "the networks must react to what they see"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_converted_agent_says_what_the_original_says(name, tmp_path):
    weights = draw_weights(**VARIANTS[name])
    env = f"{PONG},{CARNIVAL}" if "PopArt" in name or "two games" in name else PONG
    layout = migrate(save(tmp_path / "model.tar", weights), tmp_path / "ours", env)
    assert layout.has_popart == ("PopArt" in name)
    compare(tmp_path / "ours", weights)


def test_a_resnet_trained_on_raw_rewards_goes_on_seeing_them(tmp_path):
    weights = draw_weights("ResNet", extras=1, values=2, popart=True)
    file = save(tmp_path / "model.tar", weights, reward_clipping="none")
    migrate(file, tmp_path / "ours", f"{PONG},{CARNIVAL}")
    compare(tmp_path / "ours", weights, clamp=False)
    assert load_model(tmp_path / "ours").state["flags"]["reward_clipping_method"] == "none"
    # The base program clamps this input whatever it learns from; it has no statistics.
    base = draw_weights("ResNet", extras=1)
    migrate(save(file, base, reward_clipping="none"), tmp_path / "base")
    compare(tmp_path / "base", base, clamp=True)


def test_the_folder_says_what_it_was_and_how_it_was_trained(tmp_path):
    weights = draw_weights("AtariNet", extras=7, lstm_layers=2, lstm_size=519)
    layout = migrate(save(tmp_path / "model.tar", weights), tmp_path / "ours")
    assert "LSTM of 2 x 519" in layout.describe()
    state = load_model(tmp_path / "ours").state
    assert state["tally"] == {"agent_steps": 51_200, "updates": 1}
    assert state["flags"]["gamma"] == 0.98
    assert state["env_spec"]["env_id"] == PONG
    assert not state["flags"]["normalise_pixels"]
    assert not state["flags"]["use_popart"]
    assert state["flags"]["use_lstm"] == 2
    assert not [name for name in state["flags"] if is_earlier(name)]
    weights = draw_weights("ResNet", extras=1, actions=18)
    migrate(save(tmp_path / "model.tar", weights), tmp_path / "of 18 actions")
    state = load_model(tmp_path / "of 18 actions").state
    assert len(state["env_spec"]["action_meanings"]) == 18
    assert state["flags"]["action_set"] == "all"


def test_a_converted_agent_plays_in_test_mode(tmp_path, capsys):
    file = save(tmp_path / "model.tar", draw_weights("AtariNet", extras=7))
    lines = []
    main([str(file), str(tmp_path / "my agent")], lines.append)
    assert "AtariNet, last reward and last action, no LSTM" in lines[0]
    argument = f"--test={tmp_path / 'my agent'}"
    assert shlex.split(lines[1])[-1] == argument
    session = prepare(
        [
            *(argument, "--test_episode_count=1", "--max_episode_frames=80"),
            *("--seed=1", f"--results_dir={tmp_path}/results"),
        ]
    )
    assert session.run() == 0
    assert f"1 game of {PONG}" in capsys.readouterr().out


def test_a_file_with_objects_is_refused_and_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    torch.save({"model_state_dict": {"fc.weight": Evil()}}, tmp_path / "model.tar")
    # torch's own words advise to load it all the same.
    with pytest.raises(CheckpointError, match="model.tar is refused: .* or is damaged.$"):
        migrate(tmp_path / "model.tar", tmp_path / "ours", PONG)
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "ours").exists()


class Call:
    def __init__(self, function, *arguments):
        self._call = (function, arguments)

    def __reduce__(self):
        return self._call


ONE = torch.ones(1)
MAKES_ARRAY, FLOATS = np.empty(0).__reduce__()[0], np.ones(200)
BOMBS = {
    "a buffer": ("flags", Call(bytearray, 10**16)),
    "an array": ("flags", Call(MAKES_ARRAY, np.ndarray, (10**16,), b"b")),
    "a tensor of stride 0": ("model_state_dict", ONE.expand(10**6, 1000)),
    "one tensor under many names": ("model_state_dict", ONE.expand(10**4)),
}


@pytest.mark.parametrize("is_archive", [True, False])
@pytest.mark.parametrize(("part", "bomb"), BOMBS.values(), ids=BOMBS)
def test_a_file_that_asks_for_memory_is_refused(part, bomb, is_archive, tmp_path):
    content = {"model_state_dict": {"a": ONE}, "flags": {}}
    content[part] = dict.fromkeys("bcd", bomb)
    path = tmp_path / "model.tar"
    torch.save(content, path, _use_new_zipfile_serialization=is_archive)
    with pytest.raises(CheckpointError, match="is refused|is damaged|in memory of its own"):
        read(path)


def test_a_game_that_is_no_text_is_none(tmp_path):
    game = []
    for _ in range(60):
        game = [game, game]
    file = save(tmp_path / "model.tar", draw_weights("ResNet", extras=1), env=game)
    with pytest.raises(ConfigError, match="does not say which game it plays"):
        migrate(file, tmp_path / "ours")


@pytest.mark.parametrize(
    ("gates", "reason"),
    [(4 * 10**6, "are not as they should be"), (4 * 10**10, "calculation over")],
)
def test_small_tensors_of_a_huge_network_are_refused_without_making_it(gates, reason, tmp_path):
    weights = draw_weights("ResNet", extras=1, lstm_layers=1, lstm_size=256)
    weights["fc.weight"], weights["core.weight_ih_l0"] = torch.ones(0, 3872), torch.ones(gates, 0)
    file = save(tmp_path / "model.tar", weights)
    with pytest.raises(CheckpointError, match=f"(?s)not known: .*{reason}"):
        migrate(file, tmp_path / "ours")


@pytest.mark.parametrize("is_archive", [True, False])
def test_files_of_both_kinds_of_torch_are_read(is_archive, tmp_path):
    path = save(tmp_path / "model.tar", draw_weights("ResNet", extras=1))
    content = read(path)
    content["stats"]["old"] = [np.float64(1), np.int64(2), np.bool_(True), FLOATS, FLOATS[:3]]
    content["flags"]["not"] = collections.OrderedDict(a=None)
    torch.save(content, path, _use_new_zipfile_serialization=is_archive)
    again = read(path)
    assert again["stats"]["step"] == 51_200
    np.testing.assert_array_equal(again["stats"]["old"][3], FLOATS)


def test_a_damaged_or_absent_file_is_one_message_and_status_2(tmp_path, capsys):
    file = save(tmp_path / "model.tar", draw_weights("ResNet", extras=1))
    file.write_bytes(file.read_bytes()[:-5000])
    (tmp_path / "words.tar").write_text("hi")
    damaged, absent = ("is damaged, or no file", "cannot be read: No such file")
    cases = [("model.tar", damaged), ("words.tar", damaged), (r"\x1babsent.tar", absent)]
    for name, said in cases:
        path = tmp_path / name.replace(r"\x1b", "\x1b")
        with pytest.raises(SystemExit) as caught:
            main([str(path), str(tmp_path / "ours")])
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {tmp_path / name} {said}")
        assert "Traceback" not in error


def test_an_interrupt_is_one_line_and_status_130(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(torchbeast, "migrate", interrupted)
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path / "model.tar"), str(tmp_path / "ours")])
    assert caught.value.code == 130
    assert capsys.readouterr().err.startswith("interrupted: ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"conv1.weight": None}, "there is no conv1.weight and no feat_convs.0.0.weight"),
        ({"policy.weight": (6, 600)}, "88 inputs beside the 512 features"),
        ({"fc2.weight": (512, 512)}, "fc2.weight .* are not as they should be"),
        ({"fc.weight": (512, 1600)}, "torso_net.linear.weight .* are not as they should"),
    ],
)
def test_an_unknown_network_is_an_error_that_lists_what_was_found(change, reason, tmp_path):
    weights = draw_weights("AtariNet", extras=7)
    for name, shape in change.items():
        if shape is None:
            del weights[name]
        else:
            weights[name] = torch.zeros(shape)
    file = save(tmp_path / "model.tar", weights)
    with pytest.raises(CheckpointError, match=f"(?s)not known: {reason}.*\n  conv2.weight: \\(64"):
        migrate(file, tmp_path / "ours", PONG)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("part", "key", "values"),
    [
        ("flags", "discounting", ["high", float("nan")]),
        ("flags", "batch_size", [-1, 10**30]),
        ("stats", "step", [True, -1]),
        ("scheduler_state_dict", "last_epoch", ["high", 10**30]),
    ],
)
def test_a_number_that_is_none_is_refused(part, key, values, tmp_path):
    content = read(save(tmp_path / "model.tar", draw_weights("ResNet", extras=1)))
    if key == "batch_size":
        del content["stats"]  # or else the steps are known without it
    for value in values:
        content[part][key] = value
        torch.save(content, tmp_path / "model.tar")
        with pytest.raises(CheckpointError, match=f"model.tar .*{part}.{key}: expected .*, got "):
            migrate(tmp_path / "model.tar", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_games_that_do_not_fit_the_network_are_refused(tmp_path):
    file = save(tmp_path / "model.tar", draw_weights("ResNet", extras=1, values=2, popart=True))
    with pytest.raises(ConfigError, match="values for 2 games, but .* means 1"):
        migrate(file, tmp_path / "ours", PONG)
    with pytest.raises(ConfigError, match="the file has 6 actions, but Breakout.* has 4"):
        migrate(file, tmp_path / "ours", "BreakoutNoFrameskip-v4")
    file = save(file, draw_weights("ResNet", extras=1), env="")
    with pytest.raises(ConfigError, match="does not say which game it plays: give --env"):
        migrate(file, tmp_path / "ours")
