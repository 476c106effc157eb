"""From a command line to resolved flags.

`parse(argv)` builds no environment. It leaves behind which modules were typed and may be imported
(wrappers/trusted_modules.py). Layers, highest first:

    command line  >  multi_train  >  preset of these two  >  flags file  >  preset of the flags file
    >  checkpoint  >  family of the environment  >  default

All mistakes are collected into one `ConfigError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.project import sequence_command
from ritornello.flags.earlier import modern
from ritornello.flags.flags_file import FlagsFile, read_flags_file
from ritornello.flags.group import marks_of
from ritornello.flags.names import OVERRIDES, named_values, unknown_option
from ritornello.flags.options import Flags
from ritornello.flags.parts import ALGORITHMS, NETWORKS, REPLAY, SINKS, check_trusted_kinds
from ritornello.flags.presets import PRESETS, preset_flags, preset_names
from ritornello.flags.problems import explained, lines_of
from ritornello.replay.parameters import types_of_modules
from ritornello.wrappers.config import BackendChoice
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.games import expand_games
from ritornello.wrappers.trusted_modules import (
    check_trusted,
    check_trusted_kwargs,
    trust_every_module,
    trust_kwargs,
    trust_modules_of,
    without_modules,
)

# Values that belong to one invocation and never come back from a checkpoint.
NOT_FROM_CHECKPOINT = {
    name for name, field in Flags.model_fields.items() if marks_of(field).of_this_command
}

# What `--help` shows as `none` may be typed so: a value of these that says there is none.
MAY_BE_NONE = {
    name for name, field in Flags.model_fields.items() if NoneType in get_args(field.annotation)
}

# What environments that show vectors begin with: choices, and real numbers by V-trace or IMPACT.
OF_VECTORS = ("vector", "mujoco", "impact-mujoco")
# Who gives one of these means V-trace: IMPACT has nothing of the kind.
OF_V_TRACE = {
    *("policy_cloning_loss_weight", "value_cloning_loss_weight"),
    *("kl_mask_kind", "kl_div_threshold"),
}

CLIPPING = "reward_clipping_method"
REGISTRIES = (NETWORKS, ALGORITHMS, SINKS)  # of parts of a user's own, named by flags

# What does nothing where no game is of Atari.
OF_ATARI = {name for name, field in Flags.model_fields.items() if marks_of(field).of_atari}


def parse(
    argv: Sequence[str],
    load_checkpoint_flags: Callable[[str, str], Mapping[str, Any]] | None = None,
    family_of: Callable[[str, str, BackendChoice], str] | None = None,
) -> Flags:
    """Resolve the flags of one invocation.

    Args:
      argv: the command line without the program's name.
      load_checkpoint_flags: url, --op_mode -> the flags stored in that checkpoint. Not called in a new run
        with freshly initialised weights.
      family_of: environment id, arguments (wrappers/env_kwargs.py) and backend -> name of the preset
        that is the default for such environments.

    Raises:
      ConfigError: with every problem found, one a line. Or if a file names an environment of a
        module that was not typed, before anything is imported.
    """
    cli, multi_train = _split(named_values(argv))
    if "trust_env_module" in multi_train:
        raise ConfigError(
            "multi_train gives trust_env_module, which only the command line may: "
            f"{sequence_command()} --sequence=<name> --trust_env_module=True"
        )
    trust_typed(cli)
    said = {**multi_train, **cli}
    file = _flags_file(said)
    # A preset that a checkpoint or a run's flags.json remembers is in its other flags already.
    named = [*([] if file.is_record else _presets(file.values)), *_presets(said)]
    below = {} if file.is_record else _of_preset(file.values)
    preset = _of_preset(said)
    over = {**preset, **said}
    checkpoint: dict[str, Any] = {}
    url, mode = said.get("load_model_url"), said.get("op_mode", "train")
    if isinstance(url, str) and url and load_checkpoint_flags is not None:
        url = os.path.expanduser(url)
        checkpoint = {
            name: value
            for name, value in modern(load_checkpoint_flags(url, mode)).items()
            # A flag of another version of the program is not an error of this user.
            if name in Flags.model_fields and name not in NOT_FROM_CHECKPOINT
        }
        _forget_games(checkpoint, checkpoint, {**below, **file.values, **over})
        if mode == "test" and types_of_modules(checkpoint.get(REPLAY)):
            del checkpoint[REPLAY]  # nothing is learned in a test, so nobody's code is needed
    _forget_games(file.values, {**below, **file.values}, over)
    layers = (checkpoint, below, file.values, preset, said)
    chosen = _merged(*layers)
    env = _env_ids(str(chosen.get("env", Flags.model_fields["env"].default)))
    saved = shown_text(str(url))
    check_trust(
        chosen,
        lambda name: (
            "the sequence" if name in multi_train else file.where if name in file.values else saved
        ),
    )
    family: dict[str, Any] = {}
    if family_of is not None and env is not None:
        name = family_of(env, _env_kwargs(chosen), _env_backend(chosen))
        family = dict(_first_flags(name, named, chosen))
        if "," in env:  # what is usual in one game says nothing of another
            family.pop("normalise_vectors", None)
    if family.get(CLIPPING) == "none":  # a preset says how rewards are clipped, not whether
        for each in (below, preset):
            each.pop(CLIPPING, None)
    try:
        return Flags(**_merged(family, *layers))
    except ValidationError as error:
        from_file = {name: file.where for name in file.values if name not in over}
        raise ConfigError(explained(error, from_file)) from error


def _flags_file(said: Mapping[str, Any]) -> FlagsFile:
    path = said.get("flags_file")
    if not isinstance(path, str) or not path:
        return FlagsFile()
    known = {name: name in NOT_FROM_CHECKPOINT for name in Flags.model_fields}
    file = read_flags_file(os.path.expanduser(path), known)
    return replace(file, values=_none_read(file.values))


def _presets(values: Mapping[str, Any]) -> list[str]:
    preset = values.get("preset")
    return preset_names(str(preset)) if preset else []


def _first_flags(family: str, named: Sequence[str], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that an environment begins with; those that were `chosen` win over them.

    They are the preset's whose name is `family`. A preset of OF_VECTORS among those that were
    `named` takes its place, because flags of two of them would not fit together. Another algorithm
    than IMPACT, or a flag of OF_V_TRACE, begins with the flags of V-trace.
    """
    given = [name for name in named if name in OF_VECTORS]
    if given:
        family = given[-1]
    elif family == "impact-mujoco" and _means_v_trace(chosen):
        family = "mujoco"
    return PRESETS[family].flags


def _means_v_trace(chosen: Mapping[str, Any]) -> bool:
    if "algorithm" in chosen:
        return bool(chosen["algorithm"] != "impact")
    return not OF_V_TRACE.isdisjoint(chosen)


def _of_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    preset = values.get("preset")
    return preset_flags(str(preset)) if preset else {}


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers as one mapping; later ones win."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def _forget_games(values: dict[str, Any], own: Mapping[str, Any], above: Mapping[str, Any]) -> None:
    """Drop the shares of games from `values` if other games are played, and their arguments.

    Arguments are of each game: some of the games alone keep them. `values` are the flags of one
    source; without games of their own they are for any games. `own` are the same with those of a
    preset among them, which may name the games. `above` has all flags that win over `values`.
    """
    if not ("env" in own and "env" in above):
        return
    now, then = (without_modules(_env_ids(str(flags["env"])) or "") for flags in (above, own))
    if now != then:
        values.pop("env_shares", None)
    if not set(now) <= set(then):
        values.pop("env_kwargs", None)


def check_trust(values: Mapping[str, Any], source: Callable[[str], str]) -> None:
    """Raise ConfigError if a file names code to be run, or gives texts to an environment.

    `values` are flags, some of them from files; `source` returns, for messages, the file that has a
    flag.
    """
    env = _env_ids(str(values.get("env", Flags.model_fields["env"].default)))
    if env is not None:
        check_trusted(env, source("env"))
    check_trusted_kwargs(_env_kwargs(values), source("env_kwargs"))
    check_trusted_kinds(values.get(REPLAY), source(REPLAY))
    for registry in REGISTRIES:
        # Nothing is learned in a test.
        if registry is not ALGORITHMS or values.get("op_mode") != "test":
            registry.check_trusted(values.get(registry.flag), source(registry.flag))


def trust_typed(typed: Mapping[str, Any]) -> None:
    """Allow the modules of parts that were typed on the command line."""
    trust_modules_of(_env_ids(str(typed.get("env", ""))) or "")
    trust_kwargs(_env_kwargs(typed))
    for registry in REGISTRIES:
        trust_modules_of(str(typed.get(registry.flag, "")))
    for kind in types_of_modules(typed.get(REPLAY)):
        trust_modules_of(kind)
    try:
        if TypeAdapter(bool).validate_python(typed.get("trust_env_module", False)):
            trust_every_module()
    except ValidationError:
        pass  # told with the other mistakes


def _env_kwargs(values: Mapping[str, Any]) -> str:
    """Return the arguments of environments; "" if they are invalid (reported later)."""
    try:
        return kwargs_text(values.get("env_kwargs", ""))
    except ConfigError:
        return ""


def _env_backend(values: Mapping[str, Any]) -> BackendChoice:
    """Return the backend of environments; "auto" if it is invalid (reported later)."""
    backend = values.get("env_backend")
    return next((known for known in get_args(BackendChoice) if known == backend), "auto")


def _env_ids(env: str) -> str | None:
    """Return the games that `env` means; None if it is invalid (reported later)."""
    try:
        return expand_games(env)
    except ConfigError:
        return None


def idle_rules(flags: Flags, shows_images: bool) -> list[str]:
    """Return the flags that ask for rules of Atari, in a run without an Atari game.

    `shows_images` says whether its environments show images; others are not stacked either.
    """
    rules = OF_ATARI if shows_images else OF_ATARI | {"frames_stacked"}
    usual = PRESETS["image" if shows_images else "vector"].flags
    return [
        name
        for name, field in Flags.model_fields.items()
        if name in rules and getattr(flags, name) != usual.get(name, field.default)
    ]


def check_values(flags: Mapping[str, Any]) -> list[str]:
    """Return the problems of each flag by itself, one line each; [] if there are none.

    Flags are not checked together, because others may be added to them later. Nor is replay of a
    user's own kind: its keys are known to its module, which only a run imports.
    """
    flags = modern(flags)
    unknown = [unknown_option(name) for name in flags if name not in Flags.model_fields]
    if unknown:
        return unknown
    if types_of_modules(flags.get(REPLAY)):
        flags = {name: value for name, value in flags.items() if name != REPLAY}
    from ritornello.wrappers.env_ids import (
        problems_of_ids,  # it takes seconds to import, and a run has it
    )

    env = flags.get("env")
    ids = _env_ids(env) if isinstance(env, str) else None
    problems = problems_of_ids(ids) if ids else []
    try:
        _of_preset(flags)
    except ConfigError as error:
        problems.append(str(error))
    try:
        Flags(**flags)
    except ValidationError as error:
        problems += [line for flag, line in lines_of(error) if flag]
    except ConfigError as error:
        if REPLAY not in flags:
            raise
        others = {name: value for name, value in flags.items() if name != REPLAY}
        return [f"--{REPLAY}: {error}", *check_values(others)]
    return problems


def _split(values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (values of the command line, values of multi_train's overrides file)."""
    path = values.get(OVERRIDES)
    overrides = {} if path is None else _read_overrides(path)
    typed = modern(values, _of_preset({**overrides, **values}))
    typed.pop(OVERRIDES, None)
    return _none_read(typed), _none_read(overrides)


def _none_read(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with None in place of the word for it, in flags that may have none."""
    return {
        name: None if name in MAY_BE_NONE and str(value).lower() in ("none", "null") else value
        for name, value in values.items()
    }


def _read_overrides(path: str) -> dict[str, Any]:
    what = f"the file of --{OVERRIDES}"
    overrides = parse_json(read_text(path, what), what)
    if not isinstance(overrides, dict):
        raise ConfigError(f"{what} holds {shown(overrides)}, expected a mapping of flags.")
    overrides = modern(overrides, _of_preset(overrides))
    unknown = sorted(set(overrides) - set(Flags.model_fields))
    if unknown:
        raise ConfigError(f"multi_train gives unknown options: {shown_text(', '.join(unknown))}")
    if "flags_file" in overrides:
        raise ConfigError("multi_train gives flags_file, which only the command line may")
    return overrides
