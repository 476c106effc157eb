"""docs/from_run_to_paper.md does what it says: its commands and its Python are run, in order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT

PAGE = ROOT / "docs" / "from_run_to_paper.md"


def run_blocks(place):
    """Run code blocks in a folder that has main.py; those of Python as one script, as a notebook.

    Returns:
      What they printed.
    """
    (place / "main.py").symlink_to(ROOT / "main.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    printed, script = "", ""
    text = PAGE.read_text(encoding="utf-8")
    for kind, code in re.findall(r"```(bash|python)\n(.*?)```", text, re.DOTALL):
        script = script + code if kind == "python" else script
        command = [sys.executable, "-c", script] if kind == "python" else ["bash", "-e", "-c", code]
        result = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=HANGS_S,
            check=False,
        )  # fmt: skip
        assert result.returncode == 0, f"{code}\n{result.stdout}\n{result.stderr}"
        printed += result.stdout
    return printed


def check_products(place):
    rows = (place / "measured.csv").read_text().splitlines()
    assert rows[0] == "run,agent_steps,episode/return_mean,policy/entropy,loss/value"
    assert len({row.split(",")[0] for row in rows[1:]}) == 2
    assert (place / "returns.pdf").read_bytes().startswith(b"%PDF")
    table = (place / "comparison" / "table.md").read_text()
    assert "| default | 2 |" in table
    assert "Left out" not in table
    assert (place / "comparison" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| default | 2 of 2 |" in (place / "comparison" / "to_score.md").read_text()
    assert "| default | 2 |" in (place / "comparison" / "profiles.md").read_text()
    assert (place / "comparison" / "profiles.png").read_bytes().startswith(b"\x89PNG")
    (report,) = (place / "results").glob("*/report.html")
    text = report.read_text(encoding="utf-8")
    assert "cannot be shown" not in text
    assert "data:image/png;base64," in text
    assert len(list((place / "comparison").glob("default_CartPole-v1_seed*.csv"))) == 2


@pytest.mark.process
@pytest.mark.slow
def test_the_whole_page_works_from_the_training_on(tmp_path):
    printed = run_blocks(tmp_path)
    assert "5 games of CartPole-v1" in printed
    assert "agent steps: nan" not in printed
    check_products(tmp_path)
    (written,) = (tmp_path / "results").glob("*/test_*.csv")
    assert len(written.read_text().splitlines()) == 6
    for name in ("flags.json", "run.json", "summary.json", "charts/returns.png"):
        assert len(list((tmp_path / "results").glob(f"*/{name}"))) == 2, name
