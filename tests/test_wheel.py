"""The package as a user installs it: a wheel, in an environment and a folder of the user's own."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT

pytestmark = pytest.mark.process
OF_THE_USER = ("agent/__init__.py", "core.py", "metrics.py", "replay.py", "flags.py", "main.py")
PROGRAM = """
import ritornello
if __name__ == "__main__":
    summary = ritornello.train(
        env="CartPole-v1", environment_max_steps=2000, worker_count=1, charts=False
    )
    reports = ritornello.evaluate(summary.folder, test_episode_count=1)
    shipped = ritornello.load_agent("models/pong")
    print("agent steps", summary.agent_steps, "reports", len(reports), shipped)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of a bare environment in which the wheel is installed, without network."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, tracked.split("\0")):  # a build leaves files beside its sources
        if (ROOT / name).exists() and not name.startswith(("tests/", "docs/", "research/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    quietly = {"check": True, "timeout": HANGS_S, "capture_output": True}
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    subprocess.run([*pip, *build], **quietly)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "bare"], **quietly)
    inside = folder / "bare" / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([inside, "-c", where], check=True, capture_output=True, text=True)
    libraries = Path(found.stdout.strip())
    (libraries / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (wheel,) = folder.glob("*.whl")
    install = ("--python", inside, "install", "--no-deps", "--no-index", wheel)
    subprocess.run([*pip, *install], **quietly)
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ritornello"}
    return inside


@pytest.fixture
def folder(tmp_path):
    """A project of the user's, with modules that are named like ours."""
    for name in OF_THE_USER:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('this is a module of the user')")
    return tmp_path


def run(command, folder):
    done = subprocess.run(
        list(map(str, command)), cwd=folder, check=False, capture_output=True, text=True,
        timeout=HANGS_S, env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_command_trains_and_prints_itself(python, folder):
    flags = ("--env=CartPole-v1", "--environment_max_steps=2000", "--worker_count=1")
    said = run([python.with_name("ritornello"), "train", *flags, "--charts=False"], folder)
    assert "all agent steps are done" in said
    assert "ritornello \\\n  --test=results/" in said
    (made,) = (folder / "results").iterdir()
    said = run([python.with_name("ritornello"), "test", made, "--test_episode_count=1"], folder)
    assert "game 1/1: return" in said


def test_the_library_trains_evaluates_and_loads_a_shipped_model(python, folder):
    (folder / "program.py").write_text(PROGRAM)
    said = run([python, "program.py"], folder)
    assert "reports 1 <Agent pong" in said
