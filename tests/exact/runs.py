"""Small reproducible runs in this process, hurt on purpose, and what is left of them."""

import gc
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ritornello import main
from ritornello.agent.stored.checkpoint import load
from ritornello.core import faults, files
from ritornello.core.errors import CheckpointError
from tests.exact.disks import ForgetfulDisk
from tests.faulty import Plan
from tests.integration.commands import comparable, only_run

PERIOD = 3  # updates between checkpoints
STEPS, MORE_STEPS = 150, 190  # agent steps of a run, and of one that is resumed after its end
SMALL = (
    "--env=CartPole-v1", "--seed=3", "--reproducible=True", "--model=mlp",
    "--feature_out_layer_size=8", "--r_f_steps=5", "--batch_size=4", "--worker_count=2",
    "--envs_per_worker=2", "--learner_thread_count=1", "--training_fill_in_factor=0.01",
    f"--environment_max_steps={STEPS}", f"--save_model_period={PERIOD}", "--avg_buff_size=4",
    "--tensorboard=False", "--charts=False", "--basic_verbose=False",
)  # fmt: skip


def small(*flags):
    """Return the command line of a small run; `flags` win over those of `SMALL`."""
    names = {flag.split("=")[0] for flag in flags}
    return (*(flag for flag in SMALL if flag.split("=")[0] not in names), *flags)


class Crash(BaseException):
    """The process is dead. Nothing may catch it, and nothing that happens after it counts."""


class CrashPlan(Plan):
    """A plan whose deadly signals end this session in place of this process.

    What the disk holds at that moment is `left`. From then on every point raises `Crash` again, so
    that what a dead process would not do any more is soon over, and none of it is looked at.
    """

    def __init__(self, lines, look=dict):
        """Follow `lines`; `look` says what is on the disk."""
        super().__init__(lines)
        self.left = None
        self._look = look

    def reach(self, point, path, tear):
        if self.left is None:
            super().reach(point, path, tear)
        elif point != "file.write":  # so that files can be closed without complaints
            raise Crash

    def kill(self, point):
        self.left = self._look()
        raise Crash(point)


@dataclass(frozen=True)
class Outcome:
    """How a session ended."""

    status: int | None  # None: it crashed
    plan: CrashPlan
    escaped: BaseException | None = None  # what came out of main(), where a user sees a traceback

    @property
    def updates(self):
        """Updates that this session made, or was about to make."""
        return self.plan.hits["learner.step"]


@pytest.fixture
def one_process(monkeypatch):
    """Undo what a reproducible run leaves behind in its process, and wait for no real disk.

    That is settings of torch, and the files that a session could not close because its death was
    only played. Those are thrown away here, lest their complaints land in a test of something else.
    """
    monkeypatch.setattr(files, "_sync", lambda path: None)  # ForgetfulDisk knows what is synced
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    gc.collect()


def train(results, *flags, lines=(), leave=ForgetfulDisk.after_kill):
    """Run main.py's `main` here, on a disk that can forget.

    Args:
      results: folder of results.
      flags: of the command, added to `SMALL` unless it resumes.
      lines: of the plan of faults.
      leave: what a deadly fault leaves of the disk.
    """
    command = flags if "--op_mode=train_w_load" in flags else small(*flags)
    with ForgetfulDisk(results) as disk, files.using(disk):
        plan = CrashPlan(lines, lambda: leave(disk))
        with faults.loaded(plan):
            status, escaped = None, None
            try:
                status = main.main([*command, f"--results_dir={results}"])
            except Crash:
                pass
            except BaseException as error:  # also SystemExit: each is a finding
                escaped = error
    return Outcome(None if plan.left is not None else status, plan, escaped)


def resume(results, *flags, **options):
    """Resume the only run in `results`, for MORE_STEPS; see `train`."""
    mode = ("--op_mode=train_w_load", f"--load_model_url={only_run(results)}")
    return train(
        results, *mode, f"--environment_max_steps={MORE_STEPS}", "--basic_verbose=False", *flags,
        **options,
    )  # fmt: skip


def newest_checkpoint(results):
    """Return the updates of the newest checkpoint that can be loaded, 0 if there is none."""
    updates = []
    for folder in results.glob("*/checkpoints"):
        for path in folder.glob("update_*.pt"):
            try:
                updates.append(int(load(path).state["tally"]["updates"]))
            except CheckpointError:
                continue  # half of one
    return max(updates, default=0)


# Columns that hold a time in seconds; elsewhere it is the last.
TIMES = {"Train_time.txt": (1, 2)}
TEXT_FILES = (
    "Scores.txt", "Episode_steps.txt", "max_reward_file.txt", "Loss_file.txt", "lr_file.txt",
    "Train_time.txt",
)  # fmt: skip


def product(run):
    """Return everything that a run produced and that no clock has a part in."""
    checkpoint = load(run)
    state = {k: v for k, v in checkpoint.state.items() if k != "flags"}
    state["tally"] = {k: v for k, v in state["tally"].items() if k != "wall_s"}
    return {
        "newest checkpoint": checkpoint.path.name,
        "state": state,
        "replay": checkpoint.load_replay(exact=True),
        "metrics.jsonl": comparable(run),
        **{name: text_lines(run / name) for name in TEXT_FILES},
    }


def text_lines(path):
    """Return the lines of one of the old platform's files, without their times."""
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    times = TIMES.get(path.name, (-1,))
    return [
        [x for i, x in enumerate(row) if i not in times and i - len(row) not in times]
        for row in rows
    ]


def difference(one, other, where=""):
    """Return where two products first differ, and how; empty if they are identical to the bit."""
    if type(one) is not type(other):
        return f"{where}: {one!r:.60} and {other!r:.60}"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{where}: keys {list(one)!s:.200} and {list(other)!s:.200}"
        pairs = [(f"{where}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} entries"
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, (torch.Tensor, np.ndarray)):
        arrays = np.asarray(one), np.asarray(other)
        same = arrays[0].dtype == arrays[1].dtype and arrays[0].shape == arrays[1].shape
        same = same and arrays[0].tobytes() == arrays[1].tobytes()
        return "" if same else f"{where}: the numbers differ"
    else:
        return "" if one == other or one != one else f"{where}: {one!r:.60} and {other!r:.60}"
    return next((found for found in (difference(a, b, w) for w, a, b in pairs) if found), "")
