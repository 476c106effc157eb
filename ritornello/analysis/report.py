"""One HTML page about a run or a sequence, in one file that can be passed on.

The page holds what was run, how it went, figures, films, tables and the command that does the same
again. It asks nothing of any other machine and runs no script. It can be made of a run that goes
on, that was killed, or whose files are damaged: what cannot be shown says so in its place.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import starmap
from pathlib import Path
from typing import Any

from ritornello.analysis.compare_sequence import compare_sequence, sequence_page
from ritornello.analysis.comparison import energy_text, games_figure, share_text
from ritornello.analysis.figure import png
from ritornello.analysis.options import command_parser
from ritornello.analysis.page import Page, code, facts, objects, picture, table
from ritornello.analysis.places import ResultsFolder, evaluations, findings, log_tail, sessions
from ritornello.analysis.profiles import profiles_figure, scored_of
from ritornello.analysis.run_facts import commit_text, default_flags, machine_text, own_commands
from ritornello.core.atomic_file import writable_folder, write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.project import PLAIN_SEQUENCE
from ritornello.core.run_layout import EVALUATIONS, FLAGS, GAMES, RECORDS, SESSIONS, STATUS, SUMMARY
from ritornello.core.version import VERSION
from ritornello.metrics.charts import run_figures
from ritornello.metrics.curve import undisturbed_share
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from ritornello.metrics.text import duration, short
from ritornello.sequences.checks import is_inside
from ritornello.sequences.folder import STATE_FILE, SequenceFolder

EXAMPLES = """  python -m ritornello.analysis report results/Pong_<time>
  python -m ritornello.analysis report results/elite_claim_small_<time> --output=elite.html
"""
FILE = "report.html"
FILM_BYTES = 8_000_000  # of films that become part of the page, the newest first
FILM_KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
RUN_FILES = (RECORDS, FLAGS, SESSIONS)  # one of them makes a folder a run
MAX_FIGURES = 12  # games of a sequence with a figure each
COMPARE = ("python", "-m", "ritornello.analysis", "compare")


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status, 1 if a part of the page cannot be shown."""
    parser = command_parser("report", __doc__, EXAMPLES)
    parser.add_argument("place", metavar="PLACE", help="folder of a run or of a sequence")
    about = f"the page (default: {FILE} in the folder of the run or sequence)"
    parser.add_argument("--output", metavar="FILE", help=about)
    options = parser.parse_args(arguments)
    place = Path(options.place)
    output = Path(options.output) if options.output else place / FILE
    if place.is_dir():  # else `report` says what it expected
        writable_folder(output.parent)
    if output.is_dir():
        raise ConfigError(f"--output={options.output} is a folder: give the file of the page.")
    page = report(place)
    command = shlex.join(["python", "-m", "ritornello.analysis", "report", str(place)])
    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
    write_text(output, page.html(f"Made on {made} by version {VERSION} with: {command}"))
    for problem in page.problems:
        sys.stderr.write(f"cannot be shown: {problem}\n")
    size = f"{output.stat().st_size / 1e6:.1f} MB"
    sys.stdout.write(f"written: {shown_text(str(output))} ({size})\n")
    return 1 if page.problems else 0


def report(place: Path) -> Page:
    """Return the page about a run or a sequence.

    Raises:
      ConfigError: if `place` is neither, or a file of it is a link that leads out of it.
    """
    page = Page(place.resolve().name)
    if (place / STATE_FILE).is_file():
        _add_sequence(page, place)
    elif any((place / name).is_file() for name in RUN_FILES):
        _add_run(page, place)
    else:
        raise ConfigError(
            f"{shown_text(str(place))} is no run and no sequence. Expected a folder with "
            f"{', '.join(RUN_FILES[:-1])} or {RUN_FILES[-1]} (a run), or with {STATE_FILE} (a "
            "sequence)."
        )
    return page


def _add_sequence(page: Page, place: Path) -> None:
    """Add the parts about a sequence; skip it if its runs lie elsewhere."""
    _check_inside(place, place / STATE_FILE)
    folder = SequenceFolder.open(place)
    made = {run.name: folder.run_folders(run) for run in folder.runs}
    for each in (each for folders in made.values() for each in folders):
        _check_inside(place, each.path, each.metrics_file, each.flags_file, each.run_file)
    compared = compare_sequence(folder)

    def curves() -> Iterator[str]:
        for game in compared.games[:MAX_FIGURES]:
            yield picture(png(games_figure([game])), f"Figure: curves in {game.env}")
        with suppress(ConfigError):  # no configuration has runs in all games
            if profiles := profiles_figure(scored_of(compared.games)):
                yield picture(png(profiles), "Figure: performance profiles")

    def films() -> Iterator[str]:
        for name, folders in made.items():
            for each in folders:
                yield f"### {shown_text(name)}"
                yield from _films(each.path, FILM_BYTES // len(made))

    flags = [(run.name, *pair) for run in folder.runs for pair in run.flags.items()]
    resume = f"{PLAIN_SEQUENCE} --resume={shlex.quote(str(place))}"
    begun = dict.fromkeys(map(folder.command, folder.runs)) or [folder.command()]
    again = [*begun, resume, shlex.join([*COMPARE, f"--sequence_folder={place}"])]
    page.add("Comparison", lambda: [sequence_page(compared)])
    page.add("Figures", curves)
    page.add("Flags of each run", lambda: [table(("run", "flag", "value"), flags)])
    page.add("Films", films)
    page.add("The same again", lambda: [code(again)])


def _check_inside(place: Path, *paths: Path) -> None:
    """Raise ConfigError if a path is a link that leads out of the folder `place`."""
    for path in paths:
        if not is_inside(path, (place,)):
            raise ConfigError(f"{shown_text(str(path))} is a link that leads out of the folder.")


def _add_run(page: Page, place: Path) -> None:
    """Add the parts about one run. A file that is a link is not read."""
    files = (RECORDS, GAMES, EVALUATIONS, FLAGS)  # which figures and records are read from
    _check_inside(place, *(place / name for name in files))
    results, run = ResultsFolder(place.resolve().parent), place.resolve().name
    flags, started, records = results.json(run, FLAGS), sessions(results, run), read_records(place)

    def figures() -> Iterator[str]:
        for name, figure in run_figures(place):
            yield picture(png(figure), f"Figure: {name}")

    found, evaluated = findings(results, run), evaluations(results, run)
    finding = ("agent_steps", "name", "message", "advice")
    page.add("Result", lambda: _result(results, run, records))
    page.add("What was run", lambda: _what(started))
    page.add("Flags", lambda: _flags(flags))
    page.add("Figures", figures)
    page.add("Findings", lambda: [objects(found, finding, "No metric left its healthy range.")])
    page.add("Evaluations", lambda: [objects(evaluated, (), "The training was not evaluated.")])
    page.add("Tests", lambda: _tests(results, run))
    page.add("Machine and energy", lambda: _machine(records))
    page.add("Films", lambda: _films(place, FILM_BYTES))
    page.add("The same again", lambda: _again(place, started, flags.get("seed")))
    page.add("End of the log", lambda: [code(log_tail(results, run))])


def _result(results: ResultsFolder, run: str, records: Sequence[Record]) -> Iterator[str]:
    """Yield how far a run came, and its score."""
    files = {name: results.json(run, name) for name in (SUMMARY, STATUS, FLAGS, SESSIONS)}
    for name, found in files.items():
        if not found and results.facts(run, name)[1] > len("{}\n"):
            yield f"{name} is damaged, or not a regular file: nothing is shown of it."
    flags, summary = files[FLAGS], files[SUMMARY]
    known = {
        "environment": flags.get("env"),
        "seed": flags.get("seed"),
        "state": summary.get("reason") or files[STATUS].get("state") or "not known",
        "planned agent steps": flags.get("environment_max_steps"),
        "best mean return": summary.get("best_mean_return"),
    }
    if records:
        newest = records[-1]
        known |= {
            "agent steps": f"{newest.agent_steps:,}",
            "frames of the simulator": f"{newest.frames:,}",
            "updates": f"{newest.updates:,}",
            "games": f"{newest.episodes:,}",
            "mean return of the last games": newest.values.get("episode/return_mean"),
            "mean score over the games": newest.values.get("episode/score_mean"),
            "best game": newest.values.get("episode/return_best"),
            "running time": duration(newest.wall_s),
        }
    else:
        yield "The run has not written a record."
    yield facts(known)


def _what(started: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the facts of run.json about each session."""
    for number, session in enumerate(started, start=1):
        yield f"### Session {number} of {len(started)}"
        versions = session.get("versions") or {}
        yield facts(
            {
                "begun": session.get("started"),
                "command": shlex.join(map(str, session.get("command_line", []))),
                "version": session.get("version"),
                "commit": commit_text(session.get("source") or {}),
                "libraries": ", ".join(starmap("{} {}".format, versions.items())),
                "machine": machine_text(session.get("machine") or {}),
            }
        )
        if session.get("control"):
            yield "What a person changed while it ran:"
            yield objects(session["control"], ("updates", "command", "values", "result"), "")
    if not started:
        yield "run.json is missing."


def _flags(flags: Mapping[str, Any]) -> Iterator[str]:
    """Yield all flags, those that differ from their defaults first."""
    own = default_flags()
    rows = [
        (name, value, own.get(name, "no flag of this version")) for name, value in flags.items()
    ]
    yield table(("flag", "value", "default"), sorted(rows, key=lambda row: row[1] == row[2]))


def _tests(results: ResultsFolder, run: str) -> Iterator[str]:
    """Yield the results of test mode: a row for each game of each test."""
    about = ("env", "checkpoint", "agent_steps", "policy", "episodes")
    rows: list[dict[str, Any]] = []
    for path in sorted((results.root / run).glob("test_*.json")):
        found = results.json(run, path.name)
        rows += [{"file": path.name, **game} for game in found.get("games", [found])]
    yield objects(rows, ("file", *about, "mean", "human_normalised"), "The run was not tested.")


def _again(place: Path, started: Sequence[dict[str, Any]], seed: object) -> Iterator[str]:
    """Yield the commands that made a run, and the one that compares it."""
    lines = own_commands(started) if started else []
    if type(seed) is int:  # else it is no seed, and nobody should paste it into a shell
        lines = [line.replace("<seed>", str(seed)) for line in lines]
    lines = [line.replace("<run>", shlex.quote(str(place))) for line in lines]
    yield code([*lines, shlex.join([*COMPARE, f"--runs={place}"])])
    yield "Where the command leaves flags out, their values are in the table above."


def _machine(records: Sequence[Record]) -> Iterator[str]:
    """Yield how the run used its machine: the mean over the records and the highest value."""
    book = EnergyBook(records)
    rows = [
        ("undisturbed: nothing else used the machine", share_text(undisturbed_share(records)), ""),
        ("energy", energy_text(book.joules if book.steps else None), ""),
        ("energy per million agent steps", energy_text(book.joules_per_million_steps), ""),
    ]
    names = sorted({n for r in records for n in r.values if n.startswith(("system/", "through"))})
    for name in names:
        values = [record.values[name] for record in records if name in record.values]
        rows.append((name, short(sum(values) / len(values)), short(max(values))))
    yield table(("reading", "mean", "highest"), rows)


def _films(place: Path, room: int) -> Iterator[str]:
    """Yield the films below a run, the newest first, in at most `room` bytes."""
    found = [
        path
        for path in place.rglob("[!.]*")  # a film that is being made is hidden
        if path.suffix in FILM_KINDS and path.is_file() and is_inside(path, (place,))
    ]
    for path in sorted(found, key=lambda each: -each.stat().st_mtime):
        size = path.stat().st_size
        if size > room:
            yield f"{shown_text(str(path))} ({size / 1e6:.1f} MB) is not part of this page."
            continue
        room -= size
        yield shown_text(path.name)
        yield picture(path.read_bytes(), path.name, FILM_KINDS[path.suffix])
    if not found:
        yield "There are no films."
