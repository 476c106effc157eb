from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ritornello.live import events
from ritornello.live.events import Streams
from ritornello.live.overview import Overview
from ritornello.live.places import ResultsFolder
from tests.deadlines import HANGS_S
from tests.live.builders import make_run, record, write_records


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streams:
    monkeypatch.setattr(events, "LIST_POLL_S", 0.01)
    results = ResultsFolder(tmp_path)
    return Streams(results, Overview(results))


async def told(stream: AsyncIterator[str]) -> dict[str, Any]:
    event = await asyncio.wait_for(anext(stream), HANGS_S)
    news: dict[str, Any] = json.loads(event.removeprefix("data: "))
    return news


def names(news: dict[str, Any]) -> set[str]:
    return {about["run"] for about in news["runs"]}


def test_only_the_first_event_of_a_stream_has_the_whole_list(
    tmp_path: Path, streams: Streams
) -> None:
    """A browser that was away must know what went meanwhile, and no later event says so."""
    for name in "abc":
        make_run(tmp_path, name, 3)

    async def look() -> None:
        stream = streams.of_all()
        first = await told(stream)
        assert (first["all"], names(first), first["gone"]) == (True, {"a", "b", "c"}, [])
        assert abs(first["now"] - time.time()) < HANGS_S
        write_records(tmp_path / "a", [record(4)], append=True)
        later = await told(stream)
        assert (later["all"], names(later), later["gone"]) == (False, {"a"}, [])
        shutil.rmtree(tmp_path / "b")
        gone = await told(stream)
        assert (gone["all"], names(gone), gone["gone"]) == (False, set(), ["b"])
        again = await told(streams.of_all())
        assert (again["all"], names(again), again["gone"]) == (True, {"a", "c"}, [])

    asyncio.run(look())


def test_a_stream_says_also_that_there_is_no_run(streams: Streams) -> None:
    async def look() -> None:
        news = await told(streams.of_all())
        assert (news["all"], news["runs"], news["gone"]) == (True, [], [])

    asyncio.run(look())
