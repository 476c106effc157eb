"""The routes: what a browser may ask for, and what it gets.

Next to read: guard.py, which every request passes first.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ritornello.agent.run.control_file import CONTROL, NAME, SETTINGS, write_command
from ritornello.analysis.places import (
    MAX_ROWS,
    NotThereError,
    ResultsFolder,
    evaluations,
    findings,
    log_tail,
    sessions,
)
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import json_text, parse_json
from ritornello.core.project import PLAIN_MAIN
from ritornello.core.run_layout import FILMS, FLAGS, STATUS, SUMMARY
from ritornello.core.version import VERSION
from ritornello.live.comparison import Comparisons, Question
from ritornello.live.guard import Guard, Keys
from ritornello.live.journal import Journal
from ritornello.live.overview import RUNNING, SILENT_S, Overview
from ritornello.metrics.charts import COLOURS, OVERVIEW, Chart
from ritornello.metrics.record import METRICS

STATIC = Path(__file__).resolve().parent / "static"
STATIC_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES = ("/", "/run", "/compare")  # one file, which reads the address
MACHINE = (
    Chart("Processor", ("system/cpu_percent",), "%"),
    Chart("Share of the machine", ("system/own_cpu_share",), "fraction"),
)
# Files of a run that a browser is given as they are. None of them can hold code.
KINDS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif", ".png": "image/png"}
OF_SESSION = ("started", "version", "source", "machine", "control")
MAX_BODY_BYTES = 10_000  # of a command
MAX_NAMES = 300  # metrics at once: of all Atari games two each, and the charts
MAX_JOURNALS = 24  # that are kept in memory, the latest used
MIN_GZIP_BYTES = 2000
GZIP_LEVEL = 4  # it runs beside a training


class Page:
    """State that the routes share."""

    def __init__(self, results: ResultsFolder, keys: Keys) -> None:
        """Serve the runs below a folder."""
        self.results = results
        self.keys = keys
        self._journal = lru_cache(MAX_JOURNALS)(partial(Journal, results))
        self.overview = Overview(results)
        self.comparisons = Comparisons(results)
        self.files = {
            path.name: (path.read_bytes(), STATIC_KINDS[path.suffix])
            for path in sorted(STATIC.iterdir())
            if path.suffix in STATIC_KINDS
        }

    def index(self, request: Request) -> Response:
        """Return the page itself."""
        content, kind = self.files["index.html"]
        return Response(content, media_type=kind)

    def static(self, request: Request) -> Response:
        """Return a file that the page consists of."""
        found = self.files.get(request.path_params["name"])
        if found is None:
            raise NotThereError("there is no such file")
        return Response(found[0], media_type=found[1])

    def session(self, request: Request) -> Response:
        """Return the facts that the page needs once."""
        return _json(
            {
                "post": self.keys.post,
                "now": time.time(),
                "silent_s": SILENT_S,
                "version": VERSION,
                "results": str(self.results.root),
                "colours": COLOURS,
                "settings": {
                    name: {"low": each.low, "high": each.high, "about": each.about}
                    for name, each in SETTINGS.items()
                },
                "charts": [
                    {"title": chart.title, "unit": chart.unit, "metrics": chart.metrics}
                    for chart in (*OVERVIEW, *MACHINE)
                ],
                "metrics": {
                    name: {"unit": info.unit, "doc": info.doc} for name, info in METRICS.items()
                },
            }
        )

    def runs(self, request: Request) -> Response:
        """Return a line about each run, unless the browser has it."""
        return _news({"runs": self.overview.runs()}, request)

    def run(self, request: Request) -> Response:
        """Return the facts about one run besides its curves, unless the browser has them."""
        run, results = self._run(request), self.results
        summary, journal = results.json(run, SUMMARY), self._journal(run)
        journal.read()
        every = sessions(results, run)
        newest = every[-1] if every else {}
        commands = [name for name, _ in results.listing(run, CONTROL) if NAME.fullmatch(name)]
        about = {
            "flags": results.json(run, FLAGS),
            "status": results.json(run, STATUS),
            "summary": {name: summary[name] for name in summary if name != "findings"},
            "findings": findings(results, run),
            "evaluations": evaluations(results, run),
            "films": self._films(run),
            "session": {
                "count": len(every),
                "command": _command(newest),
                **{name: newest[name] for name in OF_SESSION if name in newest},
            },
            "names": journal.names(),
            "newest": journal.newest(),
            "log": log_tail(results, run),
            "waiting": len(commands),  # that the run has not answered yet
        }
        return _news({**self.overview.of(run), **about}, request)

    def _films(self, run: str) -> list[dict[str, Any]]:
        """Return films and pictures of evaluations, the newest first."""
        return [
            {"name": f"{FILMS}/{name}", "time": facts.st_mtime}
            for name, facts in self.results.listing(run, FILMS)
            if os.path.splitext(name)[1].lower() in KINDS and name.isprintable()
        ][: -MAX_ROWS - 1 : -1]

    def rows(self, request: Request) -> Response:
        """Return the rows of some metrics, thinned."""
        names = [name for name in request.query_params.get("names", "").split(",") if name]
        journal = self._journal(self._run(request))
        journal.read()
        return _json(journal.rows(names[:MAX_NAMES]))

    def compare(self, request: Request) -> Response:
        """Return the comparison of some runs."""
        return _json(self.comparisons.answer(_question(request)))

    def compare_png(self, request: Request) -> Response:
        """Return the figure of a comparison."""
        return Response(self.comparisons.picture(_question(request)), media_type="image/png")

    def file(self, request: Request) -> Response:
        """Return a film or a picture of a run, or the part of it that a player asks for."""
        run, name = self._run(request), request.query_params.get("name", "")
        kind = KINDS.get(os.path.splitext(name)[1].lower())
        if kind is None:
            raise NotThereError("only films and pictures of a run are shown")
        return FileResponse(self.results.path(run, name), media_type=kind)

    async def control(self, request: Request) -> Response:
        """Put a command into the control folder of a run that takes it."""
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return _problem(413, "The command is too long.")
        return await run_in_threadpool(self._control, request, body)

    def _control(self, request: Request, body: bytes) -> Response:
        run = self._run(request)
        wish = parse_json(body.decode("utf-8", "replace"), "the command")
        if not isinstance(wish, dict) or not isinstance(wish.get("values", {}), dict):
            raise ConfigError("expected a command with its values.")
        takes_commands = self.results.json(run, STATUS).get("control")
        if self.overview.of(run)["state"] not in RUNNING or not takes_commands:
            return _problem(409, "This run takes no commands: no process trains it any more.")
        try:
            name = str(wish.get("command"))
            identity = write_command(self.results.folder(run), name, wish.get("values"))
        except OSError as error:
            return _problem(403, f"The command cannot be written there: {error.strerror}.")
        return _json({"id": identity}, 202)

    def _run(self, request: Request) -> str:
        run = request.query_params.get("run", "")
        self.results.folder(run)
        return run


def application(page: Page, hosts: tuple[str, ...], *, any_address: bool = False) -> ASGIApp:
    """Return the whole application, guarded; `hosts` and `any_address` are those of `Guard`."""
    routes = [
        *(Route(path, page.index) for path in PAGES),
        Route("/static/{name}", page.static),
        Route("/api/session", page.session),
        Route("/api/runs", page.runs),
        Route("/api/run", page.run),
        Route("/api/rows", page.rows),
        Route("/api/compare", page.compare),
        Route("/api/compare.png", page.compare_png),
        Route("/api/file", page.file),
        Route("/api/control", page.control, methods=["POST"]),
    ]
    inner = Starlette(
        routes=routes,
        middleware=[
            Middleware(GZipMiddleware, minimum_size=MIN_GZIP_BYTES, compresslevel=GZIP_LEVEL)
        ],
        exception_handlers={
            NotThereError: _handler(404),
            ConfigError: _handler(422),
            PlatformError: _handler(400),
        },
    )
    return Guard(inner, keys=page.keys, hosts=hosts, any_address=any_address)


def _question(request: Request) -> Question:
    query = request.query_params
    text = query.get("at_steps", "")
    at_steps = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    runs = tuple(dict.fromkeys(query.getlist("run")))
    return Question(runs, float(at_steps) if at_steps > 0 else None, query.get("apart") == "1")


def _command(session: dict[str, Any]) -> str:
    """Return the command that began a session; "" if it is not known."""
    typed = session.get("command_line")
    return f"{PLAIN_MAIN} {shlex.join(map(str, typed[1:]))}" if isinstance(typed, list) else ""


def _json(data: dict[str, Any], status: int = 200) -> Response:
    return Response(json_text(data), status, media_type="application/json")


def _news(data: dict[str, Any], request: Request) -> Response:
    """Return data with a digest of it, or nothing (204) if the browser names this digest."""
    seen = hashlib.blake2b(json_text(data).encode(), digest_size=8).hexdigest()
    if request.query_params.get("seen") == seen:
        return Response(status_code=204)
    return _json({**data, "seen": seen, "now": time.time()})


def _problem(status: int, text: str) -> Response:
    return _json({"error": text}, status)


def _handler(status: int) -> Callable[[Request, Exception], Response]:
    def answer(_: Request, error: Exception) -> Response:
        return _problem(status, str(error))

    return answer
