"""The image, without an engine: its steps are read and done in a bare virtual environment.

pip is not let onto the network: what requirements.txt asks for, and what that needs, is linked
from the environment of the tests, and pip is asked whether anything is missing. The other steps are
done as they are written, with the files that .dockerignore lets through and the variables of ENV.
"""

from __future__ import annotations

import fnmatch
import json
import os
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

KNOWN = ("FROM", "ARG", "ENV", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "ENTRYPOINT")


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, arguments) of the Dockerfile, in order."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    pairs = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in pairs]


def arguments_of(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def is_left_out(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore keeps a path, relative to the root, from the image."""
    left_out = False
    for pattern in patterns:
        included = pattern.startswith("!")
        bare = pattern.removeprefix("!").removeprefix("**/")
        candidates = [path, *(str(parent) for parent in Path(path).parents)]
        names = [Path(each).name for each in candidates] if "**/" in pattern else candidates
        if any(fnmatch.fnmatchcase(name, bare) for name in names):
            left_out = not included
    return left_out


def context() -> list[str]:
    """Return the files that `COPY . .` copies."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    found = []
    for folder, inner, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)
        inner[:] = [name for name in inner if not is_left_out(str(here / name), patterns)]
        found += [str(here / name) for name in files]
    return [path for path in found if not is_left_out(path, patterns)]


def needed_distributions() -> list[metadata.Distribution]:
    """Return what requirements.txt asks for, and what that needs; skip where it is not here."""
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    waiting = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        wanted = waiting.pop()
        if wanted.marker is not None and not any(
            wanted.marker.evaluate({**default_environment(), "extra": extra})
            for extra in ("", *wanted.extras)
        ):
            continue
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} of requirements.txt is not installed here: make setup")
        if wanted.specifier and not wanted.specifier.contains(distribution.version, True):
            pytest.skip(f"{name} {distribution.version} is here, expected {wanted}: make setup")
        if name not in found:
            found[name] = distribution
            waiting += map(Requirement, distribution.requires or [])
    return list(found.values())


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Python in an environment that has what requirements.txt asks for, and nothing else."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=os.name != "nt")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for distribution in needed_distributions():
        tops = {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}
        for top in tops:
            source = Path(str(distribution.locate_file(top)))
            link = packages / top
            if source.exists() and not link.exists():
                link.symlink_to(source)
    return tmp_path / "venv" / "bin" / "python"


def test_every_instruction_is_one_that_is_checked_here() -> None:
    assert {name for name, _ in instructions()} <= set(KNOWN)
    (base,) = arguments_of("FROM")
    match = re.fullmatch(r"python:3\.(\d+)-slim", base)
    assert match
    assert 10 <= int(match[1]) <= 14
    assert arguments_of("USER") == ["agent"], "not root"
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(n for n, name in enumerate(names) if name == "RUN")


def test_the_image_has_what_the_program_needs_and_nothing_private() -> None:
    files = context()
    for needed in (
        "main.py",
        "option_flags.py",
        "ritornello/flags/run.py",
        "models/pong/model.json",
    ):
        assert needed in files
    parts = {part for path in files for part in Path(path).parts}
    assert not parts & {".git", ".venv", "__pycache__", "tests"}
    assert [path for path in files if path.startswith("results/")] in ([], ["results/.gitkeep"])
    for source, *_ in (rest.split() for rest in arguments_of("COPY") if "--" not in rest):
        assert source in files


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="the image is of Linux")
def test_the_steps_of_the_image_lead_to_a_program_that_trains(
    tmp_path: Path, bare_python: Path
) -> None:
    app = tmp_path / "app"
    for path in context():
        (app / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, app / path)
    runs = [rest for rest in arguments_of("RUN") if not rest.startswith("useradd")]
    install, *others = runs
    arguments = re.sub(r"\$\{\w+\}", "", install).split()
    assert arguments[:4] == ["python", "-m", "pip", "install"]
    # Everything is linked by now: pip would have to fetch what is missing, and may not.
    asked = [sys.executable, "-m", "pip", "--python", str(bare_python), "install", "--dry-run"]
    done = subprocess.run(
        [*asked, "--no-index", *arguments[4:]],
        cwd=app, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Would install" not in done.stdout

    assert others == ["mkdir -p results && chown agent:agent /app results"]
    (app / "results").mkdir(exist_ok=True)
    variables = dict(
        pair.split("=", 1) for rest in arguments_of("ENV") for pair in rest.split()
    )  # fmt: skip
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
