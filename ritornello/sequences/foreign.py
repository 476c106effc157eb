"""What a sequence may not ask for when it comes from a file, however well-formed it is.

A folder or a YAML file may be somebody else's. It says what to train; it must not say which code to
run, where to write, or what of this machine to read. These things have to be typed:

* an environment of the form `module:Id` runs the module's code, and so do a network and an
  algorithm of the form `module:name`: `-- --trust_env_module=True`, or `-- --env=module:Id`;
* weights that lie outside of the sequence's own folder and of the models that come with the
  program: `--trust_files=True`;
* where runs are written is decided by multi_train.py alone, and what is only for one command (such
  as trust) is never taken from a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import PROJECT_ROOT
from ritornello.flags.parsing import check_values, named_values
from ritornello.replay.parameters import types_of_modules
from ritornello.sequences.plan import PlannedRun, goes_on, is_test, source_of

SHIPPED_MODELS = PROJECT_ROOT / "models"
# multi_train.py decides these for every run; nobody else may, not even by typing them.
DECIDED_HERE = {
    "op_mode": "a run is trained, resumed or tested as the sequence says",
    "results_dir": "runs are written into the sequence's folder (multi_train.py --results_dir)",
    "run_name": "runs are named after their group in the sequence",
    "agent_count": "give multi_train.py --at_once, or the sequence at_once",
    "agent_number": "runs at the same time are numbered by multi_train.py",
    "flags_file": "write those flags under `base` of the sequence",
    "multi_train_overrides": "it is how the flags of the sequence reach a run",
}
# Flags whose value may name a module: what is found in it, in words.
NAMING_MODULES = {
    "env": "environment",
    "model": "network",
    "algorithm": "algorithm",
    "sink": "sink",
    "replay_parameters": "kind of replay",
}
# These may be typed, but never come from a file, nor are they kept in one.
ONLY_TYPED = (
    *("trust_env_module", "debug_faults", "new_run_folder"),
    *("ray_address", "ray_insecure"),
)


def check_typed(arguments: Sequence[str]) -> dict[str, str]:
    """Check what was typed after `--`; return flag -> text.

    Raises:
      ConfigError: if a flag is unknown or is decided here, or no run can have its value.
    """
    typed = named_values(arguments)
    for name, reason in DECIDED_HERE.items():
        if name in typed:
            raise ConfigError(f"--{name} cannot be given to the runs of a sequence: {reason}.")
    problems = check_values(typed)
    if problems:
        raise ConfigError("no run can have what was typed:\n" + "\n".join(problems))
    return typed


def keepable(arguments: Sequence[str]) -> list[str]:
    """Return the typed arguments that may be kept in sequence.json for a later --resume."""
    return [f"--{k}={v}" for k, v in named_values(arguments).items() if k not in ONLY_TYPED]


def check_plan(runs: Iterable[PlannedRun], typed: Mapping[str, str], where: str) -> None:
    """Raise ConfigError if the runs of a YAML file ask for what a file may not.

    Args:
      runs: all runs of the plan.
      typed: flag -> text of what was typed, result of `check_typed`.
      where: the file, for messages.
    """
    for run in runs:
        _check_flags(run.flags, typed, f"{where}: {shown(run.group)}")


def check_saved(
    folder: Path,
    runs: Iterable[Any],
    kept: Sequence[str],
    typed: Mapping[str, str],
    *,
    trust_files: bool,
) -> None:
    """Raise ConfigError if a sequence.json asks for what a file may not.

    Args:
      folder: folder of the sequence.
      runs: the states of its runs (`sequences.folder.RunState`).
      kept: the arguments that the file gives to every run.
      typed: flag -> text of what this command gives, result of `check_typed`.
      trust_files: whether weights may lie outside of the folder.
    """
    where = shown_text(str(folder / "sequence.json"))
    arguments = named_values(kept)
    for name in (*DECIDED_HERE, *ONLY_TYPED):
        if name in arguments:
            raise ConfigError(f"{where} gives --{name}, which no file may. Remove it there.")
    _check_flags(arguments, typed, f"{where}: arguments")
    for run in runs:
        _check_flags(run.flags, typed, f"{where}: {run.name}")
        check_place(folder, run.name)
    if not trust_files:
        of_runs = [(run.name, run.flags) for run in runs]
        check_weights(folder, [("arguments", arguments), *of_runs], where)


def check_weights(folder: Path, flags: Iterable[tuple[str, Mapping[str, Any]]], where: str) -> None:
    """Raise ConfigError if a run would start from weights outside of the folder that it is in.

    Args:
      folder: folder of the sequence, or of the search.
      flags: (name, flags) of each run.
      where: the file that holds them, for messages.
    """
    for name, of_run in flags:
        url = of_run.get("load_model_url")
        # A run is started in the folder of the program, and looks for its weights from there.
        if isinstance(url, str) and not is_inside(PROJECT_ROOT / url, (folder, SHIPPED_MODELS)):
            raise ConfigError(
                f"{where}: {shown_text(name)} starts from {shown(url)}, which is not in the folder "
                f"{shown_text(str(folder))}. If it is your own, add --trust_files=True."
            )


def _check_flags(flags: Mapping[str, Any], typed: Mapping[str, str], where: str) -> None:
    for name in (*DECIDED_HERE, *ONLY_TYPED):
        if name in flags and not (name == "op_mode" and (is_test(flags) or goes_on(flags))):
            raise ConfigError(f"{where} sets the flag {name}, which no file may. Remove it there.")
    url = flags.get("load_model_url")
    if url is not None and not isinstance(url, str) and source_of(flags) is None:
        raise ConfigError(f"{where} has load_model_url {shown(url)}, expected a path.")
    for name, noun in NAMING_MODULES.items():
        part = _naming(name, flags.get(name))
        if isinstance(part, str) and ":" in part and not _is_trusted(name, part, typed):
            raise ConfigError(
                f"{where} has the {noun} {shown(part)}, and to find it the code of a module would "
                "be run, which a file may not ask for. If it is your own, add "
                "-- --trust_env_module=True"
            )


def _naming(name: str, value: Any) -> Any:
    """Return the part of a flag's value that may name modules, several joined with commas."""
    return ",".join(types_of_modules(value)) if name == "replay_parameters" else value


def _is_trusted(name: str, part: str, typed: Mapping[str, str]) -> bool:
    modules = {each.rpartition(":")[0] for each in part.split(",")} - {""}
    of_typed = _naming(name, typed.get(name, ""))
    named = {each.rpartition(":")[0] for each in of_typed.split(",")}
    trusts = typed.get("trust_env_module", "False").lower() in ("true", "1", "yes", "on")
    return trusts or modules <= named


def check_place(folder: Path, name: str) -> None:
    """Raise ConfigError if a run's folder, or one of those in it, leads out of `folder`.

    Args:
      folder: folder of the sequence, or of the search.
      name: of the run's folder in it.
    """
    path = folder / name
    for each in (path, *path.glob("*"), *path.glob("*/*")):
        if each.is_symlink() and not is_inside(each, (folder,)):
            raise ConfigError(
                f"{shown_text(str(each))} is a link that leads out of the folder "
                f"{shown_text(str(folder))}: what is written there would be written elsewhere. "
                "Remove it."
            )


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path lies in one of some folders, when every link has been followed."""
    try:
        resolved = path.resolve()
        return any(resolved.is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, RuntimeError, ValueError):  # a circle of links, or no path at all
        return False
