"""The page in a real browser, against runs that grow: as its user sees it.

They need Chromium (such as Debian's package of that name) and extra browser, and are
skipped where one of them is missing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT
from tests.live.builders import hold, make_run, record, write_records, write_status

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = [(375, 812), (1600, 1000)]
HOSTILE_TEXT = "<img src=x onerror=alert(1)><script>alert(2)</script>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
    pytest.mark.skipif(
        not HAS_PLAYWRIGHT, reason="playwright is missing: pip install -e '.[browser]'"
    ),
]


@dataclass
class Site:
    """A page that is served, and the runs that it shows."""

    results: Path
    address: str  # with the token
    base: str = ""

    def __post_init__(self) -> None:
        self.base = self.address.partition("/?")[0]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    results = tmp_path / "results"
    queue = [{"type": "queue", "capacity": 32, "sample_ratio": 1}]
    for seed in (1, 2, 3):
        scores = [record(n, score=10.0 * seed + n / 3) for n in range(1, 60)]
        folder = make_run(results, f"seq/{seed}/Pong", scores, seed=seed, replay_parameters=queue)
        (folder / "summary.json").write_text("{}", encoding="utf-8")
    folder = make_run(results, "growing", 50)
    hold(folder)
    write_status(folder, findings=1, workers=[{"number": 0, "doing": HOSTILE_TEXT}])
    (folder / "findings.jsonl").write_text(
        json.dumps({"name": "a", "message": HOSTILE_TEXT, "advice": "lower --lr"}) + "\n"
    )
    (folder / "train.log").write_text(f"12:00 INFO {HOSTILE_TEXT}\n", encoding="utf-8")
    program = subprocess.Popen(
        [sys.executable, "-m", "ritornello.live", str(results)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert program.stdout is not None
        line = program.stdout.readline()
        found = re.fullmatch(r"live page: (http://127\.0\.0\.1:\d+/\?token=\S{40,})\n", line)
        assert found, line
        yield Site(results, found[1])
    finally:
        program.terminate()
        assert program.wait(HANGS_S) == 0
        program.stdout.close()  # type: ignore[union-attr]


@dataclass
class Tab:
    """A tab of the browser, with all that went wrong in it."""

    page: Any
    site: Site
    problems: list[str] = field(default_factory=list)

    def open(self, path: str, until: str) -> None:
        self.page.goto(self.site.base + path)
        self.page.wait_for_selector(until)

    def text(self, selector: str) -> str:
        return str(self.page.text_content(selector))

    def check(self) -> None:
        """Fail for errors, requests to elsewhere, a page wider than the screen, and barriers."""
        assert self.problems == []
        script = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
        script = script[script.index("() =>") :]
        assert self.page.evaluate(script) == []
        assert self.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


def tab_of(chromium: Any, site: Site, size: tuple[int, int], scheme: str) -> Tab:
    width, height = size
    context = chromium.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(1000 * HANGS_S)
    tab = Tab(context.new_page(), site)
    tab.page.on("console", lambda message: tab.problems.append(f"console: {message.text}"))
    tab.page.on("pageerror", lambda error: tab.problems.append(f"error: {error}"))
    tab.page.on("dialog", lambda dialog: tab.problems.append("code of a file was run"))

    def heard(request: Any) -> None:
        if not request.url.startswith((f"{site.base}/", "data:")):
            tab.problems.append(f"request to {request.url}")

    tab.page.on("request", heard)
    tab.page.goto(site.address)
    tab.page.wait_for_selector(".runs .name a")
    return tab


@pytest.fixture
def tab(chromium: Any, site: Site) -> Iterator[Tab]:
    opened = tab_of(chromium, site, SIZES[1], "light")
    yield opened
    opened.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_each_view_is_whole_and_has_no_barrier(
    chromium: Any, site: Site, size: tuple[int, int], scheme: str
) -> None:
    tab = tab_of(chromium, site, size, scheme)
    assert "token" not in tab.page.url
    assert tab.page.locator(".runs tbody tr").count() == 4
    tab.check()

    tab.page.click("text=growing")
    tab.page.wait_for_selector(".big canvas")
    tab.page.wait_for_selector(".connection[data-state=live]", state="attached")
    tab.check()
    tab.page.click("text=by minutes")
    assert HOSTILE_TEXT in tab.text(".log")
    assert tab.page.locator("main img").count() == 0

    query = "&".join(f"run=seq/{seed}/Pong" for seed in (1, 2, 3))
    tab.open(f"/compare?{query}", "img.figure")
    assert "python -m ritornello.analysis compare" in tab.text(".log")
    tab.check()
    tab.page.context.close()


def test_the_page_follows_a_run_that_grows_and_one_that_goes_back(tab: Tab) -> None:
    tab.open("/run?run=growing", ".big canvas")
    folder = tab.site.results / "growing"
    write_records(folder, [record(51, score=1234.0)], append=True)
    tab.page.wait_for_selector(".big .legend:has-text('1234')")
    shorter = folder / "shorter"
    shorter.write_text("".join(record(n, score=77.0).to_json() + "\n" for n in range(1, 5)))
    shorter.replace(folder / "metrics.jsonl")
    tab.page.wait_for_selector(".big .legend:has-text('77')")
    (folder / "metrics.jsonl").unlink()
    tab.page.wait_for_selector(".big .plot.empty")
    tab.check()


def test_nobody_else_gets_in(chromium: Any, site: Site) -> None:
    page = chromium.new_context().new_page()
    answer = page.goto(f"{site.base}/")
    assert answer.status == 403
    assert "printed in its terminal" in page.text_content("body")
    page.context.close()
