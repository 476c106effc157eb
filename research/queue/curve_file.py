"""The curve of a run of the queue as the small CSV file that `analysis compare` reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from research.queue.plan import PlannedRun
from research.queue.store import Store
from ritornello.analysis.configuration import label_among
from ritornello.analysis.runs import read_runs, relabelled, thinned, write_csv


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
        curve = each.curve
        thin = thinned(
            relabelled(each, label), float(curve.agent_steps[-1]), float(curve.wall_s[-1])
        )
        about = replace(thin.about, finished=store.is_done(run))
        files.append(write_csv(replace(thin, about=about), target))
    return files
