"""What a sequence or a search may ask for, checked before its first run.

A folder or a YAML file may be somebody else's. It says what to train; it must not say which code to
run, where to write, or what of this machine to read. These things have to be typed:

* an environment, network, algorithm, sink or kind of replay of the form `module:name` runs the
  module's code: `--trust_env_module=True`, or e.g. `--env=module:Id`;
* weights that lie outside of a folder that is resumed and of the models that come with the
  program: `--trust_files=True`. A YAML file may name any: it is short enough to be read, and
  weights run no code;
* where runs are written is decided by multi_train.py alone, and what is only for one command (such
  as trust) is never taken from a file.

Below, runs are planned ones or the states of runs (`sequences.folder.RunState`), `typed` is what
`check_typed` returns, and `where` is the file that has the runs, for messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ritornello.agent.stored.checkpoint_folder import ON_HUB
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import PROJECT_ROOT, typed_path
from ritornello.flags.names import flag_of, named_values
from ritornello.flags.parsing import check_trust, check_values, trust_typed
from ritornello.sequences.forms import MAX_PROBLEMS_SHOWN
from ritornello.sequences.plan import PlannedRun, goes_on, is_test, source_of

SHIPPED_MODELS = PROJECT_ROOT / "models"
# multi_train.py decides these for every run; nobody else may, not even by typing them.
DECIDED_HERE = {
    "op_mode": "a run is trained, resumed or tested as the sequence says",
    "results_dir": "runs are written into the sequence's folder (multi_train.py --results_dir)",
    "run_name": "runs are named after their group in the sequence",
    "machine_share": "give multi_train.py --at_once, or the sequence at_once",
    "flags_file": "write those flags under `base` of the sequence",
    "multi_train_overrides": "it is how the flags of the sequence reach a run",
}
# These may be typed, but never come from a file, nor are they kept in one.
ONLY_TYPED = ("trust_env_module", "new_run_folder", "ray_address")


def check_typed(arguments: Sequence[str]) -> dict[str, str]:
    """Check the flags of main.py that were typed; return flag -> text.

    Raises:
      ConfigError: if a flag is unknown or is decided here, or has an invalid value.
    """
    typed = named_values(arguments)
    for name, reason in DECIDED_HERE.items():
        if name in typed:
            raise ConfigError(f"--{name} cannot be given to the runs of a sequence: {reason}.")
    problems = check_values(typed)
    if problems:
        raise ConfigError("no run can have what was typed:\n" + "\n".join(problems))
    trust_typed(typed)
    return typed


def keepable(arguments: Sequence[str]) -> list[str]:
    """Return the typed arguments that may be kept in a file for a later --resume."""
    return [f"--{k}={v}" for k, v in named_values(arguments).items() if k not in ONLY_TYPED]


def to_type_again(arguments: Sequence[str]) -> list[str]:
    """Return the typed arguments that --resume does not take from a file."""
    typed = named_values(arguments)  # a value that names a module has a colon
    return [f"--{k}={v}" for k, v in typed.items() if k in ONLY_TYPED or ":" in v]


def check_runs(runs: Sequence[PlannedRun], typed: Mapping[str, str], where: str) -> None:
    """Check the runs of a YAML file, at least one, so that a mistake is found before the first run.

    Raises:
      ConfigError: if a run has an unknown flag, an invalid value or one that a file may not have,
        or differs from the others in a flag that was typed.
    """
    problems: dict[str, None] = {}
    for run in {run.group: run for run in runs}.values():  # seeds apart, they are the same
        # The name of another run stands for a path that is not known yet.
        flags = {**run.flags, **({"load_model_url": "x"} if source_of(run.flags) else {})}
        for line in check_values(flags):
            problems[f"  {line} (in {shown_text(run.group)})"] = None
        if len(problems) >= MAX_PROBLEMS_SHOWN:
            break
    if problems:
        lines = "\n".join(list(problems)[:MAX_PROBLEMS_SHOWN])
        raise ConfigError(f"{where} gives flags that no run can have:\n{lines}")
    for run in runs:
        _check_flags(run.flags, f"{where}: {shown(run.group)}")
    check_not_overridden(runs, typed, where)


def check_not_overridden(runs: Sequence[Any], typed: Mapping[str, str], where: str) -> None:
    """Raise ConfigError if a typed flag, which wins, is one that tells the runs from each other.

    Otherwise the names of the runs would be wrong, and equal runs would be compared.
    """
    trained = [run for run in runs if not is_test(run.flags)]  # a test says little by itself
    for name, text in typed.items():
        differs = any(run.flags.get(name) != trained[0].flags.get(name) for run in trained)
        is_in_a_name = any(name in _flags_in(run.group) for run in runs)
        is_of_others = name == "load_model_url" and any(source_of(run.flags) for run in runs)
        if differs or is_in_a_name or is_of_others or name == "seed":
            raise ConfigError(
                f"--{name}={shown_text(text)} would hold for every run, but the runs of {where} "
                f"are told from each other by their {name}: leave it out, or change the file."
            )


def _flags_in(group: str) -> set[str]:
    """Return the flags that the name of a group tells, where they may be spelt otherwise."""
    words = (word.partition("=") for word in group.split())
    return {flag_of(name) for name, equals, _ in words if equals}


def check_saved(
    folder: Path, runs: Sequence[Any], kept: Sequence[str], where: str, *, trust_files: bool
) -> None:
    """Raise ConfigError if the folder of a sequence or a search asks for what a file may not.

    `kept` are the arguments that its file gives to every run. With `trust_files`, weights may lie
    outside of the folder.
    """
    for name, flags in _named(runs, kept):
        _check_flags(flags, f"{where}: {shown(name)}")
    for name, url in () if trust_files else weights_outside(folder, runs, kept):
        raise ConfigError(
            f"{where}: {shown(name)} starts from {shown(url)}, which is not in the folder "
            f"{shown_text(str(folder))}. If it is your own, add --trust_files=True."
        )
    for path in (*folder.glob("*"), *folder.glob("*/*"), *folder.glob("*/*/*")):
        if path.is_symlink() and not is_inside(path, (folder,)):
            raise ConfigError(
                f"{shown_text(str(path))} is a link that leads out of the folder: what is written "
                "there would be written elsewhere. Remove it."
            )


def weights_outside(
    folder: Path, runs: Sequence[Any], kept: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (group, path) of weights outside of a folder from which its runs start."""
    urls = [(name, flags.get("load_model_url")) for name, flags in _named(runs, kept)]
    return [(name, url) for name, url in urls if isinstance(url, str) and _leads_out(url, folder)]


def _named(runs: Sequence[Any], kept: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (name, flags) of what every run is given, and of each run."""
    return [("arguments", named_values(kept)), *((run.group, run.flags) for run in runs)]


def _check_flags(flags: Mapping[str, Any], where: str) -> None:
    for name in (*DECIDED_HERE, *ONLY_TYPED):
        if name in flags and not (name == "op_mode" and (is_test(flags) or goes_on(flags))):
            raise ConfigError(f"{where} sets the flag {name}, which no file may. Remove it there.")
    url = flags.get("load_model_url")
    if url is not None and not isinstance(url, str) and source_of(flags) is None:
        raise ConfigError(f"{where} has load_model_url {shown(url)}, expected a path.")
    check_trust(flags, lambda name: where)


def _leads_out(url: str, folder: Path) -> bool:
    """Whether weights are on a hub or lie outside of a folder and of the shipped models."""
    path = typed_path(os.path.expanduser(url))
    return url.startswith(ON_HUB) or not is_inside(path, (folder, SHIPPED_MODELS))


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path lies in one of some folders, when every link has been followed."""
    try:
        resolved = path.resolve()
        return any(resolved.is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, RuntimeError, ValueError):  # a circle of links, or no path at all
        return False
