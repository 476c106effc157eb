"""The image, without an engine: its steps are done in a bare virtual environment.

What requirements.txt asks for, and what that needs, is linked from the environment of the tests;
nothing else of it is there. The program starts from the files and the variables of the image.
"""

import json
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from tests.deadlines import HANGS_S
from tests.house import ROOT


def arguments_of(name):
    """Return what stands after an instruction of the Dockerfile, in order."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    return [" ".join(line.split()[1:]) for line in text.splitlines() if line.startswith(f"{name} ")]


def context():
    """Return the files that `COPY . .` copies of a fresh checkout."""
    left_out = set((ROOT / ".dockerignore").read_text("utf-8").split())
    assert {".git", "tests", "results/*"} <= left_out
    command = ["git", "-C", str(ROOT), "ls-files"]
    tracked = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [name for name in tracked.splitlines() if not {name.split("/")[0], name} & left_out]


def needed_distributions():
    """Return what requirements.txt asks for, and what that needs."""
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    waiting = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found = {}
    while waiting:
        wanted = waiting.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        environments = [{**default_environment(), "extra": e} for e in ("", *wanted.extras)]
        marker = wanted.marker
        is_needed = marker is None or any(marker.evaluate(each) for each in environments)
        if is_needed and name not in found:
            found[name] = metadata.distribution(name)
            waiting += map(Requirement, found[name].requires or [])
    return found


@pytest.fixture
def bare_python(tmp_path):
    """Python in an environment that has what requirements.txt asks for, and nothing else."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for distribution in needed_distributions().values():
        for top in {file.parts[0] for file in distribution.files or []} - {".."}:
            source, link = Path(str(distribution.locate_file(top))), packages / top
            if source.exists() and not link.exists():
                link.symlink_to(source)
    return tmp_path / "venv" / "bin" / "python"


def test_the_program_of_the_image_is_not_root_and_comes_after_everything_that_is():
    (user,) = arguments_of("USER")
    assert user == "agent"
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert text.rindex("\nRUN ") < text.index("\nUSER ") < text.index("\nENTRYPOINT ")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="the image is of Linux")
def test_the_files_of_the_image_are_a_program_that_trains(tmp_path, bare_python):
    app = tmp_path / "app"
    for path in context():
        (app / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, app / path, follow_symlinks=False)
    (app / "results").mkdir(exist_ok=True)
    variables = dict(pair.split("=", 1) for rest in arguments_of("ENV") for pair in rest.split())
    (entry,) = (json.loads(rest) for rest in arguments_of("ENTRYPOINT"))
    done = subprocess.run(
        [
            *entry, "--env=CartPole-v1", "--environment_max_steps=3000", "--worker_count=1",
            "--training_fill_in_factor=0.01", "--seed=1",
        ],
        cwd=app,
        env={"PATH": f"{bare_python.parent}:/usr/bin:/bin", "HOME": str(tmp_path), **variables},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (path for path in (app / "results").iterdir() if path.is_dir())
    assert list((run / "checkpoints").glob("update_*.pt"))
    assert list(run.rglob("*.png"))
