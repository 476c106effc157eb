"""Server-sent events: a browser is told what has changed, and asks for it.

An event never carries the numbers themselves, only which parts have changed. A browser that missed
some, because the connection broke or the lid was closed, asks for what is new and has all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from ritornello.agent.run.control_file import CONTROL
from ritornello.core.run_layout import RECORDS
from ritornello.live.details import FILMS, PARTS
from ritornello.live.json_text import json_text
from ritornello.live.overview import STATE, Overview
from ritornello.live.places import ResultsFolder

RUN_POLL_S = 1.0  # a few calls of stat
LIST_POLL_S = 4.0  # 300 runs take 40 ms
STILL_HERE_S = 15.0  # so that a connection that is dead is noticed, on both sides
MAX_STREAMS = 24


class Streams:
    """The connections on which events are sent. Used in the event loop only."""

    def __init__(self, results: ResultsFolder, overview: Overview) -> None:
        """Have no connection yet."""
        self._results = results
        self._overview = overview
        self.open = 0
        self.closing = False

    def has_room(self) -> bool:
        """Whether one more connection may be opened."""
        return self.open < MAX_STREAMS and not self.closing

    def of_run(self, run: str) -> AsyncIterator[str]:
        """Yield events about one run: {"changed": [names of files]}."""
        seen: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            now = {n: self._results.facts(run, n) for n in (RECORDS, *PARTS, FILMS, CONTROL, STATE)}
            # The state also follows from whether a process is there.
            now["state"] = self._overview.of(run)["state"]
            changed = [name for name in now if seen.get(name) != now[name]]
            seen.update(now)
            return {"changed": changed} if changed else None

        return self._events(look, RUN_POLL_S)

    def of_all(self) -> AsyncIterator[str]:
        """Yield events about the list: {"runs": [those that changed], "gone": [names], ...}.

        The first says "all": true. It has every run, and what it lacks is there no more: only so a
        browser that was away knows. "now" is the time here.
        """
        seen: dict[str, dict[str, Any]] = {}
        is_first = True

        def look() -> dict[str, Any] | None:
            nonlocal is_first
            now = {about["run"]: about for about in self._overview.runs()}
            changed = [about for name, about in now.items() if seen.get(name) != about]
            gone = [name for name in seen if name not in now]
            seen.clear()
            seen.update(now)
            news = {"runs": changed, "gone": gone, "all": is_first, "now": time.time()}
            is_news = bool(changed or gone or is_first)
            is_first = False
            return news if is_news else None

        return self._events(look, LIST_POLL_S)

    async def _events(
        self, look: Callable[[], dict[str, Any] | None], poll_s: float
    ) -> AsyncIterator[str]:
        self.open += 1
        try:
            silent_s = 0.0
            while not self.closing:
                news = await asyncio.to_thread(look)
                if news is not None:
                    yield f"data: {json_text(news)}\n\n"
                    silent_s = 0.0
                elif silent_s >= STILL_HERE_S:
                    yield ": still here\n\n"
                    silent_s = 0.0
                await asyncio.sleep(poll_s)
                silent_s += poll_s
        finally:
            self.open -= 1
