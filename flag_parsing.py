"""From a command line to resolved flags.

`parse(argv)` is a pure function of its arguments (and of the checkpoint that they name): importing
or calling it starts nothing and builds no environment. Layers, highest first:

    command line  >  multi_train  >  preset  >  checkpoint  >  family of the environment  >  default

All mistakes are collected into one `ConfigError`, which `main.py` prints before any process or
folder is made.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_settings import CliSettingsSource, SettingsError

from core.errors import ConfigError
from option_flags import Flags
from presets import PRESETS, preset_flags
from wrappers.games import expand_games

# Flags of the platform that this one succeeds that no longer make sense, and what to do instead.
REMOVED_FLAGS: dict[str, str] = {
    "actions_count": "the number of actions is read from --env; see --full_action_space",
    "observation_shape": "it follows from --env, --frames_stacked, --frame_scale_resolution",
    "use_additional_scaling_FC_layer": "features are the output of the model's torso",
    "cache_sample_size": "the cache always composes whole batches; see --caching_threads",
    "replay_writer_queue_size": "there is no such queue any more; see --shared_queue_size",
    "verbose_worker_out_int": "progress is shown by time; see --log_interval_s",
    "verbose_learner_out_int": "progress is shown by time; see --log_interval_s",
    "worker_verbose": "what workers do is in train.log; their deaths are always shown",
    "background_save": "statistics are always written while running; see --log_interval_s",
}

# Values that belong to one invocation and never come back from a checkpoint.
NOT_FROM_CHECKPOINT = {
    "op_mode", "load_model_url", "load_optimizer_save", "load_replay", "new_run_folder",
    "results_dir", "training_seconds", "stop_at_mean_return", "render", "greedy",
    "test_episode_count", "test_all_checkpoints", "debug", "basic_verbose", "auto_restart",
}  # fmt: skip


# Nor does this where a new run starts from the weights of another: it plays other games.
NOT_FROM_START = {"seed"}


def parse(
    argv: Sequence[str],
    load_checkpoint_flags: Callable[[str], Mapping[str, Any]] | None = None,
    family_of: Callable[[str], str] | None = None,
) -> Flags:
    """Resolve the flags of one invocation.

    Args:
      argv: the command line without the program's name.
      load_checkpoint_flags: url -> the flags stored in that checkpoint. Not called in a new run
        that starts from no other's weights.
      family_of: environment id -> name of the preset that such environments use anyway.

    Raises:
      ConfigError: with every problem found, one a line.
    """
    cli, multi_train = _split(_normalise(argv))
    said = {**multi_train, **cli}
    checkpoint: dict[str, Any] = {}
    url, mode = said.get("load_model_url"), said.get("op_mode", "train")
    if url and load_checkpoint_flags is not None:
        known = set(Flags.model_fields) - (NOT_FROM_START if mode == "train" else set())
        checkpoint = {
            name: value
            for name, value in load_checkpoint_flags(url).items()
            # A flag of another version of the program is not an error of this user.
            if name in known and name not in NOT_FROM_CHECKPOINT
        }
        if "env" in said and _env_ids(str(said["env"])) != checkpoint.get("env"):
            checkpoint.pop("env_shares", None)
    # A preset that a checkpoint remembers is in its other flags already.
    preset = said.get("preset")
    chosen = {**checkpoint, **(preset_flags(str(preset)) if preset else {}), **said}
    env = str(chosen.get("env", Flags.model_fields["env"].default))
    family = PRESETS[family_of(_env_ids(env))].flags if family_of is not None else {}
    try:
        return Flags(**{**family, **chosen})
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def _env_ids(env: str) -> str:
    """Return the games that `env` means, or what was typed if it makes no sense (told later)."""
    try:
        return expand_games(env)
    except ConfigError:
        return env


def _normalise(argv: Sequence[str]) -> list[str]:
    """Check every name, accept --a-b for --a_b and `--name value`; return `--name=value` tokens."""
    known = {*Flags.model_fields, "multi_train_overrides"}
    tokens, problems = [], []
    items = list(argv)
    while items:
        item = items.pop(0)
        if not item.startswith("--"):
            problems.append(f"{item!r} is not an option; options look like --name=value")
            continue
        name, equals, value = item[2:].partition("=")
        name = name.replace("-", "_")
        if name in REMOVED_FLAGS:
            problems.append(f"--{name} is gone: {REMOVED_FLAGS[name]}")
            if not equals and items and not items[0].startswith("--"):
                items.pop(0)
        elif name not in known:
            near = difflib.get_close_matches(name, sorted(known - {"multi_train_overrides"}), 3)
            hint = f"; did you mean {' or '.join('--' + n for n in near)}?" if near else ""
            problems.append(f"unknown option --{name}{hint} (--help lists all)")
            if not equals and items and not items[0].startswith("--"):
                items.pop(0)
        elif equals:
            tokens.append(f"--{name}={value}")
        elif items and not items[0].startswith("--"):
            tokens.append(f"--{name}={items.pop(0)}")
        else:
            problems.append(f"--{name} needs a value, e.g. --{name}={_example(name)}")
    if problems:
        raise ConfigError("\n".join(problems))
    return tokens


def _example(name: str) -> str:
    default = Flags.model_fields[name].default if name in Flags.model_fields else None
    return "True" if isinstance(default, bool) else str(default)


def _split(tokens: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (values of the command line, values of multi_train's overrides file)."""
    overrides: dict[str, Any] = {}
    prefix = "--multi_train_overrides="
    for token in tokens:
        if token.startswith(prefix):
            try:
                with open(token[len(prefix) :], encoding="utf-8") as file:
                    overrides = dict(json.load(file))
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot read {token}: {error}") from error
            unknown = sorted(set(overrides) - set(Flags.model_fields))
            if unknown:
                raise ConfigError(f"multi_train gives unknown options: {', '.join(unknown)}")
    arguments = [token for token in tokens if not token.startswith(prefix)]
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(
            Flags, cli_parse_args=arguments, cli_exit_on_error=False, cli_implicit_flags=False
        )
        return dict(source()), overrides
    except SettingsError as error:
        raise ConfigError(str(error)) from error


def _explain(error: ValidationError) -> str:
    """Turn pydantic's report into one line per problem: name, what was got, what was expected."""
    lines = []
    for problem in error.errors():
        message = problem["msg"].removeprefix("Value error, ")
        if problem["loc"]:
            name = str(problem["loc"][0])
            got = problem["input"]
            shown = "" if name == "replay_parameters" else f"={got}"
            lines.append(f"--{name}{shown}: {message[0].lower() + message[1:]}")
        else:
            lines.extend(message.split("\n"))
    return "\n".join(dict.fromkeys(lines))
