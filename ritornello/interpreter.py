"""What a call changes in the interpreter that it shares with its caller, and how that is undone.

A program may set up logging, PyTorch and signals as it likes, because it ends. A call of the
library must not leave anything of that behind, whether it returns or raises.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import logging
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType

import gymnasium
import torch

from ritornello.agent.run.reporting import CHATTY_LOGGERS
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown
from ritornello.core.process_settings import environment_to_restart_with
from ritornello.core.project import main_command
from ritornello.flags.options import Flags
from ritornello.wrappers.trusted_modules import module_of, trust_forgotten

_busy = threading.Lock()
OF_PACKAGES = {"gymnasium", "ale_py", "minigrid", "vizdoom"}  # whose ids every process knows
PROBE_S = 300.0  # for a fresh process to import the script, on a busy machine as well
UNKNOWN = 3  # exit status of the probe

WITHOUT_GUARD = """this script starts a training where worker processes would start it again:
each of them reads the script anew. Put what shall happen once below a line that only the script
itself passes:

    if __name__ == "__main__":
        train(...)"""


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Let one thread of this interpreter run the block; undo its changes of settings after it.

    `what` is the name of the function, for the message.

    Raises:
      ConfigError: if another thread is in such a block.
    """
    if not _busy.acquire(blocking=False):
        raise ConfigError(
            f"{what} was called while another train or evaluate is going on in this interpreter. "
            "They would share its log and PyTorch's settings: wait for its end, or start "
            f"{main_command()} as a process."
        )
    try:
        with left_as_it_was():
            yield
    finally:
        _busy.release()


@contextlib.contextmanager
def trusting_for_now() -> Iterator[None]:
    """Forget, after the block, which modules were typed in it.

    While another thread trains, nothing is forgotten, because its modules must stay trusted.
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
    """Restore, after the block, all that a training changes in this process."""
    with contextlib.ExitStack() as undo:
        undo.enter_context(_logging_restored())
        undo.enter_context(_torch_restored())
        undo.enter_context(trust_forgotten())
        undo.enter_context(_settings_for_children())
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
    if main_file.startswith("<"):
        raise ConfigError(
            "the script comes from the standard input, where worker processes cannot read it: "
            "write it into a file."
        )
    try:
        with open(main_file, encoding="utf-8") as file:
            script = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    if not _is_guarded(script, frame.f_lineno):
        raise ConfigError(WITHOUT_GUARD)


def check_known_to_workers(flags: Flags) -> None:
    """Raise ConfigError if a game of a training is registered only here, and workers play it.

    Workers are fresh processes: they import the script again, but nothing below its guard, nothing
    that was typed in a notebook, and no module that was imported there.
    """
    games = flags.env.split(",")
    own = [name for name in games if is_of_the_caller(name)]
    if flags.reproducible or not own:
        return
    context = multiprocessing.get_context("spawn")
    probe = context.Process(target=_leave_if_unknown, args=(games, own), daemon=True)
    probe.start()
    probe.join(PROBE_S)
    if probe.exitcode == UNKNOWN:
        raise ConfigError(
            f"env is {shown(flags.env)}, which is registered in this process only, and worker "
            "processes would not find it. Put the class and its gymnasium.register into a module "
            f'beside the script, and give env="<module>:{own[0]}"; or let it play here: '
            "reproducible=True."
        )
    probe.kill()


def is_of_the_caller(env_id: str) -> bool:
    """Whether a plain id is registered, but not by Gymnasium or a package that it knows of."""
    spec = gymnasium.registry.get(env_id)
    if spec is None:  # or named `module:id`
        return False
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    return module.partition(".")[0] not in OF_PACKAGES


def _leave_if_unknown(games: Sequence[str], own: Sequence[str]) -> None:
    """Look for the games in order, as a worker does: a module may register those after it."""
    for name in games:
        if module := module_of(name):
            importlib.import_module(module)
        elif name in own and name not in gymnasium.registry:
            sys.exit(UNKNOWN)


def _is_guarded(script: ast.Module, line: int) -> bool:
    """Whether a line of a script is below a question about `__name__`."""
    return any(
        isinstance(node, ast.If)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))
        for node in ast.walk(script)
    )
