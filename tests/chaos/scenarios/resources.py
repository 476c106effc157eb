"""Too little of everything: disk, file size, descriptors, memory; and read-only folders."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.chaos import kernel
from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.history import Expected
from tests.chaos.stage import Begun, Stage

NOTICE_LIMIT_S = 60.0
NO_SPACE = r"(?i)(no space|disk|quota|full|could not write|cannot write|file too large)"
BALLAST = "ballast"


def _draw(*kinds: str, **choices: Any) -> Any:
    def draw(rng: random.Random) -> Plan:
        plan = {
            "configuration": draw_configuration(rng, *kinds),
            "updates": rng.randint(5, 80),
            "freed": rng.random() < 0.6,  # there is room again before the end
        }
        return plan | {name: rng.choice(values) for name, values in choices.items()}

    return draw


def _after_shortage(stage: Stage, plan: Plan, begun: Begun, free: Any) -> None:
    """Expect one line and training that goes on; then, with room again, a save that succeeds.

    Records are lost as well while there is no room, so they are not asked about that time.
    """
    short = Expected(statuses=(130,), journals=False)
    if not stage.wait_logged(begun, NO_SPACE, NOTICE_LIMIT_S):
        stage.break_promise("alive", "no message about the disk that is full")
    stage.pause(1.0)
    if begun.running.is_over:
        free()
        stage.end(begun, short)
    elif plan["freed"]:
        free()
        stage.wait_progress(begun, 2 * stage.configuration.save_period)
        stage.stop(begun, signal.SIGINT, short)
    else:
        begun.running.send(signal.SIGINT)
        # Nothing can be saved: to say so and to fail is as right as to be interrupted.
        stage.end(begun, replace(short, statuses=(1, 130), saved=False))
        free()
    stage.finale_expected = Expected(journals=False)
    stage.finale()


@fault("disk-full", _draw("workers", "replay", lack=("bytes", "bytes", "names")), needs=("mounts",))
def disk_full(stage: Stage, plan: Plan) -> None:
    """Fill a small disk to its last byte (or name) while a run saves to it."""
    stage.mount(stage.results, "size=24m,nr_inodes=400")
    begun = stage.train()
    if stage.wait_updates(begun, plan["updates"]):
        if plan["lack"] == "bytes":
            _fill(stage.results / BALLAST)
        else:
            _use_up_names(stage.results / BALLAST)
        stage.inject(f"disk without {plan['lack']}")
    _after_shortage(stage, plan, begun, lambda: _free(stage.results / BALLAST))


@fault(
    "small-disk", _draw("workers", "replay", size=("24k", "40k", "100k", "600k")), needs=("mounts",)
)
def small_disk(stage: Stage, plan: Plan) -> None:
    """Start on a disk with next to no room: it ends with one line, or trains on and says so."""
    stage.mount(stage.results, f"size={plan['size']}")
    begun = stage.train("--environment_max_steps=4000")
    stage.inject(f"a disk of {plan['size']}")
    expected = Expected(
        statuses=(0, 1, 2), saved=False, keeps_period=False, leaves_temporaries=True
    )
    stage.end(begun, expected, 120.0)
    kernel.remount(stage.results, "size=64m")
    stage.finale()


@fault("file-size-limit", _draw("workers", "replay"))
def file_size_limit(stage: Stage, plan: Plan) -> None:
    """Forbid files beyond a few kilobytes while a run saves, as a quota does."""
    begun = stage.train(terminal="pty")  # a file could not take what is said
    pid = begun.running.pid

    def limit(size: int) -> None:
        with contextlib.suppress(OSError):
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))

    if stage.wait_updates(begun, plan["updates"]):
        limit(1000)
        stage.inject("files of 1000 bytes at most")
    _after_shortage(stage, plan, begun, lambda: limit(resource.RLIM_INFINITY))


@fault("read-only", _draw(what=("results", "run")), needs=("mounts",))
def read_only(stage: Stage, plan: Plan) -> None:
    """Start a run where nothing can be written, or resume one there: one message, status 2."""
    stage.mount(stage.results, "size=24m")
    if plan["what"] == "run":
        stage.copy_template()
    kernel.make_read_only(stage.results)
    stage.inject(f"read-only {plan['what']}")
    begun = stage.resume() if plan["what"] == "run" else stage.train()
    stage.end(begun, Expected(statuses=(2,), saved=False))
    kernel.make_read_only(stage.results, False)
    stage.finale()


@fault(
    "few-descriptors", _draw("workers", "serial", left=(0, 1, 2, 4, 8, 16), running=(True, False))
)
def few_descriptors(stage: Stage, plan: Plan) -> None:
    """Let descriptors run out, at the start or later: it trains on, or one line ends it."""
    if plan["running"]:
        begun = stage.train()
        if stage.wait_updates(begun, plan["updates"]):
            pid = begun.running.pid
            used = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
            _limit(pid, resource.RLIMIT_NOFILE, used + plan["left"])
            stage.inject(f"{plan['left']} descriptors left")
            stage.wait_progress(begun, 40, NOTICE_LIMIT_S)
            if not begun.running.is_over:
                begun.running.send(signal.SIGINT)
        # Without a descriptor no file can be written, the last checkpoint neither.
        expected = Expected(statuses=(0, 1, 130), saved=False, keeps_period=False)
        stage.end(begun, expected)
    else:
        limit = 8 + 3 * plan["left"]
        begun = stage.train("--environment_max_steps=3000", anew=True, limits={"NOFILE": limit})
        stage.inject(f"{limit} descriptors")
        expected = Expected(statuses=(0, 1, 2), saved=False, keeps_period=False)
        stage.end(begun, expected, 120.0)
    stage.finale()


@fault(
    "little-memory",
    _draw("workers", "serial", megabytes=(0, 2, 10, 50, 200), whom=("learner", "worker")),
)
def little_memory(stage: Stage, plan: Plan) -> None:
    """Let memory run out in the middle: it trains on, or one line ends it."""
    begun, at_worker = stage.train(), False
    if stage.wait_updates(begun, plan["updates"]):
        children = begun.running.children()
        at_worker = plan["whom"] == "worker" and bool(children)
        pid = children[-1].pid if at_worker else begun.running.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        _limit(pid, resource.RLIMIT_AS, pages * resource.getpagesize() + plan["megabytes"] * 2**20)
        stage.inject(f"{plan['megabytes']} MB left to the {plan['whom']}")
        stage.wait_progress(begun, 40, NOTICE_LIMIT_S)
        if not begun.running.is_over:
            begun.running.send(signal.SIGINT)
    # C++ ends a process that finds no memory by SIGABRT; nothing can be promised about that. Nor
    # about what Python prints of a worker that finds none for the libraries that it begins with.
    expected = Expected(
        statuses=(0, 1, 130, -6),
        saved=False,
        keeps_period=False,
        leaves_temporaries=True,
        traceback=at_worker,
    )
    stage.end(begun, expected)
    stage.finale()


@fault("little-memory-at-start", _draw("workers", "serial", megabytes=(100, 400, 1000, 2000, 4000)))
def little_memory_at_start(stage: Stage, plan: Plan) -> None:
    """Start with an address space that is too small: it trains, or one line ends it."""
    limits = {"AS": plan["megabytes"] * 2**20}
    begun = stage.train("--environment_max_steps=3000", anew=True, limits=limits)
    stage.inject(f"{plan['megabytes']} MB of address space")
    expected = Expected(
        statuses=(0, 1, 2, -6, -11), saved=False, keeps_period=False, traceback=True,
        leaves_temporaries=True, quiet=True,
    )  # fmt: skip
    stage.end(begun, expected, 120.0)
    stage.finale()


def _limit(pid: int, kind: int, value: int) -> None:
    hard = resource.prlimit(pid, kind)[1]
    resource.prlimit(pid, kind, (value, hard))


def _fill(path: Path) -> None:
    """Write until there is no byte left."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def _use_up_names(path: Path) -> None:
    """Make files until there can be no more."""
    path.mkdir()
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (path / str(number)).touch()


def _free(path: Path) -> None:
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
