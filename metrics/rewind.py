"""Takes the files of a run back to a checkpoint, before the run goes on from there.

A run that was killed has written lines about updates that its last checkpoint does not know. They
will happen again, differently; left in place, curves would fold back on themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from core.atomic_file import write_text
from metrics.record import Record

# The columns that say when, from the right (metrics/sinks.py): updates in one file, in the others
# training and agent steps. An update may need no new agent steps, so those alone do not say it.
TRAINING_COLUMN, STEPS_COLUMN, UPDATES_COLUMN = -3, -2, -1
TEXT_FILES = {
    "Scores.txt": STEPS_COLUMN,
    "Episode_steps.txt": STEPS_COLUMN,
    "max_reward_file.txt": STEPS_COLUMN,
    "Loss_file.txt": STEPS_COLUMN,
    "lr_file.txt": STEPS_COLUMN,
    "Train_time.txt": UPDATES_COLUMN,
}


def rewind(
    folder: Path, *, updates: int, agent_steps: int, training_steps: int | None = None
) -> int:
    """Drop lines about what came after a checkpoint, and lines that were cut off by a crash.

    Args:
      folder: of the run.
      updates: of the checkpoint.
      agent_steps: of the checkpoint.
      training_steps: of the checkpoint: its updates, times the batch size and unroll length of the
        session that wrote it. None: unknown; lines of the same agent steps are kept then.

    Returns:
      The number of lines dropped, in all files.
    """

    def is_past(line: str) -> bool:
        return Record.from_json(line).updates <= updates

    dropped = _keep(folder / "metrics.jsonl", is_past)
    for name, column in TEXT_FILES.items():

        def is_within(line: str, column: int = column) -> bool:
            columns = line.split(",")
            if column == UPDATES_COLUMN:
                return int(columns[column]) <= updates
            steps = int(columns[column])
            # Sessions before that one may have counted training steps in batches of another size,
            # but they had fewer agent steps.
            if steps == agent_steps and training_steps is not None:
                return int(columns[TRAINING_COLUMN]) <= training_steps
            return steps <= agent_steps

        dropped += _keep(folder / name, is_within)
    return dropped


def _keep(path: Path, wanted: Callable[[str], bool]) -> int:
    """Rewrite a file without unwanted or unreadable lines; return how many went."""
    if not path.exists():
        return 0
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)

    def is_good(line: str) -> bool:
        try:
            return line.endswith("\n") and wanted(line)
        except (ValueError, TypeError, IndexError):
            return False

    kept = [line for line in lines if is_good(line)]
    if len(kept) < len(lines):
        write_text(path, "".join(kept))
    return len(lines) - len(kept)
