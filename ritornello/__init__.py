"""The platform as a library, for scripts and notebooks (docs/library.md).

    from ritornello import evaluate, load_agent, read_run, train

    summary = train(env="CartPole-v1", environment_max_steps=100_000)
    table = read_run(summary.folder)        # metrics as columns
    agent = load_agent(summary.folder)      # acts on observations
    reports = evaluate(summary.folder, test_episode_count=20)

Arguments are the flags of main.py, under their names. Each function may be called any number of
times in one interpreter, and leaves signals, logging and PyTorch's settings as it found them.

| file | what is there |
|---|---|
| `training.py` | `train` |
| `evaluation.py` | `evaluate` |
| `playing.py` | `load_agent` and what it returns |
| `table.py` | `read_run` and what it returns |
| `command.py` | from Python values to the flags of a command line |
| `interpreter.py` | what a call may change in the interpreter, and how that is undone |
| `interrupts.py` | Ctrl-C in an interpreter that goes on |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ritornello.core.errors import (
        CheckpointError,
        ConfigError,
        EnvironmentFault,
        PlatformError,
    )
    from ritornello.evaluation import evaluate
    from ritornello.interrupts import Interrupted
    from ritornello.playing import Agent, Decision, load_agent
    from ritornello.table import RunTable, read_run
    from ritornello.training import Summary, train

__all__ = [
    "Agent",
    "CheckpointError",
    "ConfigError",
    "Decision",
    "EnvironmentFault",
    "Interrupted",
    "PlatformError",
    "RunTable",
    "Summary",
    "evaluate",
    "load_agent",
    "read_run",
    "train",
]

_MODULE_OF = {
    **dict.fromkeys(
        ("CheckpointError", "ConfigError", "EnvironmentFault", "PlatformError"), "core.errors"
    ),
    **{"evaluate": "evaluation", "Interrupted": "interrupts"},
    **dict.fromkeys(("Agent", "Decision", "load_agent"), "playing"),
    **dict.fromkeys(("RunTable", "read_run"), "table"),
    **dict.fromkeys(("Summary", "train"), "training"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: all modules of the platform lie below (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found
