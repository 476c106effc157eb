"""docs/library.md and docs/library.ipynb do what they say: their code is run, in order."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT
from tests.library.notebook import code_cells, run_notebook

PAGE = ROOT / "docs" / "library.md"
NOTEBOOK = ROOT / "docs" / "library.ipynb"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.process
@pytest.mark.slow
def test_every_block_of_python_runs_in_one_interpreter(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code in blocks("python"):
        exec(compile(code, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert re.match(r"steps 2\d{4} ", printed)
    assert "interrupted" in printed
    assert "(3,) (3, 2)" in printed
    wait = threading.Event()
    for _ in range(int(HANGS_S * 20)):
        left = [t.name for t in threading.enumerate() if t.name.startswith("learner")]
        if not left:
            break
        wait.wait(0.05)
    assert not left


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trackio") is None, reason="Trackio is not installed")
def test_the_training_with_a_tracker_runs(tmp_path):
    (command,) = [code for code in blocks("bash") if "main.py" in code]
    (tmp_path / "main.py").symlink_to(ROOT / "main.py")
    subprocess.run(
        ["bash", "-e", "-c", command.replace("python ", f"{sys.executable} ")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        timeout=HANGS_S,
        check=True,
    )
    (log,) = (tmp_path / "results").glob("*/train.log")
    assert "Trackio cannot be written to" not in log.read_text("utf-8")
    assert json.loads(log.with_name("trackers.json").read_text())["trackio"]
    assert list(tmp_path.rglob("*.db"))


@pytest.mark.process
def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    kept = [[o["output_type"] for o in cell["outputs"]] for cell in code_cells(notebook)]
    assert all(kept[:-1]), "run python -m tests.library.notebook docs/library.ipynb"
    monkeypatch.chdir(tmp_path)
    run_notebook(notebook)
    now = [[o["output_type"] for o in cell["outputs"]] for cell in code_cells(notebook)]
    assert now == kept
    assert [cell["execution_count"] for cell in code_cells(notebook)] == list(
        range(1, len(kept) + 1)
    )
