"""Settings of this process that code of the user may change, and that the program needs.

A module that registers an environment may configure logging, change the working directory or set
torch's default dtype, and so may the environment when it is made. In a program of the user's own
nothing is wrong with that. Here it would silence the log, write results into another folder or give
the learner another network than the workers have.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

OWN_LOGGERS = "ritornello"


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Restore, after the block, the settings that a user's code has changed in it.

    They are the working directory, standard streams, recursion limit, filters of warnings, logging,
    and torch's default dtype, default device and gradient mode. core/stop_signals.py restores
    signal handlers.
    """
    root: Any = logging.getLogger()
    with warnings.catch_warnings(), contextlib.ExitStack() as put_back:
        put_back.callback(_put_torch_back, _settings_of_torch())
        put_back.callback(revive_loggers)
        put_back.callback(logging.disable, root.manager.disable)
        put_back.callback(logging.setLogRecordFactory, logging.getLogRecordFactory())
        for owner in (*root.handlers, root):
            put_back.callback(_put_filters_back, owner, owner.level, list(owner.filters))
        put_back.callback(operator.setitem, root.handlers, slice(None), list(root.handlers))
        for name in ("stdin", "stdout", "stderr"):
            put_back.callback(setattr, sys, name, getattr(sys, name))
        put_back.callback(_keep_recursion, sys.getrecursionlimit())
        put_back.callback(_go_back_to, _directory())
        yield


def _put_filters_back(owner: Any, level: int, filters: list[Any]) -> None:
    owner.setLevel(level)
    owner.filters[:] = filters


def _keep_recursion(limit: int) -> None:
    sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))


def _go_back_to(directory: str | None) -> None:
    if directory is not None and _directory() != directory:
        with contextlib.suppress(OSError):  # it was removed
            os.chdir(directory)


def _put_torch_back(settings: tuple[Any, ...]) -> None:
    if "torch" in sys.modules:
        set_torch(*settings)


def revive_loggers() -> None:
    """Enable this program's loggers: `logging.config` disables those that it does not name."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.split(".")[0] == OWN_LOGGERS:
            logger.disabled = False
            logger.propagate = True
            logger.filters.clear()
            logger.setLevel(logging.NOTSET)


def set_torch(dtype: Any = None, device: Any = None, has_grad: bool = True) -> None:
    """Set the defaults of torch, which has been imported; without arguments, its usual ones.

    `dtype` (None: float32) and `device` (None: the CPU) are for new tensors; `has_grad` says
    whether operations are recorded for the gradient.
    """
    torch: Any = sys.modules["torch"]
    torch.set_default_dtype(dtype or torch.float32)
    if torch.get_default_device() != torch.device(device or "cpu"):
        torch.set_default_device(device)
    torch.set_grad_enabled(has_grad)


def _settings_of_torch() -> tuple[Any, ...]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return ()
    device = torch.get_default_device()
    is_default = device.type == "cpu"
    return torch.get_default_dtype(), None if is_default else device, torch.is_grad_enabled()


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None
