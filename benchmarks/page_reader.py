"""Someone who watches: the live page's server, and the requests that a browser makes with it open.

No browser is started: it usually runs on another machine, and draws there. The server does all that
it does for one: it follows the files, and answers the list of runs and then the page of the run.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

from benchmarks.programs import running

START = "live page: "
REQUEST_S = 120.0  # a server that is frozen for a while (bench_evaluation.py) answers later
END_S = 10.0
RETRY_S = 1.0  # until there is a run to be watched


class PageReader:
    """Asks as the page does, on a thread of its own."""

    def __init__(self, address: str, server_pid: int) -> None:
        """Open the page.

        Args:
          address: as the program prints it, with its token.
          server_pid: process that serves it.
        """
        self.server_pid = server_pid
        parts = urlsplit(address)
        self._root = f"{parts.scheme}://{parts.netloc}"
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        self._opener.open(address, timeout=REQUEST_S).close()  # leaves the cookie
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.updates = 0  # how often something new was shown
        self.problem = ""

    def start(self) -> None:
        """Begin to watch the first run that there is."""
        self._thread.start()

    def stop(self) -> None:
        """Close the page: the stream of events ends with its server."""
        self._ended.set()

    def _watch(self) -> None:
        try:
            about = self._ask("session")
            names = sorted({name for chart in about["charts"] for name in chart["metrics"]})
            while not (runs := self._ask("runs")["runs"]):
                if self._ended.wait(RETRY_S):
                    return
            self._follow(runs[0]["run"], ",".join(names))
        except (OSError, ValueError, KeyError) as error:
            if not self._ended.is_set():
                self.problem = f"{type(error).__name__}: {error}"

    def _follow(self, run: str, names: str) -> None:
        known: dict[str, int] = {}
        query = urlencode({"run": run})
        with self._opener.open(f"{self._root}/api/events?{query}", timeout=REQUEST_S) as events:
            for line in events:
                if self._ended.is_set():
                    return
                if not line.startswith(b"data:"):
                    continue
                self._ask("run", run=run)
                rows = self._ask("rows", run=run, names=names, **known)
                known = {"after": rows["total"], "generation": rows["generation"]}
                self.updates += 1

    def _ask(self, what: str, **query: Any) -> dict[str, Any]:
        address = f"{self._root}/api/{what}?{urlencode(query)}"
        with self._opener.open(address, timeout=REQUEST_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@contextlib.contextmanager
def watched(results: str) -> Iterator[PageReader]:
    """Serve the page of a results folder, and watch its first run, within the block."""
    command = [sys.executable, "-m", "live", results, "--port=0"]
    with running(
        command, grace_s=END_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        line = next((each for each in server.stdout if each.startswith(START)), None)
        if line is None:
            sys.exit("the live page did not start: pip install -e '.[live]'")
        reader = PageReader(line.removeprefix(START).strip(), server.pid)
        reader.start()
        yield reader
        reader.stop()
