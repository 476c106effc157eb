"""From a command line to resolved flags.

`parse(argv)` is a function of its arguments (and of the checkpoint that they name): importing or
calling it starts nothing and builds no environment. All that it leaves behind is which modules of
environments were typed and may be imported (wrappers/trusted_modules.py). Layers, highest first:

    command line  >  multi_train  >  preset  >  checkpoint  >  family of the environment  >  default

All mistakes are collected into one `ConfigError`, which `main.py` prints before any process or
folder is made.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_settings import CliSettingsSource, SettingsError

from core.errors import ConfigError
from core.plain_data import cut, parse_json, read_text, shown, shown_text
from flags.group import is_of_this_command
from flags.parts import ALGORITHMS, NETWORKS, SINKS
from option_flags import Flags
from presets import PRESETS, preset_flags
from wrappers.env_kwargs import kwargs_text
from wrappers.games import expand_games
from wrappers.trusted_modules import (
    check_trusted,
    check_trusted_kwargs,
    trust_every_module,
    trust_kwargs,
    trust_modules_of,
)

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

REGISTRIES = (NETWORKS, ALGORITHMS, SINKS)  # of parts of a user's own, named by flags

# Values that belong to one invocation and never come back from a checkpoint.
NOT_FROM_CHECKPOINT = {
    name for name, field in Flags.model_fields.items() if is_of_this_command(field)
}

# Nor does this where a new run starts from the weights of another: it plays other games.
NOT_FROM_START = {"seed"}

MAX_PROBLEMS = 20  # lines of one error: more than that nobody reads
MAX_PROBLEM_LENGTH = 1000  # a line may list a whole set of games


def parse(
    argv: Sequence[str],
    load_checkpoint_flags: Callable[[str], Mapping[str, Any]] | None = None,
    family_of: Callable[[str, str], str] | None = None,
) -> Flags:
    """Resolve the flags of one invocation.

    Args:
      argv: the command line without the program's name.
      load_checkpoint_flags: url -> the flags stored in that checkpoint. Not called in a new run
        that starts from no other's weights.
      family_of: environment id and arguments (wrappers/env_kwargs.py) -> name of the preset that
        such environments use anyway.

    Raises:
      ConfigError: with every problem found, one a line. Or if a file names an environment of a
        module that was not typed, before anything is imported.
    """
    cli, multi_train = _split(named_values(argv))
    _trust(cli, multi_train)
    said = {**multi_train, **cli}
    checkpoint: dict[str, Any] = {}
    url, mode = said.get("load_model_url"), said.get("op_mode", "train")
    if isinstance(url, str) and url and load_checkpoint_flags is not None:
        known = set(Flags.model_fields) - (NOT_FROM_START if mode == "train" else set())
        checkpoint = {
            name: value
            for name, value in load_checkpoint_flags(url).items()
            # A flag of another version of the program is not an error of this user.
            if name in known and name not in NOT_FROM_CHECKPOINT
        }
        if "env" in said and _env_ids(str(said["env"])) != checkpoint.get("env"):
            checkpoint.pop("env_shares", None)
            checkpoint.pop("env_kwargs", None)
    # A preset that a checkpoint remembers is in its other flags already.
    preset = said.get("preset")
    chosen = {**checkpoint, **(preset_flags(str(preset)) if preset else {}), **said}
    env = _env_ids(str(chosen.get("env", Flags.model_fields["env"].default)))
    if env is not None:
        check_trusted(env, "the sequence" if "env" in multi_train else f"--load_model_url={url}")
    of_sequence = "env_kwargs" in multi_train and "env_kwargs" not in cli
    source = "the sequence" if of_sequence else f"--load_model_url={url}"
    check_trusted_kwargs(_env_kwargs(chosen), source)
    for registry in REGISTRIES:
        if registry is ALGORITHMS and chosen.get("op_mode") == "test":
            continue  # nothing is learned in a test
        source = "the sequence" if registry.flag in multi_train else f"--load_model_url={url}"
        registry.check_trusted(chosen.get(registry.flag), source)
    family: dict[str, Any] = {}
    if family_of is not None and env is not None:
        family = PRESETS[family_of(env, _env_kwargs(chosen))].flags
    try:
        return Flags(**{**family, **chosen})
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def _trust(cli: Mapping[str, Any], multi_train: Mapping[str, Any]) -> None:
    """Allow the environment modules that were typed; what multi_train hands over is from a file."""
    if "trust_env_module" in multi_train:
        raise ConfigError(
            "multi_train gives trust_env_module, which only the command line may: "
            "python multi_train.py --sequence=<name> -- --trust_env_module=True"
        )
    trust_modules_of(_env_ids(str(cli.get("env", ""))) or "")
    trust_kwargs(_env_kwargs(cli))
    for registry in REGISTRIES:
        trust_modules_of(str(cli.get(registry.flag, "")))
    try:
        if TypeAdapter(bool).validate_python(cli.get("trust_env_module", False)):
            trust_every_module()
    except ValidationError:
        pass  # told with the other mistakes


def _env_kwargs(values: Mapping[str, Any]) -> str:
    """Return what environments are made with; "" if it makes no sense (told later)."""
    try:
        return kwargs_text(values.get("env_kwargs", ""))
    except ConfigError:
        return ""


def _env_ids(env: str) -> str | None:
    """Return the games that `env` means, None if it makes no sense (told later)."""
    try:
        return expand_games(env)
    except ConfigError:
        return None


def named_values(argv: Sequence[str]) -> dict[str, str]:
    """Return flag -> text of a command line; accepts --a-b for --a_b, and `--name value`.

    Of a flag that is given twice the last one counts, whatever its type.

    Raises:
      ConfigError: with every name that is no flag, and every flag that has no value.
    """
    known = {*Flags.model_fields, "multi_train_overrides"}
    values: dict[str, str] = {}
    problems = []
    items = list(argv)
    while items:
        item = items.pop(0)
        if not item.startswith("--"):
            problems.append(f"{shown(item)} is not an option; options look like --name=value")
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
            problems.append(f"unknown option --{shown_text(name)}{hint} (--help lists all)")
            if not equals and items and not items[0].startswith("--"):
                items.pop(0)
        elif equals:
            values[name] = value
        elif items and not items[0].startswith("--"):
            values[name] = items.pop(0)
        else:
            problems.append(f"--{name} needs a value, e.g. --{name}={_example(name)}")
    if problems:
        raise ConfigError(_listed(problems))
    return values


def _example(name: str) -> str:
    default = Flags.model_fields[name].default if name in Flags.model_fields else None
    return "True" if isinstance(default, bool) else str(default)


def check_values(flags: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with each flag by itself, one line each; [] if nothing.

    What flags say together is not looked at: others may be added to them later.
    """
    try:
        Flags(**flags)
    except ValidationError as error:
        return [line for problem in error.errors() if (line := _alone(problem))]
    return []


def _split(values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (values of the command line, values of multi_train's overrides file)."""
    typed = dict(values)
    path = typed.pop("multi_train_overrides", None)
    overrides = {} if path is None else _read_overrides(path)
    arguments = [f"--{name}={value}" for name, value in typed.items()]
    try:
        source: CliSettingsSource[Any] = CliSettingsSource(
            Flags, cli_parse_args=arguments, cli_exit_on_error=False, cli_implicit_flags=False
        )
        return dict(source()), overrides
    except SettingsError as error:
        raise ConfigError(_listed(str(error).splitlines())) from error


def _read_overrides(path: str) -> dict[str, Any]:
    what = "the file of --multi_train_overrides"
    overrides = parse_json(read_text(path, what), what)
    if not isinstance(overrides, dict):
        raise ConfigError(f"{what} holds {shown(overrides)}, expected a mapping of flags.")
    unknown = sorted(set(overrides) - set(Flags.model_fields))
    if unknown:
        raise ConfigError(f"multi_train gives unknown options: {shown_text(', '.join(unknown))}")
    return overrides


def _explain(error: ValidationError) -> str:
    """Turn pydantic's report into one line per problem: name, what was got, what was expected."""
    lines = []
    for problem in error.errors():
        alone = _alone(problem)
        lines += [alone] if alone else problem["msg"].removeprefix("Value error, ").split("\n")
    return _listed(list(dict.fromkeys(lines)))


def _alone(problem: Any) -> str:
    """Return the line about one flag, "" if the problem is of several together."""
    if not problem["loc"]:
        return ""
    message = problem["msg"].removeprefix("Value error, ")
    name, got = str(problem["loc"][0]), problem["input"]
    typed = shown_text(got) if isinstance(got, str) else shown(got)
    value = "" if name == "replay_parameters" else f"={typed}"
    return f"--{name}{value}: {message[0].lower() + message[1:]}"


def _listed(problems: Sequence[str]) -> str:
    """Return one problem a line, at most a screen of them, each of bounded length."""
    lines = [cut(problem, MAX_PROBLEM_LENGTH) for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > len(lines):
        lines.append(f"... and {len(problems) - len(lines)} more")
    return "\n".join(lines)
