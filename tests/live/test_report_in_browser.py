"""The page of `analysis report` in a real browser: it asks for nothing, runs nothing, and fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ritornello.analysis.report import FILE, main
from tests.analysis.builders import write_sequence
from tests.analysis.test_report import HOSTILE, complete_run
from tests.deadlines import HANGS_S
from tests.live.test_browser import SIZES, chromium, pytestmark

__all__ = ["chromium", "pytestmark"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("reports")
    run = complete_run(folder / "a run with a rather long name that does not fit beside anything")
    (run / "train.log").write_text(f"12:00 INFO {HOSTILE}\n{'unbroken' * 100}\n")
    games = ("PongNoFrameskip-v4", "BreakoutNoFrameskip-v4")
    groups = [(f"{n} {HOSTILE} env={env}", env, n / 100) for n in (1, 2) for env in games]
    sequence = write_sequence(folder / "sequence", groups)
    for place in (run, sequence):
        assert main([str(place)]) == 0
    return [run / FILE, sequence / FILE]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_asks_for_nothing_and_runs_nothing(
    chromium: Any, pages: list[Path], size: tuple[int, int], scheme: str, tmp_path: Path
) -> None:
    script = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
    script = script[script.index("() =>") :]
    for path in pages:
        problems: list[str] = []
        asked: list[str] = []
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        context.set_default_timeout(1000 * HANGS_S)
        tab = context.new_page()
        tab.on("console", lambda message, problems=problems: problems.append(message.text))
        tab.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
        tab.on("dialog", lambda dialog, problems=problems: problems.append("code was run"))
        tab.on("request", lambda request, asked=asked: asked.append(request.url))
        tab.goto(path.as_uri())
        for summary in tab.query_selector_all("summary"):
            summary.click()
        assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
        assert problems == []
        assert tab.evaluate(script) == []
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert all(
            tab.evaluate("[...document.querySelectorAll('img')].map((x) => x.naturalWidth > 0)")
        )
        context.close()
