"""Turns an agent that TorchBeast saved into a model folder (agent/stored/model_file.py).

    python -m ritornello.agent.torchbeast <logs>/<xpid>/model.tar models/<name> --env=<game>

TorchBeast is FAIR's IMPALA in PyTorch (https://arxiv.org/abs/1910.03552). Known are the networks of
MonoBeast (AtariNet) and PolyBeast (ResNet), with and without LSTM, those of its fork with PopArt
and several games, and networks of either torso that have other extra inputs, as long as these are
the last reward or the last reward and then the last action. docs/migration.md says what is the
same afterwards and what is not.

The file is a stranger's, and read as data (`weights_only`): it can run no code. The layout is
recognised by names and shapes of its tensors; each tensor of the file is used, and each of our
model is filled.
"""

from __future__ import annotations

import _codecs
import argparse
import pickle
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.stored.checkpoint_file import check_claims
from ritornello.agent.stored.checkpoint_tree import KNOWN_DTYPES, first_not_finite
from ritornello.agent.stored.model_file import WEIGHTS, save_model
from ritornello.core.command_line import printable, reader_may_leave, tell, with_home
from ritornello.core.errors import CheckpointError, ConfigError, PlatformError, first_line
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import main_command
from ritornello.core.spec import EnvSpec
from ritornello.core.stop_signals import INTERRUPTED
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.games import expand_games
from ritornello.wrappers.registry import make_env_spec

FRAMES_STACKED, HEIGHT, WIDTH = 4, 84, 84  # gray; its networks fit no other size
ALL_ACTIONS = 18
NETWORKS = {"nature": "AtariNet", "resnet": "ResNet"}  # our name of the torso -> TorchBeast's
MAX_TENSORS_SHOWN = 60
MAX_WHOLE = 2**53  # of steps and updates; a float of double precision holds each one below it
# PolyBeast keeps the returns of its last games as NumPy numbers. These are the parts that such
# numbers and arrays are pickled of; none of them does anything but hold data.
_MAKES_NUMBER, _MAKES_ARRAY = np.float64(0).__reduce__()[0], np.empty(0).__reduce__()[0]
_NUMPY_PARTS: list[Any] = [
    *((_MAKES_NUMBER, f"{module}.multiarray.scalar") for module in ("numpy.core", "numpy._core")),
    *((_MAKES_ARRAY, f"{m}.multiarray._reconstruct") for m in ("numpy.core", "numpy._core")),
    *(np.ndarray, np.dtype, (_codecs.encode, "_codecs.encode")),
    *(type(np.dtype(name)) for name in ("f4", "f8", "i4", "i8", "?")),
]


def read(path: Path) -> dict[str, Any]:
    """Return the content of a `model.tar`: plain types and tensors on the CPU.

    Its `model_state_dict` is name -> tensor, dense and finite.

    Raises:
      CheckpointError: if the file is missing or damaged, holds anything but data, or lacks weights.
    """
    try:
        check_claims(path)
        with torch.serialization.safe_globals(_NUMPY_PARTS):
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is refused: expected tensors, numbers and text only, as TorchBeast saves "
            "them, got something that would have to be executed or is damaged."
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # nobody lists what the bytes of a stranger can make a reader raise
        raise CheckpointError(
            f"{path} is damaged, or no file that TorchBeast saved: "
            f"{type(error).__name__} {first_line(error)}"
        ) from error
    weights = content.get("model_state_dict") if isinstance(content, dict) else None
    if (
        not isinstance(weights, dict)
        or not all(map(_is_weight, weights.items()))
        or sum(tensor.nbytes for tensor in weights.values()) > path.stat().st_size
    ):
        raise CheckpointError(
            f"{path} is no checkpoint of TorchBeast: expected the key model_state_dict with names "
            "and dense tensors, each in memory of its own."
        )
    found = first_not_finite(weights, (), "model_state_dict")
    if found:
        raise CheckpointError(
            f"{path} holds weights that no model can have: {shown_text(found)}, expected finite "
            "numbers. Take an older file of that training."
        )
    return content


def _is_weight(item: tuple[Any, Any]) -> bool:
    """Whether an item of a state dict is a name and a dense tensor of usual numbers."""
    name, tensor = item
    is_dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided
    return isinstance(name, str) and is_dense and tensor.dtype in KNOWN_DTYPES


@dataclass(frozen=True)
class Layout:
    """The network of a file, as far as its tensors tell."""

    torso: str  # our name of it: nature | resnet
    feature_count: int  # units of the layer after the convolutions
    action_count: int  # A
    value_count: int  # outputs of the value head
    has_last_reward: bool
    has_last_action: bool
    lstm_size: int  # 0: no LSTM
    lstm_layers: int
    has_popart: bool  # statistics that are not those of a plain value head

    def describe(self) -> str:
        """Return one line for the terminal."""
        extras = ["last reward"] * self.has_last_reward + ["last action"] * self.has_last_action
        lstm = f"LSTM of {self.lstm_layers} x {self.lstm_size}" if self.lstm_size else "no LSTM"
        return (
            f"{NETWORKS[self.torso]}, {' and '.join(extras) or 'no extra inputs'}, {lstm}, "
            f"{self.action_count} actions, {self.value_count} value{'s' * (self.value_count > 1)}"
            f"{' with PopArt' * self.has_popart}"
        )


def is_saved_by_torchbeast(path: Path) -> bool:
    """Whether a file looks like a `model.tar`, by the first bytes of it; runs and loads nothing."""
    try:
        with path.open("rb") as file:
            return b"model_state_dict" in file.read(65_536)
    except OSError:
        return False


def recognise(weights: Mapping[str, Tensor]) -> Layout:
    """Return the layout of the network that the tensors are of.

    Raises:
      CheckpointError: if the network is not known; the message lists what was found.
    """
    missing = {"fc.weight", "policy.weight", "baseline.weight", "baseline.bias"} - set(weights)
    torsos = {"conv1.weight": "nature", "feat_convs.0.0.weight": "resnet"}
    torso = next((torso for name, torso in torsos.items() if name in weights), None)
    if missing or torso is None:
        raise _unknown(weights, f"there is no {' and no '.join(sorted(missing or torsos))}")
    for name in ("fc.weight", "policy.weight", "baseline.weight", "core.weight_ih_l0"):
        if name in weights and weights[name].dim() != 2:
            shape = tuple(weights[name].shape)
            raise _unknown(weights, f"{name} has shape {shape}, expected (outputs, inputs)")
    values = weights["baseline.weight"].shape[0]
    for name in ("baseline.bias", "baseline.mu", "baseline.sigma"):
        if name in weights and weights[name].shape != (values,):
            shape = tuple(weights[name].shape)
            raise _unknown(weights, f"{name} has shape {shape}, expected {(values,)}")
    features, actions = weights["fc.weight"].shape[0], weights["policy.weight"].shape[0]
    lstm = weights.get("core.weight_ih_l0")
    into_core = (weights["policy.weight"] if lstm is None else lstm).shape[1]
    extras = into_core - features
    if extras not in (0, 1, 1 + actions):
        raise _unknown(
            weights,
            f"{extras} inputs beside the {features} features; 0, 1 (reward) or {1 + actions} "
            "(reward and last action) are known",
        )
    mu, sigma = weights.get("baseline.mu"), weights.get("baseline.sigma")
    return Layout(
        torso=torso,
        feature_count=features,
        action_count=actions,
        value_count=values,
        has_last_reward=extras > 0,
        has_last_action=extras > 1,
        lstm_size=0 if lstm is None else lstm.shape[0] // 4,  # its four gates
        lstm_layers=sum(name.startswith("core.weight_ih_l") for name in weights),
        has_popart=mu is not None
        and sigma is not None
        and bool((mu != 0).any() or (sigma != 1).any()),
    )


def convert(weights: Mapping[str, Tensor], layout: Layout, task_count: int) -> dict[str, Tensor]:
    """Return the weights under our names and in our order, fp32.

    Our model has `task_count` games; a single value head of the file serves all of them.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name not in ("baseline.mu", "baseline.sigma"):
            renamed[_our_name(name, layout.torso)] = tensor.float()
    # What sees the extra inputs: the first layer of the LSTM, or else the heads.
    readers = ["core.lstm.weight_ih_l0"]
    if not layout.lstm_size:
        readers = ["policy_head.weight", "value_head.linear.weight"]
    if layout.has_last_action:
        for name in readers:
            theirs, reward = renamed[name], layout.feature_count
            renamed[name] = torch.cat(
                [theirs[:, :reward], theirs[:, reward + 1 :], theirs[:, reward : reward + 1]], 1
            )
    mu = weights.get("baseline.mu", torch.zeros(layout.value_count)).double()
    sigma = weights.get("baseline.sigma", torch.ones(layout.value_count)).double()
    per_task = {
        "value_head.linear.weight": renamed["value_head.linear.weight"],
        "value_head.linear.bias": renamed["value_head.linear.bias"],
        "value_head.mu": mu,
        "value_head.nu": mu.square() + sigma.square(),  # sigma itself is what it averages
    }
    if layout.value_count == 1:
        per_task = {n: t.expand(task_count, *t.shape[1:]).clone() for n, t in per_task.items()}
    return {name: tensor.contiguous() for name, tensor in (renamed | per_task).items()}


def migrate(path: Path, output: Path, env: str = "", *, raw_reward: bool | None = None) -> Layout:
    """Write the model folder `output` of a `model.tar`; return what was recognised.

    `env` has ids of the games in the order of the tasks, or the name of a set ("six"); by default
    those that the file says it was trained on. `raw_reward` says whether the network sees the last
    reward unclamped; by default the file decides.

    Raises:
      CheckpointError: if the file is refused, or its network is not known.
      ConfigError: if the games do not fit the network, or the folder cannot be written.
    """
    content = read(path)
    weights, trained = content["model_state_dict"], _table(content, "flags")
    layout = recognise(weights)
    env = env or _text(trained, "env")
    if not env:
        raise ConfigError(f"{path} does not say which game it plays: give --env=<id>.")
    spec, action_set = _env_spec(expand_games(env), layout)
    if layout.value_count not in (1, spec.task_count):
        raise ConfigError(
            f"{path} has values for {layout.value_count} games, but --env={env} means "
            f"{spec.task_count}: give the ids of its games, in the order in which they were given "
            "when it was trained."
        )
    is_unclipped = _text(trained, "reward_clipping") == "none"
    if raw_reward is None:
        # Only the ResNet of the fork, which is known by its statistics, does not clamp its input.
        raw_reward = is_unclipped and layout.torso == "resnet" and "baseline.mu" in weights
    steps, updates = _progress(path, content)
    flags = _flags(layout, spec, raw_reward) | {
        "action_set": action_set,
        "reward_clipping_method": "none" if is_unclipped else "abs_one_clamp",
        "gamma": _number(path, content, "flags.discounting", 0.99, most=1),
    }
    converted = convert(weights, layout, spec.task_count)
    _check(converted, weights, layout, spec)
    facts = {
        "env_spec": spec.to_dict(),
        "agent_steps": steps,
        "updates": updates,
        "migrated_from": {"program": "TorchBeast", "file": path.name, "network": layout.describe()},
    }
    save_model(output, converted, flags, facts)
    return layout


def main(argv: Sequence[str], show: Callable[[str], None] = tell) -> None:
    """Run the command; a mistake is a message and exit status 2, an interrupt one line and 130."""
    parser = argparse.ArgumentParser(
        prog="python -m ritornello.agent.torchbeast",
        description="Turn an agent that TorchBeast saved (model.tar) into a model folder that can "
        "be played, analysed, and be what a new run starts from. docs/migration.md says more.",
    )
    parser.add_argument("model", type=Path, help="the file, e.g. logs/<xpid>/model.tar")
    parser.add_argument("output", type=Path, help="the model folder, made or written anew")
    parser.add_argument(
        "--env",
        default="",
        help="ids of its games with commas, in the order of their tasks; three or six for the "
        "games of the fork with PopArt (default: what the file says)",
    )
    parser.add_argument(
        "--raw_reward",
        choices=("auto", "True", "False"),
        default="auto",
        help="whether the last reward entered the network as it was instead of clamped to "
        "[-1, 1]; auto: in a ResNet of the fork that was trained with --reward_clipping=none",
    )
    options = parser.parse_args(with_home(argv))
    raw = None if options.raw_reward == "auto" else options.raw_reward == "True"
    try:
        layout = migrate(options.model, options.output, options.env, raw_reward=raw)
    except PlatformError as error:
        parser.exit(2, f"error: {printable(str(error))}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED, "interrupted: the same command writes the model anew\n")
    size_mb = (options.output / WEIGHTS).stat().st_size / 1e6
    output = shlex.quote(str(options.output))
    with reader_may_leave():
        show(f"{options.output}: {layout.describe()}; weights of {size_mb:.1f} MB")
        show(f"play: {main_command()} --test={output}")


def _unknown(weights: Mapping[str, Tensor], reason: str) -> CheckpointError:
    found = [f"  {shown_text(name)}: {tuple(tensor.shape)}" for name, tensor in weights.items()]
    return CheckpointError(
        f"the network is not known: {reason}. Expected MonoBeast's AtariNet (conv1, conv2, conv3, "
        "fc) or PolyBeast's ResNet (feat_convs, resnet1, resnet2, fc), with core (LSTM) or "
        "without, policy and baseline; found\n" + "\n".join(found[:MAX_TENSORS_SHOWN])
    )


def _our_name(name: str, torso: str) -> str:
    """Return our name of a tensor; an unknown one keeps its own, and `_check` reports it."""
    layer, _, kind = name.rpartition(".")
    whole = {
        "fc": "torso_net.linear",
        "core": "core.lstm",
        "policy": "policy_head",
        "baseline": "value_head.linear",
    }
    if torso == "nature":
        whole |= {f"conv{n}": f"torso_net.convs.{2 * (n - 1)}" for n in (1, 2, 3)}
    else:
        for section in range(3):  # convolution, pooling, block, block
            start = 4 * section
            whole[f"feat_convs.{section}.0"] = f"torso_net.convs.{start}"
            for block in (1, 2):
                for conv, place in ((1, 1), (2, 3)):
                    ours = f"torso_net.convs.{start + 1 + block}.conv{conv}"
                    whole[f"resnet{block}.{section}.{place}"] = ours
    return f"{whole[layer]}.{kind}" if layer in whole else name


def _env_spec(env_id: str, layout: Layout) -> tuple[EnvSpec, str]:
    """Return the spec of the games, and the --action_set that they are played with."""
    config = EnvConfig(env_id, frames_stacked=FRAMES_STACKED, height=HEIGHT, width=WIDTH)
    spec = make_env_spec(config)
    if spec.action_count == layout.action_count:
        return spec, ""
    if layout.action_count == ALL_ACTIONS:
        return make_env_spec(replace(config, full_action_space=True)), "all"
    raise ConfigError(
        f"the file has {layout.action_count} actions, but {env_id} has {spec.action_count} "
        f"({', '.join(spec.action_meanings)}): give --env=<the games it was trained on>."
    )


def _flags(layout: Layout, spec: EnvSpec, raw_reward: bool) -> dict[str, Any]:
    """Return the flags that decide the network and its inputs."""
    return {
        "env": spec.env_id,
        "model": layout.torso,
        "feature_out_layer_size": layout.feature_count,
        "normalise_pixels": False,  # it divides by 255
        "use_popart": layout.has_popart,
        "use_lstm": layout.lstm_layers if layout.lstm_layers > 1 else bool(layout.lstm_layers),
        **({"lstm_size": layout.lstm_size} if layout.lstm_size else {}),
        "use_last_action": layout.has_last_action,
        "use_last_reward": "raw"
        if layout.has_last_reward and raw_reward
        else layout.has_last_reward,
        "use_task_id": False,
        "grayscaling_frames": True,
        "frames_stacked": FRAMES_STACKED,
        "frame_scale_resolution": [HEIGHT, WIDTH],
        "skipped_frames": 4,
        "noop_threshold": 30,
        "episodic_life": True,
        "fire_reset": True,
    }


def _check(
    converted: Mapping[str, Tensor], weights: Mapping[str, Tensor], layout: Layout, spec: EnvSpec
) -> None:
    """Raise CheckpointError unless the weights are, tensor by tensor, those of our model."""
    config = ModelConfig(
        name=layout.torso,
        feature_count=layout.feature_count,
        normalise_pixels=False,
        use_lstm=bool(layout.lstm_size),
        lstm_size=layout.lstm_size or 1,
        lstm_layers=layout.lstm_layers or 1,
        use_last_action=layout.has_last_action,
        use_last_reward=layout.has_last_reward,
    )
    try:
        with torch.device("meta"):  # shapes alone: two small tensors can be of a huge network
            wanted = {name: t.shape for name, t in make_model(config, spec).state_dict().items()}
    except (RuntimeError, TypeError) as error:  # no tensor has so many numbers
        raise _unknown(weights, first_line(error)) from error
    got = {name: tensor.shape for name, tensor in converted.items()}
    wrong = [name for name in {**wanted, **got} if wanted.get(name) != got.get(name)]
    if wrong:
        names = shown_text(", ".join(wrong))
        raise _unknown(weights, f"{names} (by our names) are not as they should be")


def _progress(path: Path, content: Mapping[str, Any]) -> tuple[int, int]:
    """Return (agent steps, updates) of the training; zeros where the file does not say."""
    updates = int(_number(path, content, "scheduler_state_dict.last_epoch"))
    if "step" in _table(content, "stats"):
        return int(_number(path, content, "stats.step")), updates
    unroll, batch = (_number(path, content, f"flags.{n}") for n in ("unroll_length", "batch_size"))
    return int(min(updates * unroll * batch, MAX_WHOLE)), updates


def _table(content: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the table `part` beside the weights in the file; {} if there is none."""
    found = content.get(part)
    return found if isinstance(found, dict) else {}


def _text(table: Mapping[str, Any], key: str) -> str:
    """Return the text at a key; "" if there is none. A list could be without end as text."""
    found = table.get(key)
    return found if isinstance(found, str) else ""


def _number(
    path: Path, content: Mapping[str, Any], place: str, default: float = 0, most: float = MAX_WHOLE
) -> float:
    """Return the number in [0, most] at `<table>.<key>`, or the default if there is none.

    Raises:
      CheckpointError: if there is something else.
    """
    part, key = place.split(".")
    value: Any = _table(content, part).get(key, default)
    # NumPy's numbers are of the kind Real, too.
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise CheckpointError(
            f"{path} has a wrong {place}: expected a number in [0, {most}], got {shown(value)}."
        )
    return float(value)


if __name__ == "__main__":
    main(sys.argv[1:])
