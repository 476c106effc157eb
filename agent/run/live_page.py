"""`--live=True`: the live page as a program beside the training, for as long as that lasts.

The training never serves anything itself. It starts `python -m ritornello.live` (docs/live.md) for
its results folder, tells the address, and goes on; if the page cannot start, or dies, nothing else
happens.
"""

from __future__ import annotations

import contextlib
import importlib.util
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ritornello.core.errors import ConfigError
from ritornello.core.leaving import wait_for_killed
from ritornello.core.process_death import environment_for_child
from ritornello.core.project import IMPORT_ROOT, install_extra
from ritornello.core.standard_error import say

PACKAGES = ("starlette", "uvicorn")
START_S = 60.0  # a busy machine takes seconds; the training waits no longer for its address
END_S = 5.0


def check_live_page() -> None:
    """Raise ConfigError if the page lacks a package, before anything is started."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--live=True needs packages that are not installed: {', '.join(missing)}. Install "
            f"them with {install_extra('live')}, or leave the flag out."
        )


@contextlib.contextmanager
def live_page(results: Path | str) -> Iterator[None]:
    """Serve the page of a results folder, which is made if missing, during the block."""
    try:
        Path(results).mkdir(parents=True, exist_ok=True)
        page = subprocess.Popen(
            [sys.executable, "-m", "ritornello.live", str(Path(results).resolve())],
            cwd=IMPORT_ROOT,  # whatever lies in the present folder is not this program's own
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment_for_child(),
            start_new_session=True,  # Ctrl-C is for the training, which then ends the page
        )
    except OSError as error:
        say(f"the live page could not be started: {error.strerror}")
        yield
        return
    try:
        say(_address(page) or "the live page did not start; the training goes on without it")
        yield
    finally:
        _end(page)


def _address(page: subprocess.Popen[bytes]) -> str:
    """Return the line with the address, empty if none comes in time."""
    assert page.stdout is not None, "it is a pipe"
    ready, _, _ = select.select([page.stdout], [], [], START_S)
    return page.stdout.readline().decode("utf-8", "replace").strip() if ready else ""


def _end(page: subprocess.Popen[bytes]) -> None:
    page.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        page.wait(END_S)
    page.kill()  # nothing, if it has ended
    wait_for_killed(page)
    if page.stdout is not None:
        page.stdout.close()
