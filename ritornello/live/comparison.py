"""Several runs compared for the page: figure and tables of `ritornello.analysis compare`."""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ritornello.analysis.places import NotThereError, ResultsFolder
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import FLAGS, RECORDS, SEQUENCE, SESSIONS

if TYPE_CHECKING:
    from ritornello.analysis.comparison import GameComparison

MAX_RUNS = 60


@dataclass(frozen=True)
class Question:
    """Which runs, and how they are grouped."""

    runs: tuple[str, ...]
    at_steps: float | None = None  # agent steps of the scores; None: where the shortest ended
    apart: bool = False  # each run for itself, instead of the seeds of a configuration together


class Comparisons:
    """Compares runs, one question at a time: matplotlib is not for several threads."""

    def __init__(self, results: ResultsFolder) -> None:
        """Begin without an answer."""
        self._results = results
        self._lock = threading.Lock()

    def answer(self, question: Question) -> dict[str, Any]:
        """Return tables as plain types.

        Raises:
          ConfigError: if the runs cannot be compared; the message says why.
        """
        with self._lock:
            games, notes = self._compared(question)
            return {
                "games": [_game(game) for game in games],
                "notes": [*notes, *(note for game in games for note in game.left_out)],
                "command": self._command(question),
            }

    def picture(self, question: Question) -> bytes:
        """Return the figure as PNG.

        Raises:
          ConfigError: if the runs cannot be compared.
        """
        from ritornello.analysis.comparison import games_figure
        from ritornello.analysis.figure import png

        with self._lock:
            return png(games_figure(self._compared(question)[0]))

    def _command(self, question: Question) -> str:
        """Return the command that makes the same tables and the same figure."""
        places = [str(self._shown(run)) for run in question.runs]
        if question.apart:
            places = _labelled(question.runs, places)
        command = ["python", "-m", "ritornello.analysis", "compare", f"--runs={','.join(places)}"]
        if question.at_steps is not None:
            command.append(f"--at_steps={question.at_steps:.0f}")
        return shlex.join([*command, "--output=comparison"])

    def _shown(self, run: str) -> Path:
        """Return the path of a run's folder from where this program was started."""
        folder = self._results.root / run
        here = Path(os.path.relpath(folder))
        return folder if here.parts[:1] == ("..",) else here

    def _compared(self, question: Question) -> tuple[list[GameComparison], list[str]]:
        # Imported here: SciPy takes a second, and whoever only looks at one run needs none of it.
        from ritornello.analysis.comparison import compare
        from ritornello.analysis.runs import find_runs

        if not 0 < len(question.runs) <= MAX_RUNS:
            raise ConfigError(
                f"Choose 1 to {MAX_RUNS} runs to compare; these are {len(question.runs)}."
            )
        places = [escape(str(self._checked_folder(run))) for run in question.runs]
        if question.apart:
            places = _labelled(question.runs, places)
        runs, notes = find_runs(places)
        return compare(runs, question.at_steps), notes

    def _checked_folder(self, run: str) -> Path:
        """Return the folder of a run, in which `find_runs` meets no link."""
        try:
            self._results.path(run, RECORDS)
            if os.path.lexists(self._results.folder(run) / SEQUENCE):
                raise NotThereError(f"{shown_text(run)} has the {SEQUENCE} of a sequence")
            for name in (FLAGS, SESSIONS):
                if os.path.lexists(self._results.folder(run) / name):
                    self._results.path(run, name)
        except NotThereError as error:
            raise ConfigError(f"{error}: expected the regular files of a run.") from error
        return self._results.folder(run)


def _game(game: GameComparison) -> dict[str, Any]:
    from ritornello.analysis.comparison import game_table
    from ritornello.analysis.profiles import improvement_table

    about = {"env": game.env, "at_steps": game.at_steps, "improvement": None}
    tables = {"table": game_table(game)}
    # Of single runs, or of one configuration, it says nothing.
    if len(game.rows) > 1 and max(len(row.runs) for row in game.rows) > 1:
        tables["improvement"] = improvement_table({row.label: [row.scores] for row in game.rows})
    shown = {name: {"headings": head, "rows": rows} for name, (head, rows) in tables.items()}
    return about | shown


def _labelled(runs: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return each place with the name of its run as label, in which "=" and "," would end it."""
    labels: dict[str, str] = {}
    for run, place in zip(runs, places, strict=True):
        label = name = re.sub("[=,]", "-", run)
        number = 1
        while label in labels:
            number += 1
            label = f"{name} {number}"
        labels[label] = place
    return [f"{label}={place}" for label, place in labels.items()]
