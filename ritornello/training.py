"""`train`: a training as one call, in the process of the caller."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ritornello.agent.run import trainer
from ritornello.agent.run.training import Ending
from ritornello.agent.session import prepare
from ritornello.command import command_line
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown
from ritornello.core.project import main_command
from ritornello.flags.names import named_values
from ritornello.interpreter import alone, check_known_to_workers, check_script
from ritornello.interrupts import Interrupts


@dataclass(frozen=True)
class Summary(trainer.Summary):
    """How a training ended, and its folder."""

    folder: Path = Path()  # the run folder


def train(*, stop: threading.Event | None = None, **flags: Any) -> Summary:
    """Train, or resume a run; return when it has ended and is saved.

    Workers are processes of their own; learning happens in this one. Ctrl-C saves, and then raises
    `Interrupted`, whose `result` is the Summary. In a thread other than the main one no signal
    arrives: set `stop` there, after which the call returns with reason "interrupted".

    Args:
      stop: set it, in another thread, to have the training saved and ended.
      **flags: the flags of main.py, such as `env="CartPole-v1"`, `lr=1e-3`, `console=False`. A
        value of None means the default. `resume=<run folder>` goes on with a run.

    Returns:
      Counters, returns, why it ended, and the run folder.

    Raises:
      ConfigError: if the flags cannot be honoured; nothing was started.
      CheckpointError: if the checkpoint is missing, damaged or does not fit.
      PlatformError: if the run failed; what was saved before is in its folder.
      Interrupted: if Ctrl-C was pressed; the run is saved.
    """
    given = command_line(flags)
    if named_values(given).get("op_mode") == "test":
        raise ConfigError("train does not test: call ritornello.evaluate(path, ...) for that.")
    if isinstance(stop, type) or (stop is not None and not hasattr(stop, "is_set")):
        raise ConfigError(f"stop is {shown(stop)}, expected an event: threading.Event().")
    check_script()
    with alone("train"), Interrupts(stop) as interrupts:
        summary = _trained(given, interrupts)
    gc.collect()  # the learner's threads end with it, and it is in a circle of references
    interrupts.pass_on(
        f'the training is saved in {summary.folder}; train(resume="{summary.folder}") resumes it',
        summary,
    )
    return summary


def _trained(given: Sequence[str], interrupts: Interrupts) -> Summary:
    session = prepare(given)
    if session.blueprint.flags.background:  # a file may say so too, or the run that is resumed
        raise ConfigError(
            "background is True, but it lowers the priority of this interpreter for ever, so a "
            f"library cannot do it: give background=False, or start {main_command()}."
        )
    check_known_to_workers(session.blueprint.flags)
    return _summary_of(session.train(interrupts))


def _summary_of(ending: Ending) -> Summary:
    if ending.failure is not None:
        raise ending.failure
    assert ending.summary is not None, "a session that has not failed has a summary"
    own = {field.name: getattr(ending.summary, field.name) for field in fields(trainer.Summary)}
    return Summary(**own, folder=ending.folder)
