"""What an environment's own code raises, told in one line: which error, and where in that code.

Environments are code of the user, or of packages, that the program calls: their modules are
imported, they are made, reset and stepped. Whatever they raise there, the person in front of the
terminal wants to know three things: which environment, which error, which line of theirs.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ritornello.core.errors import ConfigError, EnvironmentFault, PlatformError
from ritornello.core.kept_settings import settings_kept
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import PACKAGE, PROJECT_ROOT
from ritornello.core.standard_error import told_while_waiting
from ritornello.wrappers.trusted_modules import written

PATIENCE_S = 30.0  # longer than it takes to make a large environment on a busy machine

# sys.exit() in an environment ends neither the learner nor a worker without a word.
RAISED: tuple[type[BaseException], ...] = (Exception, SystemExit)
_OURS = (str(PACKAGE), *(str(PROJECT_ROOT / name) for name in ("agent", "wrappers")))
_INSTALLED = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


@contextmanager
def told_in_one_line(env_id: str, doing: str) -> Iterator[None]:
    """Turn any exception in the body into a ConfigError, which ends a start with exit status 2."""
    try:
        yield
    except EnvironmentFault as fault:
        raise ConfigError(str(fault)) from fault
    except PlatformError:
        raise  # one of ours, which says all this already
    except RAISED as error:
        raise ConfigError(f"env {shown_text(env_id)} raised {describe(error, doing)}.") from error


@contextmanager
def told_if_slow(env_id: str) -> Iterator[None]:
    """Report on standard error where the environment's code is, if it does not return.

    Before workers are started nobody watches over an environment, and one that hangs would leave
    the user in front of an empty terminal. It is not ended, because loading may take long. The
    first line comes after PATIENCE_S seconds, and each later one after twice as long.
    """
    caller = threading.get_ident()

    def where(waited_s: float) -> str:
        return (
            f"env {shown_text(env_id)} is tried out, and has not come back for "
            f"{waited_s:.0f} s.{where_it_is(caller)} Still waiting; Ctrl-C ends it."
        )

    with told_while_waiting(where, PATIENCE_S):
        yield


def where_it_is(thread: int) -> str:
    """Return the sentence " It is in <line of the environment's code>."; "" if it is elsewhere."""
    frame = sys._current_frames().get(thread)
    place = _last_place(traceback.extract_stack(frame)) if frame is not None else ""
    return f" It is in {shown_text(place, 300)}." if place else ""


ENV_RULE = "Expected module:id, where importing the module registers the id with Gymnasium."


def import_module(name: str, asked: str, *, flag: str = "env", rule: str = ENV_RULE) -> None:
    """Import the module of `module:id`, so that it registers the id.

    For messages, `asked` is the whole name that the user has typed, `flag` the name of its flag,
    and `rule` a sentence on what is expected of the module.

    Raises:
      ConfigError: if the module cannot be imported, or raises an exception.
    """
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        stem = Path(name).name.removesuffix(".py")
        hint = (
            f" For the file {name}: PYTHONPATH=<its folder> and {written(flag, stem)}."
            if stem
            else ""
        )
        raise ConfigError(
            f"{flag} is {shown(asked)}, but {shown(name)} is not the name of a module. {rule}"
            f"{shown_text(hint, 400)}"
        )
    top = name.partition(".")[0]
    ours = PACKAGE / top
    # At the top of a clone they are found first.
    if ours.is_symlink() or ours.with_suffix(".py").is_symlink():
        raise ConfigError(
            f"{flag} is {shown(asked)}, but {shown(top)} is the name of a package of this program "
            f"({PROJECT_ROOT / top}): rename your module."
        )

    def failed(error: BaseException) -> ConfigError:
        told = describe(error, "while it was imported")
        return ConfigError(f"{flag} is {shown(asked)}, but module {shown(name)} raised {told}.")

    try:
        with settings_kept():
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise failed(error) from error  # something that it needs
        raise ConfigError(
            f"{flag} is {shown(asked)}, but module {shown(name)} cannot be imported: there is none "
            "of that name in the folder of this program or on PYTHONPATH; PYTHONPATH=. names the "
            f"folder in which you start. {rule}"
        ) from error
    except RAISED as error:
        raise failed(error) from error


def fault_of(where: str, error: BaseException) -> EnvironmentFault:
    """Return an exception of an environment's code, or of a check of it, as a fault at `where`."""
    wrong = str(error) if isinstance(error, PlatformError) else f"raised {describe(error)}."
    return EnvironmentFault(f"{where}: {wrong}")


def describe(error: BaseException, doing: str = "", *, hints: bool = True) -> str:
    """Return "NameError: name 'x' is not defined (my_envs.py, line 12: `return x`) <doing>".

    The `hints` that may follow are for environments.
    """
    try:
        text = str(error)
    except Exception:  # whoever writes an exception may get that wrong as well
        text = "(its message raises as well)"
    told = type(error).__name__ + (f": {shown_text(' '.join(text.split()), 300)}" if text else "")
    place = _place(error)
    where = f" ({shown_text(place, 300)})" if place else ""
    return f"{told}{where}{' ' * bool(doing)}{doing}{_hint(error, text) if hints else ''}"


def _place(error: BaseException) -> str:
    """Return file, line and text of the last line of the environment's own code, "" if unknown."""
    if isinstance(error, SyntaxError) and error.filename:
        return _line(error.filename, error.lineno, error.text)
    return _last_place(traceback.extract_tb(error.__traceback__))


def _last_place(frames: traceback.StackSummary) -> str:
    own = [frame for frame in frames if not frame.filename.startswith((*_OURS, "<"))]
    # Of a package's environment there is no better line than the package's.
    users = [frame for frame in own if not frame.filename.startswith(_INSTALLED)]
    chosen = users or [frame for frame in own if "/gymnasium/" not in frame.filename]
    chosen = [frame for frame in chosen if "importlib" not in frame.filename]
    return _line(chosen[-1].filename, chosen[-1].lineno, chosen[-1].line) if chosen else ""


def _line(filename: str, number: int | None, text: str | None) -> str:
    source = f": `{text.strip()}`" if text and text.strip() else ""
    return f"{filename}, line {number}{source}"


def _hint(error: BaseException, text: str) -> str:
    """Return a sentence on what to do about the commonest errors, "" for others."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"; install {error.name.split('.')[0]}, or choose another environment"
    is_inside = bool(_place(error))  # else it was raised where Gymnasium calls that code
    if isinstance(error, NotImplementedError) and not is_inside:
        called = traceback.extract_tb(error.__traceback__)[-1].name
        return f"; its class has no {called}() of its own (docs/your_own.md)"
    is_short_of = "required" in text and "argument" in text and not is_inside
    if isinstance(error, TypeError) and is_short_of:
        needs_mode = "'render_mode'" in text
        mode = "; give render_mode a default: def __init__(self, render_mode=None)"
        others = (
            "; give its arguments as JSON, e.g. --env_kwargs='{\"size\": 3}', or give them defaults"
        )
        return mode * needs_mode + others * (not needs_mode or text.count("'") > 2)
    if isinstance(error, TypeError) and "'render_mode'" in text:
        return "; to be shown, an environment must take render_mode when it is made"
    is_of_reset = "__init__" not in text and ("'seed'" in text or "'options'" in text)
    if isinstance(error, TypeError) and is_of_reset:
        return "; reset must take seed and options, as Gymnasium's environments do"
    if isinstance(error, TypeError) and "unexpected keyword argument" in text:
        return "; if it is of --env_kwargs, mend its name there, or leave it out"
    if isinstance(error, ValueError) and "values to unpack" in text and not is_inside:
        return (
            "; reset must return (observation, info), and step (observation, reward, terminated, "
            "truncated, info)"
        )
    return ""
