"""Runs tests in a copy of the tree, each time in a process of its own.

The copy is made once; a mutant changes one file of it and puts it back. Where processes can fork,
the one that runs the tests has torch imported already, which saves seconds for each mutant.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.house import ROOT
from tests.mutants.mutant import Mutant

# Not needed by any test that a mutant names: at the root, and anywhere.
LEFT_OUT_HERE = {".git", ".venv", "results", "models"}
LEFT_OUT = {"__pycache__", ".hypothesis", ".ruff_cache", ".mypy_cache", ".pytest_cache"}
PRELOADED = ("torch", "numpy", "gymnasium", "pydantic_settings")  # nothing that pytest rewrites
FAST = "not slow and not learning and not chaos"  # as the Makefile has it
DEADLINE_S = 900.0  # of one mutant; the tests named for it take seconds
POLL_S = 0.05


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    killed_by: str  # the test that noticed it; empty if none did
    output: str  # of pytest
    seconds: float


class Broken(Exception):
    """Tests could not be run, so nothing is known."""


def _left_out(folder: str, names: list[str]) -> set[str]:
    return (LEFT_OUT | (LEFT_OUT_HERE if Path(folder) == ROOT else set())) & set(names)


class Runner:
    """Owns a temporary copy of the tree; a context manager."""

    def __init__(self, forks: bool = hasattr(os, "fork")) -> None:
        """Copy the tree.

        Args:
          forks: start processes as forks of this one. Not if it has threads.
        """
        self._forks = forks
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True)
        self.root = Path(self._folder.name) / "tree"
        shutil.copytree(ROOT, self.root, ignore=_left_out)
        self._changes = 0
        if forks:
            os.environ.setdefault("OMP_NUM_THREADS", "1")
            for module in PRELOADED:
                __import__(module)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self._folder.cleanup()

    def check(self, tests: Sequence[str]) -> float:
        """Run tests on the sound tree; return how many seconds they took.

        Raises:
          Broken: unless all of them pass: whatever they say of a mutant would mean nothing.
        """
        status, output, seconds = self._pytest(tests)
        if status != 0:
            raise Broken(f"the sound program does not pass the tests:\n{output}")
        return seconds

    def run(self, mutant: Mutant) -> Verdict:
        """Plant the fault, run the tests named for it, and take it out again.

        Raises:
          Broken: if pytest could not run them.
        """
        path, text = mutant.apply(self.root)
        sound, stat = path.read_text("utf-8"), path.stat()
        self._changes += 1
        # Python takes a compiled file for that of the source by seconds and size alone.
        changed_at = int(stat.st_mtime) + 10 * self._changes
        path.write_text(text, "utf-8")
        os.utime(path, (changed_at, changed_at))
        try:
            status, output, seconds = self._pytest(mutant.test_ids(self.root))
        finally:
            path.write_text(sound, "utf-8")
            os.utime(path, (stat.st_atime, int(stat.st_mtime)))
        if status == 0:
            return Verdict("", output, seconds)
        if status is None:
            return Verdict("the deadline: it hangs", output, seconds)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?::[^\s\[]+)", output, re.MULTILINE)
        if failed is None:
            raise Broken(f"mutant {mutant.name}: pytest ended with {status}:\n{output[-3000:]}")
        return Verdict(failed[1], output, seconds)

    def _pytest(self, tests: Sequence[str]) -> tuple[int | None, str, float]:
        """Return the exit status (None: it took too long), the output, and the seconds."""
        arguments = [
            *tests, "-x", "-q", "--tb=line", "-rfE", "-m", FAST,
            "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "tests.mutants.profile",
            "--hypothesis-profile=mutants", "--hypothesis-seed=1",
        ]  # fmt: skip
        log = self.root.parent / "output.txt"
        began = time.monotonic()
        with log.open("wb") as file:
            if self._forks:
                status = self._in_a_fork(arguments, file.fileno())
            else:
                status = self._in_a_new_process(arguments, file.fileno())
        return status, log.read_text("utf-8", "replace"), time.monotonic() - began

    def _in_a_new_process(self, arguments: list[str], output: int) -> int | None:
        command = [sys.executable, "-m", "pytest", *arguments]
        try:
            return subprocess.run(
                command, cwd=self.root, stdout=output, stderr=output, timeout=DEADLINE_S,
                check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return None

    def _in_a_fork(self, arguments: list[str], output: int) -> int | None:
        pid = os.fork()
        if pid == 0:
            _become_pytest(self.root, arguments, output)
        deadline = time.monotonic() + DEADLINE_S
        try:
            while time.monotonic() < deadline:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    pid = 0
                    return os.waitstatus_to_exitcode(status)
                time.sleep(POLL_S)
            return None
        finally:
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _become_pytest(root: Path, arguments: list[str], output: int) -> None:
    """Run pytest in this forked process, on the copy of the tree; does not return."""
    status = 3
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(root)
        sys.path[:] = [str(root), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            is_ours = file is not None and Path(file).is_relative_to(ROOT)
            if name != "__main__" and is_ours and ".venv" not in Path(file).parts:
                del sys.modules[name]
        import pytest

        status = int(pytest.main(arguments))
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        pass
    finally:
        os._exit(status)
