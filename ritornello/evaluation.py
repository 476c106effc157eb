"""`evaluate`: whole games with a trained agent as one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ritornello.agent.session import prepare
from ritornello.agent.testing.score_table import Report
from ritornello.command import command_line, path_text
from ritornello.core.command_line import counted
from ritornello.core.errors import ConfigError
from ritornello.core.project import main_command
from ritornello.core.stop_signals import Answer
from ritornello.flags.names import named_values
from ritornello.interpreter import alone
from ritornello.interrupts import Interrupts


def evaluate(path: Path | str, **flags: Any) -> dict[str, Report]:
    """Play whole games as `--op_mode=test` does, and report them.

    The games are written into the run folder (those of a model folder, into `results_dir`). Ctrl-C
    ends the playing; if games were finished, they are written and reported, and `Interrupted` is
    raised, whose `result` has the reports.

    Args:
      path: run folder, checkpoint file, model folder, or "hf:owner/name".
      **flags: the flags of main.py, such as `test_episode_count=20`, `greedy=True`, `env="..."`,
        `console=False`. A value of None means the default.

    Returns:
      Id of a game -> its report: mean, median, std, episodes, human_normalised and more.

    Raises:
      ConfigError: if the flags cannot be honoured.
      CheckpointError: if there is no such agent, or it is damaged.
      EnvironmentFault: if an environment fails.
      Interrupted: if Ctrl-C was pressed after a game was over; KeyboardInterrupt before.
    """
    decided = {"op_mode", "load_model_url", "test_all_checkpoints"}
    for name in sorted(decided & named_values(command_line(flags)).keys()):  # also resume=, test=
        raise ConfigError(
            f"{name} cannot be given to evaluate, which tests the agent at its first argument: "
            f"leave it out, or start {main_command()}."
        )
    given = {**flags, "op_mode": "test", "load_model_url": path_text(path)}
    with alone("evaluate"), Interrupts() as interrupts:
        session = prepare(command_line(given))
        with interrupts.answered_by(Answer.RAISE):
            reports = session.test()
    found = {report.env: report for report in reports}
    interrupts.pass_on(f"finished: {counted(sum(r.episodes for r in reports), 'game')}", found)
    return found
