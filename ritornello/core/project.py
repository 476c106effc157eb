"""Where this copy of the program lies: a clone, or an installed package."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]  # the folder of `ritornello`
IMPORT_ROOT = PACKAGE.parent  # `import ritornello` finds it here
IS_CLONE = (IMPORT_ROOT / "option_flags.py").is_file()
PROJECT_ROOT = IMPORT_ROOT if IS_CLONE else PACKAGE  # the folder of main.py
MAIN_PROGRAM = PROJECT_ROOT / "main.py"
# How command lines begin in files that are passed on; `main_command` is for this shell alone.
PLAIN_MAIN, PLAIN_SEQUENCE = (
    ("python main.py", "python multi_train.py")
    if IS_CLONE
    else ("ritornello", "ritornello sequence")
)


def as_typed(path: Path) -> str:
    """Return a path as short as it can be typed here: relative if it lies in this directory."""
    with contextlib.suppress(OSError):  # the directory was removed
        if path.is_relative_to(Path.cwd()):
            return str(path.relative_to(Path.cwd()))
    return str(path)


def typed_path(typed: Path | str) -> Path:
    """Return where a path leads: `models/<name>` may be the one that comes with the program."""
    path = Path(typed)
    is_shipped = path.parts[:1] == ("models",) and not os.path.lexists(path)
    return PROJECT_ROOT / path if is_shipped else path


def python_command() -> str:
    """Return how this interpreter is started from the shell in which the user works.

    That is "python" where the search path leads to it, as in an environment that is activated.
    """
    folder = os.path.dirname(sys.executable)
    for name in ("python", "python3"):
        if os.path.dirname(os.path.abspath(shutil.which(name) or "/")) == folder:
            return name
    return as_typed(Path(sys.executable))


def main_command(*modules: str) -> str:
    """Return the beginning of a command line, as typed here, that runs main.py.

    It names the folder of the `modules` that the command needs where main.py would not look for
    them: `python -m`, a script and a notebook find what lies beside them.
    """
    folder = _found_beside_script(filter(None, modules))
    if folder is not None:
        others = ":$PYTHONPATH" if os.environ.get("PYTHONPATH") else ""
        return f"PYTHONPATH={shlex.quote(as_typed(folder))}{others} {main_command()}"
    if not IS_CLONE:
        found = os.path.abspath(shutil.which("ritornello") or "/")
        is_own = os.path.dirname(found) == os.path.dirname(sys.executable)
        return "ritornello" if is_own else f"{python_command()} -m ritornello"
    return f"{python_command()} {as_typed(MAIN_PROGRAM)}"


def _found_beside_script(modules: Iterable[str]) -> Path | None:
    """Return the folder in which only this script finds modules that lie in it, or None."""
    folder = Path(sys.path[0]).resolve()
    found = [PROJECT_ROOT if IS_CLONE else Path.cwd()]  # where main.py looks
    found += [Path(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if any(path.resolve() == folder for path in found):
        return None
    names = [name.partition(".")[0] for name in modules]
    lies_there = any((folder / f"{n}.py").is_file() or (folder / n).is_dir() for n in names)
    return folder if lies_there else None


def sequence_command() -> str:
    """Return the beginning of a command line, as typed here, that runs multi_train.py."""
    if not IS_CLONE:
        return f"{main_command()} sequence"
    return f"{python_command()} {as_typed(PROJECT_ROOT / 'multi_train.py')}"


def install_extra(name: str) -> str:
    """Return the command that installs an extra of pyproject.toml into this environment."""
    return f"pip install -e '.[{name}]'" if IS_CLONE else f"pip install 'ritornello[{name}]'"


def import_extra(module: str, extra: str, wanted_by: str) -> Any:
    """Import and return a module that an extra of pyproject.toml brings.

    Raises:
      ConfigError: if it is not installed; `wanted_by`, such as "--tune", begins the message.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{wanted_by} needs a package that is not installed: {install_extra(extra)}"
        ) from error


def main_program() -> list[str]:
    """Return the beginning of a command line that runs main.py with this interpreter.

    An installed one is run as a module: a file's folder would come first on `sys.path`, where its
    `core` and `metrics` hide modules of the user with these names.
    """
    return [sys.executable, *([str(MAIN_PROGRAM)] if IS_CLONE else ["-m", "ritornello.main"])]
