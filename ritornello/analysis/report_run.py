"""The parts of a report about one run: what was run, how it went, and how to do it again."""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from glob import escape
from itertools import starmap
from pathlib import Path
from typing import Any

from ritornello.analysis.comparison import energy_text, share_text
from ritornello.analysis.figure import png
from ritornello.analysis.page import (
    Markup,
    Page,
    code,
    facts,
    folded,
    heading,
    paragraph,
    picture,
    table,
)
from ritornello.analysis.run_facts import commit_text, default_flags, machine_text, own_command
from ritornello.analysis.runs import find_runs, last_games
from ritornello.core.durations import duration
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown
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
from ritornello.metrics.machine_share import undisturbed_share
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from ritornello.metrics.text import short
from ritornello.sequences.checks import is_inside

FILES = (RECORDS, FLAGS, SESSIONS, STATUS, SUMMARY, FINDINGS, EVALUATIONS, GAMES, LOG)
FILM_FOLDERS = ("films", "analysis", ".")  # of evaluation, of the analyses, of test mode
FILM_KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
MAX_BYTES = 50_000_000  # of a JSON file; run.json of a thousand sessions is below
LINES = 80  # at the end of a log or a table
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a run, at which its curve is told in numbers
COMPARE = ("python", "-m", "ritornello.analysis", "compare")


def add_run(page: Page, place: Path, film_bytes: int) -> None:
    """Add the parts about one run; files that are links out of its folder are not read."""
    for name in FILES:
        if not is_inside(place / name, (place,)):
            raise ConfigError(f"{name} is a link that leads out of the folder of the run.")
    records = read_records(place)
    page.add("Result", lambda: _result(place, records))
    page.add("What was run", lambda: _sessions(place))
    page.add("Flags", lambda: _flags(place))
    page.add("Learning curve", lambda: _curve(place))
    page.add("Figures", lambda: _figures(place))
    page.add("Findings", lambda: _findings(place))
    page.add("Evaluations", lambda: _evaluations(place))
    page.add("Tests", lambda: _tests(place))
    page.add("Machine and energy", lambda: _machine(records))
    page.add("Films", lambda: films(place, film_bytes))
    page.add("The same again", lambda: _again(place))
    page.add("End of the log", lambda: _log(place))


def _result(place: Path, records: list[Record]) -> Iterator[Markup]:
    """Yield how far the run came and what it scored."""
    summary, status, flags = (_object(place / name) for name in (SUMMARY, STATUS, FLAGS))
    numbers = {
        "planned agent steps": flags.get("environment_max_steps"),
        "best mean return": summary.get("best_mean_return"),
    }
    if records:
        newest = records[-1]
        numbers |= {
            "agent steps": newest.agent_steps,
            "frames of the simulator": newest.frames,
            "updates": newest.updates,
            "games": newest.episodes,
            "mean return of the last games": newest.values.get("episode/return_mean"),
            "mean score over the games": newest.values.get("episode/score_mean"),
            "best game": newest.values.get("episode/return_best"),
        }
    else:
        yield paragraph("The run has not written a record.")
    told = {name: f"{x:,.10g}" for name, x in numbers.items() if isinstance(x, (int, float))}
    yield facts(
        {
            "environment": flags.get("env"),
            "seed": flags.get("seed"),
            "state": summary.get("reason") or status.get("state") or "not known",
            **told,
            "running time": duration(records[-1].wall_s) if records else None,
        }
    )


def _sessions(place: Path) -> Iterator[Markup]:
    """Yield what run.json says of each session."""
    found = _sessions_of(place)
    for number, session in enumerate(found, start=1):
        yield heading(f"Session {number} of {len(found)}")
        versions = session.get("versions") or {}
        yield facts(
            {
                "begun": session.get("started"),
                "command": " ".join(map(str, session.get("command_line", []))),
                "version": session.get("version"),
                "commit": commit_text(session.get("source") or {}),
                "libraries": ", ".join(starmap("{} {}".format, versions.items())),
                "machine": machine_text(session.get("machine") or {}),
            }
        )
        changes = [
            [shown(note.get(name)) for name in ("updates", "command", "values", "result")]
            for note in session.get("control", [])
        ]
        if changes:
            yield heading("What a person changed while it ran")
            yield table(("update", "command", "values", "answer"), changes)
    if not found:
        yield paragraph("run.json is missing.")


def _flags(place: Path) -> Iterator[Markup]:
    """Yield the flags that differ from their defaults, and all of them folded."""
    flags, own = _object(place / FLAGS), default_flags()
    changed = [
        (name, _value(value), _value(own[name]) if name in own else "no flag of this version")
        for name, value in flags.items()
        if name not in own or value != own[name]
    ]
    yield table(("flag", "value", "default"), changed)
    every = [(name, _value(value)) for name, value in flags.items()]
    yield folded(f"All {len(every)} flags", table(("flag", "value"), every))


def _curve(place: Path) -> Iterator[Markup]:
    """Yield the curve of each game in numbers: the score along the run, and the area under it."""
    runs, notes = find_runs([escape(str(place))])
    rows = []
    for run in runs:
        end = float(run.curve.agent_steps[-1])
        at = [run.curve.at_steps(share * end) for share in SHARES]
        shown_at = [f"{value:,.1f}" if value == value else "–" for value in at]
        rows.append((run.about.env, f"{end:,.0f}", *shown_at, f"{run.curve.area(end):,.1f}"))
    yield paragraph(f"Return: mean raw return of the last {last_games(runs)}.")
    headings = ["game", "agent steps", *(f"return at {share:.0%}" for share in SHARES)]
    yield table([*headings, "area: mean over all steps"], rows)
    yield from map(paragraph, notes)


def _figures(place: Path) -> Iterator[Markup]:
    """Yield the figures of the run, drawn anew from its records."""
    made = [picture(png(figure), f"Figure: {name}") for name, figure in run_figures(place)]
    yield from made or [paragraph("No game was finished, so there is nothing to draw.")]


def _findings(place: Path) -> Iterator[Markup]:
    """Yield what the health metrics said."""
    rows = []
    for line in _last_lines(place / FINDINGS):
        with suppress(ValueError, RecursionError, AttributeError):
            said = json.loads(line)
            names = ("agent_steps", "name", "message", "advice")
            rows.append([_value(said.get(name)) for name in names])
    headings = ("agent steps", "metric", "value", "what may be wrong")
    yield table(headings, rows, "No metric left its healthy range.")


def _evaluations(place: Path) -> Iterator[Markup]:
    """Yield the games that were played with fixed weights during the training."""
    headings, *rows = [
        line.split(",") for line in _last_lines(place / EVALUATIONS, LINES * 100)
    ] or [[""]]
    yield table(headings, rows[-LINES:], "Nothing was evaluated during the training.")


def _tests(place: Path) -> Iterator[Markup]:
    """Yield what test mode has left: a row for each game of each test."""
    names = ("env", "checkpoint", "agent_steps", "policy", "episodes", "mean", "human_normalised")
    rows = []
    for path in sorted(place.glob("test_*.json")):
        found = _object(path)
        games = found.get("games", [found])
        rows += [(path.name, *(_value(game.get(name)) for name in names)) for game in games]
    yield table(("file", *names), rows, "The run was not tested.")


def _machine(records: list[Record]) -> Iterator[Markup]:
    """Yield how the run used its machine: the mean over the records and the highest value."""
    names = sorted({n for r in records for n in r.values if n.startswith(("system/", "through"))})
    rows = []
    for name in names:
        values = [record.values[name] for record in records if name in record.values]
        rows.append((name, short(sum(values) / len(values)), short(max(values))))
    book = EnergyBook(records)
    yield facts(
        {
            "time in which nothing else used the machine": share_text(undisturbed_share(records)),
            "energy": energy_text(book.joules if book.steps else None),
            "energy per million agent steps": energy_text(book.joules_per_million_steps),
        }
    )
    yield folded("All readings", table(("metric", "mean", "highest"), rows))


def films(place: Path, film_bytes: int) -> Iterator[Markup]:
    """Yield the films of a run, the newest first, as long as there is room on the page."""
    found = [
        path
        for folder in FILM_FOLDERS
        for path in (place / folder).rglob("*" if folder != "." else "*.*")
        if path.suffix in FILM_KINDS and is_inside(path, (place,))
    ]
    seen = sorted({p.resolve(): p for p in found}.values(), key=lambda p: -p.stat().st_mtime)
    for path in seen:
        size = path.stat().st_size
        if size > film_bytes:
            yield paragraph(f"{path} ({size / 1e6:.1f} MB) is not part of this page.")
            continue
        film_bytes -= size
        yield picture(path.read_bytes(), path.name, FILM_KINDS[path.suffix])
    if not seen:
        yield paragraph("There are no films.")


def _again(place: Path) -> Iterator[Markup]:
    """Yield the commands that made the run, and the one that compares it."""
    found, seed = _sessions_of(place), _object(place / FLAGS).get("seed")
    lines = own_command(found).split(" && ") if found else []
    if type(seed) is int:  # else it is no seed, and nobody should paste it into a shell
        lines = [line.replace("<seed>", str(seed)) for line in lines]
    lines = [line.replace("<run>", shlex.quote(str(place))) for line in lines]
    yield code([*lines, shlex.join([*COMPARE, f"--runs={place}"])])
    yield paragraph("Where the command leaves flags out, their values are in the table above.")


def _log(place: Path) -> Iterator[Markup]:
    """Yield the last lines of train.log, without those for debugging."""
    lines = [line for line in _last_lines(place / LOG, 10 * LINES) if " DEBUG " not in line]
    yield folded("The last messages", code(lines[-LINES:]))


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if there is no such file.

    Raises:
      ConfigError: if it is damaged, too long, or something else.
    """
    if not path.is_file():
        return {}
    found = parse_json(read_text(path, path.name, MAX_BYTES), path.name)
    if not isinstance(found, dict):
        raise ConfigError(f"{path.name} holds no JSON object.")
    return found


def _sessions_of(place: Path) -> list[dict[str, Any]]:
    """Return the sessions in run.json, the first one first."""
    first = _object(place / SESSIONS)
    later = first.pop("resumed", [])
    return [each for each in [first, *later] if each]


def _last_lines(path: Path, count: int = LINES) -> list[str]:
    """Return the last whole lines of a file; [] if there is none."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, count) if line.endswith("\n")]


def _value(value: object) -> str:
    """Return a value of JSON as it is typed, of bounded length."""
    return "–" if value is None else value if isinstance(value, str) else shown(value, 1000)
