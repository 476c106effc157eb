"""The routes: what a browser may ask for, and what it gets.

Next to read: guard.py, which every request passes first.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ritornello.agent.run.control_file import SETTINGS, write_command
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import parse_json
from ritornello.core.version import VERSION
from ritornello.live.comparison import Comparisons, Question
from ritornello.live.details import KINDS, details
from ritornello.live.events import Streams
from ritornello.live.export import csv_of
from ritornello.live.guard import App, Guard, Keys
from ritornello.live.journal import MAX_POINTS, Journals
from ritornello.live.json_text import encoded, json_text
from ritornello.live.overview import SILENT_S, STATE, Overview, is_running
from ritornello.live.places import NotThereError, ResultsFolder
from ritornello.metrics.charts import COLOURS, OVERVIEW, Chart
from ritornello.metrics.record import METRICS

STATIC = Path(__file__).resolve().parent / "static"
STATIC_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES = ("/", "/run", "/compare")  # one file; what it shows follows from the address
MACHINE = (
    Chart("Processor", ("system/cpu_percent",), "%"),
    Chart("Share of the machine", ("system/own_cpu_share",), "fraction"),
)
MAX_BODY_BYTES = 10_000  # of a command
MAX_NAMES = 100  # metrics at once
READ_BYTES = 256_000
MIN_GZIP_BYTES = 2000
GZIP_LEVEL = 4  # it runs beside a training


class Page:
    """All that the routes share."""

    def __init__(self, results: ResultsFolder, keys: Keys) -> None:
        """Serve the runs below a folder."""
        self.results = results
        self.keys = keys
        self.journals = Journals(results)
        self.overview = Overview(results)
        self.comparisons = Comparisons(results)
        self.streams = Streams(results, self.overview)
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
        """Return what the page needs to know once."""
        charts = [(chart.title, chart.unit, chart.metrics) for chart in (*OVERVIEW, *MACHINE)]
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
                "charts": [dict(zip(("title", "unit", "metrics"), c, strict=True)) for c in charts],
                "metrics": {
                    name: {"unit": info.unit, "doc": info.doc, "healthy": info.healthy}
                    for name, info in METRICS.items()
                },
            }
        )

    def runs(self, request: Request) -> Response:
        """Return a line about each run."""
        return _json({"runs": self.overview.runs(), "now": time.time()})

    def run(self, request: Request) -> Response:
        """Return what is known of one run beside its curves."""
        run = self._run(request)
        journal = self.journals.at_once(run)
        about = {**self.overview.of(run), **details(self.results, run, journal)}
        return _json({**about, "now": time.time()})

    def rows(self, request: Request) -> Response:
        """Return the rows of some metrics, all of them thinned or the new ones."""
        run = self._run(request)
        names = [name for name in request.query_params.get("names", "").split(",") if name]
        journal = self.journals.at_once(run)
        if journal is None:
            return _json(self.journals.preview(run, names[:MAX_NAMES]).to_json())
        rows = journal.rows(
            names[:MAX_NAMES],
            after=_whole(request, "after", 0),
            generation=_whole(request, "generation", -1),
            points=max(2, _whole(request, "points", MAX_POINTS)),
        )
        return _json(rows.to_json())

    def run_csv(self, request: Request) -> Response:
        """Return all metrics of a run as CSV."""
        run = self._run(request)
        name = f"{run.rpartition('/')[2]}.csv"
        return StreamingResponse(
            csv_of(self.journals.of(run)), media_type="text/csv", headers=_download(name)
        )

    def compare(self, request: Request) -> Response:
        """Return the comparison of some runs."""
        return _json(self.comparisons.answer(_question(request)))

    def compare_png(self, request: Request) -> Response:
        """Return the figure of a comparison."""
        picture = self.comparisons.picture(_question(request))
        return Response(picture, media_type="image/png", headers=_download("comparison.png"))

    def compare_csv(self, request: Request) -> Response:
        """Return the curves of a comparison."""
        table = self.comparisons.table(_question(request))
        return Response(encoded(table), media_type="text/csv", headers=_download("comparison.csv"))

    def file(self, request: Request) -> Response:
        """Return a film or a picture of a run, or the part of it that a player asks for."""
        run, name = self._run(request), request.query_params.get("name", "")
        kind = KINDS.get(os.path.splitext(name)[1].lower())
        if kind is None:
            raise NotThereError("only films and pictures of a run are shown")
        return _part_of(self.results.open(run, name), request.headers.get("range", ""), kind)

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
        if not is_running(self.overview.of(run)["state"]) or not self.results.json(run, STATE):
            return _problem(409, "This run takes no commands: no process trains it any more.")
        try:
            name = str(wish.get("command"))
            identity = write_command(self.results.folder(run), name, wish.get("values"))
        except OSError as error:
            return _problem(403, f"The command cannot be written there: {error.strerror}.")
        return _json({"id": identity}, 202)

    async def events(self, request: Request) -> Response:
        """Return a stream of events about one run, or about all."""
        if not self.streams.has_room():
            return _problem(503, "Too many pages are open: close some of them.")
        if "run" in request.query_params:
            run = await run_in_threadpool(self._run, request)
            events = self.streams.of_run(run)
        else:
            events = self.streams.of_all()
        return StreamingResponse(events, media_type="text/event-stream")

    def _run(self, request: Request) -> str:
        run = request.query_params.get("run", "")
        self.results.folder(run)
        return run


def application(
    results: ResultsFolder, keys: Keys, hosts: tuple[str, ...], *, any_address: bool = False
) -> App:
    """Return the whole application, guarded.

    Args:
      results: what is shown.
      keys: the secrets of this start.
      hosts: names by which a browser may call this machine.
      any_address: whether it may also be called by a number.
    """
    return application_of(Page(results, keys), hosts, any_address=any_address)


def application_of(page: Page, hosts: tuple[str, ...], *, any_address: bool = False) -> App:
    """Return the application of a page; see `application`."""
    routes = [
        *(Route(path, page.index) for path in PAGES),
        Route("/static/{name}", page.static),
        Route("/api/session", page.session),
        Route("/api/runs", page.runs),
        Route("/api/run", page.run),
        Route("/api/rows", page.rows),
        Route("/api/run.csv", page.run_csv),
        Route("/api/compare", page.compare),
        Route("/api/compare.png", page.compare_png),
        Route("/api/compare.csv", page.compare_csv),
        Route("/api/file", page.file),
        Route("/api/events", page.events),
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
    at_steps = _whole(request, "at_steps", 0)
    runs = tuple(dict.fromkeys(query.getlist("run")))
    return Question(runs, float(at_steps) if at_steps > 0 else None, query.get("apart") == "1")


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def _json(data: dict[str, Any], status: int = 200) -> Response:
    return Response(json_text(data), status, media_type="application/json")


def _problem(status: int, text: str) -> Response:
    return _json({"error": text}, status)


def _handler(status: int) -> Callable[[Request, Exception], Response]:
    def answer(_: Request, error: Exception) -> Response:
        return _problem(status, str(error))

    return answer


def _download(name: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}"}


def _part_of(file: BinaryIO, wanted: str, kind: str) -> Response:
    """Return a file, or the range of it that a player wants; the file is closed at the end."""
    size = file.seek(0, os.SEEK_END)
    begin, end = _range(wanted, size)
    headers = {"accept-ranges": "bytes", "content-length": str(end - begin)}
    status = 200
    if wanted and (begin, end) != (0, size):
        status = 206
        headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"

    async def pieces() -> AsyncIterator[bytes]:
        with file:
            file.seek(begin)
            left = end - begin
            while left > 0:
                piece = await run_in_threadpool(file.read, min(READ_BYTES, left))
                if not piece:
                    return
                left -= len(piece)
                yield piece

    return StreamingResponse(pieces(), status, headers, kind)


def _range(wanted: str, size: int) -> tuple[int, int]:
    """Return [begin, end) of "bytes=first-last"; the whole file for anything that is not that."""
    unit, _, span = wanted.partition("=")
    first, dash, last = span.partition("-")
    if (
        unit != "bytes"
        or not dash
        or not (first + last).isdecimal()
        or not (first + last).isascii()
    ):
        return 0, size
    if len(first + last) > 36:
        return 0, size
    if not first:
        return max(0, size - int(last)), size
    end = min(size, int(last) + 1) if last else size
    return (int(first), end) if int(first) < end else (0, size)
