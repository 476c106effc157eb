"""What a call changes in the interpreter that it shares with its caller, and how that is undone.

A program may set up logging, PyTorch and signals as it likes, because it ends. A call of the
library must not leave anything of that behind, whether it returns or raises.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType

import torch

from ritornello.agent.run.run_log import CHATTY_LOGGERS
from ritornello.core import faults
from ritornello.core.errors import ConfigError
from ritornello.core.process_settings import environment_to_restart_with
from ritornello.wrappers.trusted_modules import trust_forgotten

_busy = threading.Lock()

WITHOUT_GUARD = """this script starts a training where worker processes would start it again:
each of them reads the script anew. Put what shall happen once below a line that only the script
itself passes:

    if __name__ == "__main__":
        train(...)"""


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Do something that at most one thread of an interpreter may do at a time.

    Args:
      what: name of the function, for the message.

    Raises:
      ConfigError: if another thread is at it.
    """
    if not _busy.acquire(blocking=False):
        raise ConfigError(
            f"{what} was called while another train or evaluate is going on in this interpreter. "
            "They would share its log and PyTorch's settings: wait for its end, or start "
            "python main.py as a process."
        )
    try:
        with left_as_it_was():
            yield
    finally:
        _busy.release()


@contextlib.contextmanager
def trusting_for_now() -> Iterator[None]:
    """Forget, after the block, which modules were typed in it.

    While another thread trains, nothing is forgotten: what it was told must stay.
    """
    if not _busy.acquire(blocking=False):
        yield
        return
    try:
        with trust_forgotten():
            yield
    finally:
        _busy.release()


@contextlib.contextmanager
def left_as_it_was() -> Iterator[None]:
    """Put back, after the block, all that a training changes in this process."""
    with contextlib.ExitStack() as undo:
        undo.enter_context(_logging_restored())
        undo.enter_context(_torch_restored())
        undo.enter_context(trust_forgotten())
        undo.enter_context(_settings_for_children())
        undo.callback(faults.load, None)
        yield


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in CHATTY_LOGGERS}
    level, handlers = root.level, list(root.handlers)
    shows_warnings = warnings.showwarning
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
        if shows_warnings is getattr(logging, "_showwarning", None):
            logging.captureWarnings(True)  # the caller had it so


@contextlib.contextmanager
def _torch_restored() -> Iterator[None]:
    threads, anomaly = torch.get_num_threads(), torch.is_anomaly_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    try:
        with torch.random.fork_rng(devices=()):  # layers draw their first weights from it
            yield
    finally:
        torch.set_num_threads(threads)
        torch.autograd.set_detect_anomaly(anomaly)
        torch.use_deterministic_algorithms(deterministic, warn_only=only_warns)
        torch.backends.cudnn.benchmark = benchmark


@contextlib.contextmanager
def _settings_for_children() -> Iterator[None]:
    """Give worker processes the settings with which main.py starts itself anew."""
    wanted = environment_to_restart_with() or {}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def check_script() -> None:
    """Raise ConfigError if the caller is a script that its own worker processes would run again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(WITHOUT_GUARD)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        is_module = frame.f_code.co_name == "<module>"
        if is_module and frame.f_globals.get("__name__") == "__main__":
            break
        frame = frame.f_back
    main_file = getattr(sys.modules.get("__main__"), "__file__", None)
    if frame is None or main_file is None or frame.f_code.co_filename != main_file:
        return  # a notebook or a prompt: processes find no script to read
    try:
        with open(main_file, encoding="utf-8") as file:
            script = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    if not _is_guarded(script, frame.f_lineno):
        raise ConfigError(WITHOUT_GUARD)


def _is_guarded(script: ast.Module, line: int) -> bool:
    """Whether a line of a script is below a question about `__name__`."""
    return any(
        isinstance(node, ast.If)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))
        for node in ast.walk(script)
    )
