"""The parts of a report about one run: what was run, how it went, what it took, how to do it again.

Every file may be missing (an old run, a killed one), damaged, or a stranger's. Next to read:
analysis/report.py.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

from ritornello.analysis.area import area
from ritornello.analysis.comparison import energy_text, share_text
from ritornello.analysis.figure import png
from ritornello.analysis.markup import Markup, code, el, facts, folded, join, picture, table
from ritornello.analysis.report import Maker, Part
from ritornello.analysis.report_files import first_line, last_lines, opened, read_bytes, read_object
from ritornello.analysis.report_media import films
from ritornello.analysis.report_what import (
    dicts,
    number_text,
    sessions_of,
    texts,
    value_text,
    what_was_run,
)
from ritornello.analysis.run_facts import own_command
from ritornello.analysis.runs import Run, find_runs
from ritornello.core.errors import ConfigError
from ritornello.core.run_layout import (
    EVALUATIONS,
    FINDINGS,
    FLAGS,
    GAMES,
    LOG,
    RECORDS,
    SESSIONS,
    STATUS,
    SUMMARY,
)
from ritornello.metrics.charts import run_figures
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.health import Diagnosis
from ritornello.metrics.machine_share import undisturbed_share
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from ritornello.metrics.status_file import DIED, read_status
from ritornello.metrics.text import short

MAX_GAMES = 60  # of one run, of which figures are drawn: the whole of Atari is 57
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a run, at which its curve is told in numbers
LOG_LINES = 80
SHOWN_EVALUATIONS = 40
TESTED = (  # keys of what test mode writes (agent/testing/evaluator.py)
    *("env", "checkpoint", "agent_steps", "policy", "episodes", "mean"),
    *("distinct_games", "human_normalised"),
)
JOURNALS = (RECORDS, EVALUATIONS, GAMES)  # of which the figures are drawn
STATES = {
    "starting": "is starting",
    "filling": "fills its replay",
    "training": "is training",
    "paused": "is paused",
    "saving": "is saving",
    "ended": "came to its end",
    "failed": "failed",
    DIED: "was killed: its process is gone and has not said why",
}


def parts_of_run(place: Path, maker: Maker) -> Iterator[Part]:
    """Yield the parts of the page about one run."""
    # A link is no file here; the parts that are drawn from it say so.
    records = [] if (place / JOURNALS[0]).is_symlink() else read_records(place)
    yield "Result", lambda: result(place, records)
    yield "What was run", lambda: what_was_run(place, maker)
    yield "Learning curve", lambda: curve(place)
    yield "Figures", lambda: figures(place)
    yield "Findings", lambda: findings(place, records)
    yield "Evaluations and tests", lambda: evaluations(place, maker)
    yield "Machine and energy", lambda: machine(records)
    yield "Films", lambda: films(place, maker)
    yield "The same again", lambda: again(place)
    yield "End of the log", lambda: log(place)


def result(place: Path, records: Sequence[Record]) -> Markup:
    """Return how far the run came and what it scored."""
    # Read here first: the reader that knows whether its process lives would follow a link.
    status = (read_status(place) or {}) if _readable(place, STATUS) else {}
    summary = _readable(place, SUMMARY)
    newest = records[-1] if records else None
    values = {} if newest is None else newest.values
    flags = _readable(place, FLAGS)
    pairs = [
        ("environment", flags.get("env")),
        ("seed", flags.get("seed")),
        ("state", _state(status, summary)),
        ("agent steps", None if newest is None else f"{newest.agent_steps:,}"),
        ("planned agent steps", _whole(flags.get("environment_max_steps"))),
        ("frames of the simulator", None if newest is None else f"{newest.frames:,}"),
        ("updates", None if newest is None else f"{newest.updates:,}"),
        ("games", None if newest is None else f"{newest.episodes:,}"),
        ("running time", None if newest is None else _duration(newest.wall_s)),
        ("mean return of the last games", number_text(values.get("episode/return_mean"))),
        ("mean score over the games", number_text(values.get("episode/score_mean"))),
        ("best game", number_text(values.get("episode/return_best"))),
        ("best mean return", number_text(summary.get("best_mean_return"))),
    ]
    if newest is None:
        return join([facts(pairs, "Result"), el("p", "The run has not written a record.")])
    return facts(pairs, "Result")


def curve(place: Path) -> Markup:
    """Return the curve of each game in numbers: the score along the run, and the area under it."""
    runs, notes = _runs(place)
    rows = []
    for run in runs:
        end = float(run.curve.agent_steps[-1])
        at = [
            f"{run.curve.at_steps(share * end):,.1f}" if run.curve.covers(share * end) else "–"
            for share in SHARES
        ]
        rows.append((run.about.env, f"{end:,.0f}", *at, f"{area(run.curve, end):,.1f}"))
    headings = ["game", "agent steps"]
    headings += [f"return at {share:.0%}" for share in SHARES] + ["area: mean over all steps"]
    about = (
        "Return: the mean raw return of the last 100 games of training. One run has no interval."
    )
    return join(
        [
            el("p", about, class_="soft"),
            table(headings, rows, "Learning curve"),
            *(el("p", note, class_="soft") for note in notes),
        ]
    )


def figures(place: Path) -> Markup:
    """Return the figures of the run, drawn anew from its records."""
    _refuse_links(place)
    env = str(_readable(place, FLAGS).get("env", ""))
    if env.count(",") >= MAX_GAMES:
        raise ConfigError(f"the run names more than {MAX_GAMES} games.")
    names = {"returns": "return of each game", "overview": "losses, entropy, values, speed"}
    made = [picture(png(f), f"Figure: {names.get(n, n)}") for n, f in run_figures(place.resolve())]
    if not made:
        return el("p", "No game was finished, so there is nothing to draw.", class_="soft")
    return join(made)


def findings(place: Path, records: Sequence[Record]) -> Markup:
    """Return what the health metrics said; of an old run what they would have said."""
    rows: list[tuple[object, ...]] = []
    for line in last_lines(place, FINDINGS):
        with suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict):
                told = (said.get("name"), said.get("message"), said.get("advice"))
                rows.append((_whole(said.get("agent_steps")), *told))
    if not (place / FINDINGS).exists():
        diagnosis = Diagnosis()
        for record in records:
            rows += [
                (
                    f"{f.agent_steps:,}",
                    f.metric,
                    f"{short(f.value)} (healthy: {f.healthy})",
                    f.cause,
                )
                for f in diagnosis.add(record)
            ]
    if not rows:
        return el("p", "No metric left its healthy range.")
    return table(("agent steps", "metric", "value", "what may be wrong"), rows, "Findings")


def evaluations(place: Path, maker: Maker) -> Markup:
    """Return the games that were played with fixed weights, during and after the training."""
    return join(
        [
            maker.part(EVALUATIONS, lambda: _evaluations(place)),
            el("h3", "Tests"),
            maker.part("tests", lambda: _tests(place)),
        ]
    )


def machine(records: Sequence[Record]) -> Markup:
    """Return how the run used its machine: the mean over the records and the highest value."""
    names = sorted(
        {n for r in records for n in r.values if n.startswith(("system/", "throughput/"))}
    )
    rows = []
    for name in names:
        values = [record.values[name] for record in records if name in record.values]
        rows.append((name, short(sum(values) / len(values)), short(max(values)), len(values)))
    book = EnergyBook(records)
    pairs = [
        ("time in which nothing else used the machine", share_text(undisturbed_share(records))),
        ("energy", energy_text(book.joules if book.steps else None)),
        ("energy per million agent steps", energy_text(book.joules_per_million_steps)),
    ]
    headings = ("metric", "mean", "highest", "records")
    return join([facts(pairs, "Energy"), folded("All readings", table(headings, rows, "Readings"))])


def again(place: Path) -> Markup:
    """Return the commands that made the run, and the one that compares it."""
    found = sessions_of(place)
    seed = _readable(place, FLAGS).get("seed")
    usable = [{**s, "command_line": texts(s.get("command_line"))} for s in found]
    lines = []
    if usable:
        lines = own_command(usable).split(" && ")
        if type(seed) is int:  # else it is no seed, and nobody should paste it into a shell
            lines = [line.replace("<seed>", str(seed)) for line in lines]
        lines = [line.replace("<run>", shlex.quote(str(place))) for line in lines]
    lines.append(shlex.join(["python", "-m", "ritornello.analysis", "compare", f"--runs={place}"]))
    more = "Where the command leaves flags out, their values are in the table above."
    return join([code(lines), el("p", more, class_="soft")])


def log(place: Path) -> Markup:
    """Return the last lines of train.log, without those for debugging."""
    lines = [line for line in last_lines(place, LOG) if " DEBUG " not in line]
    if not lines:
        return el("p", "There is no log.", class_="soft")
    return folded(f"The last {min(LOG_LINES, len(lines))} messages", code(lines[-LOG_LINES:]))


def _refuse_links(place: Path) -> None:
    """Raise ConfigError if a file is a link that the readers of the platform would follow."""
    for name in (FLAGS, SESSIONS):
        read_object(place, name)
    for name in JOURNALS:
        with suppress(FileNotFoundError), opened(place / name):
            pass


def _readable(place: Path, name: str) -> dict[str, Any]:
    """Return the object in a file; {} if it is damaged, which another part of the page says."""
    try:
        return read_object(place, name)
    except ConfigError:
        return {}


def _runs(place: Path) -> tuple[list[Run], list[str]]:
    if not (place / RECORDS).is_file():
        raise ConfigError("the run has not written a record.")
    _refuse_links(place)
    return find_runs([escape(str(place))])


def _evaluations(place: Path) -> Markup:
    lines = last_lines(place, EVALUATIONS)
    if not lines:
        return el("p", "Nothing was evaluated during the training.")
    heading = first_line(place, EVALUATIONS)
    rows = csv.reader(io.StringIO("\n".join(line for line in lines if line != heading)))
    names = next(csv.reader([heading]), [])
    whole = [row for row in rows if len(row) == len(names)]
    shown_rows = whole[-SHOWN_EVALUATIONS:]
    parts = [table(names, shown_rows, "Evaluations")]
    if len(whole) > len(shown_rows):
        parts.insert(0, el("p", f"The last {SHOWN_EVALUATIONS} of {len(whole)}.", class_="soft"))
    return join(parts)


def _tests(place: Path) -> Markup:
    """Return what test mode has left: a row for each game of each test."""
    rows: list[tuple[object, ...]] = []
    for path in sorted(place.glob("test_*.json")):
        try:
            found = json.loads(read_bytes(path, 1_000_000))
        except (ConfigError, OSError, ValueError, RecursionError) as error:
            rows.append((path.name, str(error), *[""] * 7))
            continue
        games = found.get("games", [found]) if isinstance(found, dict) else []
        rows += [
            (path.name, *(value_text(each.get(name)) for name in TESTED)) for each in dicts(games)
        ]
    if not rows:
        return el("p", "The run was not tested.")
    headings = ("file", "game", "checkpoint", "agent steps", "actions", "games", "mean return")
    return table((*headings, "games that differ", "human-normalised"), rows, "Tests")


def _state(status: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return what is known of the end of the run, in words."""
    if summary.get("reason"):
        return f"came to its end: {summary['reason']}"
    state = status.get("state")
    words = STATES.get(state) if isinstance(state, str) else None
    if words is None:
        return "not known: it has written neither a status nor a summary that can be read"
    return f"{words}: {status['reason']}" if status.get("reason") else words


def _whole(value: object) -> str | None:
    return f"{value:,}" if type(value) is int else None


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
