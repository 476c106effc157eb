"""The parts of a report about a sequence: its configurations compared, and each of its runs.

The numbers and figures are those of `ritornello.analysis compare` (analysis/comparison.py,
profiles.py). Next to read: analysis/report.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.analysis.compare_sequence import (
    PROGRESS_HEADINGS,
    SequenceComparison,
    compare_sequence,
)
from ritornello.analysis.comparison import GameComparison, game_table, run_table
from ritornello.analysis.figure import learning_curves, png
from ritornello.analysis.markup import Markup, code, el, folded, join, picture, table
from ritornello.analysis.profiles import at_equal_steps, improvement_table, profiles_figure
from ritornello.analysis.report import Maker, Part
from ritornello.analysis.report_files import opened
from ritornello.analysis.report_media import films, has_films
from ritornello.analysis.report_what import flags_of, sessions
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.run_layout import FLAGS, SESSIONS
from ritornello.sequences.folder import STATE_FILE, RunState, SequenceFolder
from ritornello.sequences.foreign import is_inside

MAX_FIGURES = 12  # games with a figure each
SCORE = (
    "Score of a run: mean raw return of the last 100 games of training. Of a configuration: the "
    "interquartile mean over its runs [95 % interval, bootstrap stratified by game]. One seed has "
    "no interval, and that of two is too narrow."
)
IMPROVEMENT = (
    "Probability of improvement: how often a run of the row scores higher than one of the column."
)


class _Sequence:
    """A sequence that is read once, when the first part asks for it."""

    def __init__(self, place: Path) -> None:
        self._place = place

    @cached_property
    def folder(self) -> SequenceFolder:
        # Opened here first: the reader of the platform would follow a link.
        with opened(self._place / STATE_FILE):
            return SequenceFolder.open(self._place)

    @cached_property
    def compared(self) -> SequenceComparison:
        return compare_sequence(self.folder, self.checked)

    def checked(self, run: RunState) -> list[RunFolder]:
        """Return the folders of a run; ConfigError if one, or what is read of it, is elsewhere."""
        made = self.folder.run_folders(run)
        for each in made:
            for path in (each.path, each.metrics_file, each.flags_file, each.run_file):
                if not is_inside(path, (self._place,)):
                    raise ConfigError(
                        f"{shown_text(str(path.relative_to(self._place)))} is a link, or lies "
                        "behind one, that leads out of the folder of the sequence; only what is "
                        "in it is shown."
                    )
        return made

    def run_folders(self, run: RunState) -> list[RunFolder]:
        """Return the folders of a run; none if something of it is elsewhere."""
        try:
            return self.checked(run)
        except ConfigError:  # the part about the progress says so
            return []


def parts_of_sequence(place: Path, maker: Maker) -> Iterator[Part]:
    """Yield the parts of the page about a sequence."""
    made = _Sequence(place)
    yield "Progress", lambda: progress(made.compared)
    yield "Scores", lambda: scores(made.compared)
    yield "Learning curves", lambda: curves(made.compared)
    yield "Profiles", lambda: profiles(made.compared)
    yield "Runs", lambda: runs(made, maker)
    yield "Films", lambda: all_films(made, maker)
    yield "The same again", lambda: again(place, made)


def progress(compared: SequenceComparison) -> Markup:
    """Return how far each group came, and what was left out."""
    notes = [*compared.notes, *(note for game in compared.games for note in game.left_out)]
    return join(
        [
            table(PROGRESS_HEADINGS, compared.progress(), "Progress"),
            folded(f"{len(notes)} left out", el("ul", *(el("li", n) for n in notes)))
            if notes
            else None,
        ]
    )


def scores(compared: SequenceComparison) -> Markup:
    """Return the scores of each game, and how often each configuration beats each other one."""
    parts: list[Markup] = [el("p", SCORE, class_="soft")]
    for game in compared.games:
        parts += [el("h3", game.env), table(*game_table(game), f"Scores in {game.env}")]
        parts += _improvement(game)
    if not compared.games:
        parts.append(el("p", "No run has finished a game yet."))
    return join(parts)


def _improvement(game: GameComparison) -> list[Markup]:
    if len(game.rows) < 2:
        return []
    found = improvement_table({row.label: [row.by_steps] for row in game.rows})
    return [el("p", IMPROVEMENT, class_="soft"), table(*found, "Probability of improvement")]


def curves(compared: SequenceComparison) -> Markup:
    """Return the learning curves, a figure for each game."""
    made = [
        picture(
            png(
                learning_curves({game.env: {r.label: [x.curve for x in r.runs] for r in game.rows}})
            ),
            f"Figure: learning curves in {game.env}",
        )
        for game in compared.games[:MAX_FIGURES]
    ]
    left = len(compared.games) - MAX_FIGURES
    note = el("p", f"{left} more games have no figure here.") if left > 0 else None
    return join([*made, note]) if made else el("p", "No run has finished a game yet.")


def profiles(compared: SequenceComparison) -> Markup:
    """Return the performance profiles over all games."""
    if not compared.games:
        return el("p", "No run has finished a game yet.")
    scored = at_equal_steps(compared.games)
    figure = profiles_figure(scored)
    notes = [el("p", note, class_="soft") for note in scored.notes]
    if figure is None:
        return join([el("p", "These games have no common scale of scores."), *notes])
    about = "The share of runs above each score; each game has the same weight."
    shown = picture(png(figure), "Figure: performance profiles")
    return join([el("p", about, class_="soft"), shown, *notes])


def runs(made: _Sequence, maker: Maker) -> Markup:
    """Return a line for each run, the files of the compared ones, and the flags of the first."""
    rows = [
        (run.name, run.group, run.seed, run.status, run.exit_code, f"{run.seconds / 60:.1f}")
        for run in made.folder.runs
    ]
    headings = ("run", "group", "seed", "status", "exit status", "minutes")
    parts = [table(headings, rows, "Runs")]
    if made.compared.games:
        parts.append(folded("Scores of each run", table(*run_table(made.compared.games), "Scores")))
    flags = [
        (run.name, name, value) for run in made.folder.runs for name, value in run.flags.items()
    ]
    parts.append(folded("Flags of each run", table(("run", "flag", "value"), flags, "Flags")))
    first = next(filter(None, map(made.run_folders, made.folder.runs)), None)
    if first:
        place = first[-1].path
        parts.append(el("h3", f"What was run, as of {place.name}"))
        parts.append(maker.part(SESSIONS, lambda: sessions(place)))
        parts.append(maker.part(FLAGS, lambda: flags_of(place)))
    return join(parts)


def all_films(made: _Sequence, maker: Maker) -> Markup:
    """Return the films of all runs."""
    parts: list[Markup] = []
    for run in made.folder.runs:
        for each in made.run_folders(run):
            if has_films(each.path):
                parts += [el("h3", run.name), films(each.path, maker)]
    return join(parts) if parts else el("p", "There are no films.")


def again(place: Path, made: _Sequence) -> Markup:
    """Return the commands that made the sequence, continue it, and compare it."""
    folder = made.folder
    command = ["python", "multi_train.py", f"--sequence={folder.name}"]
    if folder.arguments:
        command += ["--", *folder.arguments]
    lines = [
        shlex.join(command),
        shlex.join(["python", "multi_train.py", f"--resume={place}"]) + "   # what is not done yet",
        shlex.join(
            ["python", "-m", "ritornello.analysis", "compare", f"--sequence_folder={place}"]
        ),
    ]
    return code(lines)
