import os
import pstats
import subprocess
import sys

import pytest

from ritornello.core.process_settings import SETTINGS, environment_to_restart_with
from tests.house import ROOT
from tests.integration.commands import HANGS_S


def test_only_what_is_missing_is_added_and_only_once(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")  # the user's own choice
    environment = environment_to_restart_with()
    assert environment is not None
    assert {name: environment[name] for name in SETTINGS} == {
        **SETTINGS,
        "OPENBLAS_NUM_THREADS": "7",
    }
    for name in SETTINGS:
        monkeypatch.setenv(name, environment[name])
    assert environment_to_restart_with() is None  # main.py would start itself for ever


@pytest.mark.process
def test_a_profiler_goes_along_when_the_program_starts_itself_anew(tmp_path):
    profile = tmp_path / "profile"
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "cProfile", "-o", profile, "main.py", "--version"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGS_S, check=True,
    )  # fmt: skip
    assert "ritornello" in done.stdout
    assert any(name == "main" for _, _, name in pstats.Stats(str(profile)).stats)
