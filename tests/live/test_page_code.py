"""The code of the page in jsdom, against a server that answers what each test says.

They need node and jsdom, and are skipped where one of them is missing. Such as:

    npm install --prefix /somewhere jsdom@24 && export NODE_PATH=/somewhere/node_modules
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ritornello.live.server import STATIC
from tests.deadlines import HANGS_S

HERE = Path(__file__).resolve().parent
TESTS = HERE / "page_code.mjs"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.process,
    pytest.mark.browser,
    pytest.mark.skipif(NODE is None, reason="there is no node on this machine"),
]


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """What each test found, by its name: all run in one process, which takes a second to start."""
    page = tmp_path_factory.mktemp("page") / "static"
    shutil.copytree(STATIC, page)
    # A browser is told by the page that these are modules, and node by this.
    (page / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    said = subprocess.run(
        [str(NODE), str(TESTS), str(page)], capture_output=True, text=True, timeout=HANGS_S
    )
    if "Cannot find module 'jsdom'" in said.stderr:
        pytest.skip("jsdom is missing: see the head of this file")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert isinstance(found, dict)
    return found


def test_the_page_does_what_its_tests_say(problems):
    assert len(problems) > 10
    assert {name: problem for name, problem in problems.items() if problem} == {}
