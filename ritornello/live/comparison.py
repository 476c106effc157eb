"""Several runs compared for the page, by the statistics of `python -m ritornello.analysis compare`.

What is computed is kept until one of the runs changes: the bootstrap takes tenths of a second.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import FLAGS, RECORDS, SESSIONS
from ritornello.live.export import safe_cell
from ritornello.live.places import NotThereError, ResultsFolder

MAX_RUNS = 60
GRID_POINTS = 80  # of a mean and its interval
MAX_KEPT = 8


@dataclass(frozen=True)
class Question:
    """Which runs, and how they are grouped."""

    runs: tuple[str, ...]
    at_steps: float | None = None  # agent steps of the scores; None: where the shortest ended
    apart: bool = False  # each run for itself, instead of the seeds of a configuration together


class Comparisons:
    """Answers of late. Thread-safe: one is computed at a time."""

    def __init__(self, results: ResultsFolder) -> None:
        """Know nothing yet."""
        self._results = results
        self._lock = threading.Lock()
        self._kept: dict[Question, tuple[Any, dict[str, Any]]] = {}

    def answer(self, question: Question) -> dict[str, Any]:
        """Return tables and curves as plain types.

        Raises:
          ConfigError: if the runs cannot be compared; the message says why.
        """
        signature = tuple(self._results.facts(run, RECORDS) for run in question.runs)
        with self._lock:
            kept = self._kept.get(question)
            if kept is None or kept[0] != signature:
                kept = (signature, self._computed(question))
                self._kept.pop(question, None)
                self._kept[question] = kept
                while len(self._kept) > MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
            return kept[1]

    def picture(self, question: Question) -> bytes:
        """Return the figure of `python -m ritornello.analysis compare` as PNG.

        Raises:
          ConfigError: if the runs cannot be compared.
        """
        from ritornello.analysis.figure import learning_curves, png

        games, _ = self._compared(question)
        curves = {
            game.env: {row.label: [run.curve for run in row.runs] for row in game.rows}
            for game in games
        }
        with self._lock:  # matplotlib is not for several threads
            return png(learning_curves(curves))

    def table(self, question: Question) -> str:
        """Return the curves as CSV: a line for each point of each run.

        Raises:
          ConfigError: if the runs cannot be compared.
        """
        games, _ = self._compared(question)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ("configuration", "env", "seed", "run", "agent_steps", "wall_s", "return_mean")
        )
        for game in games:
            for row in game.rows:
                for run in row.runs:
                    curve = run.curve
                    about = [safe_cell(x) for x in (row.label, game.env)]
                    for steps, wall_s, mean in zip(
                        curve.agent_steps, curve.wall_s, curve.mean_return, strict=True
                    ):
                        name = safe_cell(self._name(run.source))
                        writer.writerow((*about, run.about.seed, name, int(steps), wall_s, mean))
        return text.getvalue()

    def command(self, question: Question) -> str:
        """Return the command that makes the same tables and the same figure."""
        places = [str(self._shown(run)) for run in question.runs]
        if question.apart:
            places = [f"{_label(run)}={p}" for run, p in zip(question.runs, places, strict=True)]
        command = ["python", "-m", "ritornello.analysis", "compare", f"--runs={','.join(places)}"]
        if question.at_steps is not None:
            command.append(f"--at_steps={question.at_steps:.0f}")
        return shlex.join([*command, "--output=comparison"])

    def _shown(self, run: str) -> Path:
        """Return the folder of a run as it is named from where this program was started."""
        folder = self._results.root / run
        here = Path(os.path.relpath(folder))
        return folder if here.parts[:1] == ("..",) else here

    def _name(self, source: Path) -> str:
        return source.relative_to(self._results.root).as_posix()

    def _compared(self, question: Question) -> tuple[list[Any], list[str]]:
        # Imported here: SciPy takes a second, and whoever only looks at one run needs none of it.
        from ritornello.analysis.comparison import compare
        from ritornello.analysis.runs import find_runs

        if not 0 < len(question.runs) <= MAX_RUNS:
            raise ConfigError(
                f"Choose 1 to {MAX_RUNS} runs to compare; these are {len(question.runs)}."
            )
        places = []
        for run in question.runs:
            folder = escape(str(self._checked_folder(run)))
            places.append(f"{_label(run)}={folder}" if question.apart else folder)
        runs, notes = find_runs(places)
        return compare(runs, question.at_steps), notes

    def _checked_folder(self, run: str) -> Path:
        """Return the folder of a run, in which `find_runs` meets no link and no other run."""
        from ritornello.sequences.folder import (
            STATE_FILE,  # half a second; `find_runs` needs it as well
        )

        try:
            folder = self._results.folder(run)
            self._results.open(run, RECORDS).close()
        except NotThereError as error:
            raise ConfigError(f"{error}, or it has no records yet.") from error
        # These may be missing, and what is there is opened again by path, which follows links.
        for name in (FLAGS, SESSIONS):
            try:
                if os.path.lexists(folder / name):
                    self._results.open(run, name).close()
            except NotThereError as error:
                raise ConfigError(
                    f"{name} of {shown_text(run)} is a link or no regular file; only files of the "
                    "results folder itself are read. Put the file in its place."
                ) from error
        if os.path.lexists(folder / STATE_FILE):
            raise ConfigError(
                f"{shown_text(run)} is a run, but holds {STATE_FILE} like a sequence, which may "
                "name runs that lie elsewhere. Remove that file."
            )
        return folder

    def _computed(self, question: Question) -> dict[str, Any]:
        from ritornello.analysis.comparison import game_table

        games, notes = self._compared(question)
        return {
            "games": [
                {
                    "env": game.env,
                    "at_steps": game.at_steps,
                    "at_minutes": game.at_seconds / 60,
                    "table": dict(zip(("headings", "rows"), game_table(game), strict=True)),
                    "improvement": _improvement(game),
                    "configurations": [self._configuration(row) for row in game.rows],
                }
                for game in games
            ],
            "notes": [*notes, *(note for game in games for note in game.left_out)],
            "command": self.command(question),
        }

    def _configuration(self, row: Any) -> dict[str, Any]:
        """Return the curves of one configuration: of each seed, and over the seeds."""
        curves = [run.curve for run in row.runs]
        return {
            "label": row.label,
            "seeds": [
                {
                    "run": self._name(run.source),
                    "seed": run.about.seed,
                    "score": score,
                    "steps": run.curve.agent_steps.tolist(),
                    "minutes": _plain(run.curve.wall_s / 60),
                    "mean": _plain(run.curve.mean_return),
                }
                for run, score in zip(row.runs, row.by_steps, strict=True)
            ],
            "by_steps": _over_seeds([(c.agent_steps, c.mean_return) for c in curves]),
            "by_minutes": _over_seeds([(c.wall_s / 60, c.mean_return) for c in curves]),
        }


def _improvement(game: Any) -> dict[str, Any] | None:
    """Return how often runs of one configuration beat those of another; None for single runs."""
    from ritornello.analysis.profiles import improvement_table

    if len(game.rows) < 2 or max(len(row.runs) for row in game.rows) < 2:
        return None
    table = improvement_table({row.label: [row.by_steps] for row in game.rows})
    return dict(zip(("headings", "rows"), table, strict=True))


def _over_seeds(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any] | None:
    """Return interquartile mean and 95 % interval over the seeds, as far as all of them got."""
    from ritornello.analysis.statistics import interquartile_mean, interval

    begin = max(float(x[0]) for x, _ in curves)
    end = min(float(x[-1]) for x, _ in curves)
    if len(curves) < 2 or begin >= end:
        return None
    grid = np.linspace(begin, end, GRID_POINTS)
    every = np.stack([np.interp(grid, x, y) for x, y in curves])
    bounds = interval([every], interquartile_mean)
    assert bounds is not None  # there are two rows at least
    return {
        "x": _plain(grid),
        "mean": _plain(interquartile_mean(every)),
        "low": _plain(np.asarray(bounds[0])),
        "high": _plain(np.asarray(bounds[1])),
    }


def _label(run: str) -> str:
    """Return the name of a run as the label of a place, which ends at "="."""
    return run.replace("=", "-")


def _plain(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]
