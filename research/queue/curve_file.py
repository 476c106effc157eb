"""What is kept of a run of the queue: its curve for `analysis compare`, and its metrics."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

from research.queue.plan import PlannedRun
from research.queue.store import Store
from ritornello.analysis.run_facts import label_among
from ritornello.analysis.runs import read_runs, write_csv
from ritornello.core import atomic_file
from ritornello.table import read_run

METRICS_ROWS = 50  # of a run, at equal distances
LEARNING = (
    "episode/",
    "loss/",
    "policy/",
    "value/",
    "vtrace/",
    "grad/",
    "popart/",
    "lag/",
    "replay/",
)


def export_curve(run: PlannedRun, store: Store, results: Path) -> list[Path]:
    """Write `results/<experiment>/<arm>_<game>_seed<k>.csv` anew, one file for each game played.

    Of a run of n games each is `<arm>-<n>-games_<game>_seed<k>.csv`.

    Returns:
      The files; none if no game was finished yet.

    Raises:
      ConfigError: if the run's files cannot be read.
      OSError: if the file cannot be written.
    """
    folder = store.present_folder(run)
    if folder is None or not folder.metrics_file.exists():
        return []
    games = list(read_runs(folder.path))
    found = [each for each in games if len(each.curve.agent_steps)]
    if not found:
        return []
    target = results / run.experiment
    target.mkdir(parents=True, exist_ok=True)
    label = label_among(run.arm, len(games))
    files = []
    for each in found:
        about = replace(each.about, label=label, finished=store.is_done(run))
        files.append(write_csv(replace(each, about=about), target))
    return files


def export_metrics(run: PlannedRun, store: Store, results: Path) -> Path | None:
    """Write the metrics of learning to `results/<experiment>/metrics/<arm>_<game>_seed<k>.csv`.

    Returns:
      The file, with METRICS_ROWS rows at most; None if nothing was recorded yet.

    Raises:
      ConfigError: if the run's files cannot be read.
      OSError: if the file cannot be written.
    """
    folder = store.present_folder(run)
    if folder is None or not folder.metrics_file.exists():
        return None
    table = read_run(folder.path)
    count = len(table["agent_steps"])
    rows = [*range(0, count, -(-count // METRICS_ROWS) or 1)]
    names = ["agent_steps", *(name for name in table if name.startswith(LEARNING))]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([f"{table[name][row]:.5g}" for name in names] for row in rows)
    path = results / run.experiment / "metrics" / f"{run.name.partition('/')[2]}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_text(path, lines.getvalue())
    return path
