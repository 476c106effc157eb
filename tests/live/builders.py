"""Run folders as a trainer leaves them, made of nothing, in the size that a test asks for."""

import json
import os

from ritornello.core.file_lock import FileLock
from ritornello.metrics.record import Record

NAMES = ("loss/policy", "loss/value", "policy/entropy", "replay/queue/fill", "lag/mean_updates")


def record(number, *, step=100, score=None, more=0):
    """Return the n-th record of a run, five seconds after the one before."""
    values = {name: number / 7 + k for k, name in enumerate(NAMES)}
    values["episode/return_mean"] = float(number % 50) if score is None else score
    values["episode/return_best"] = 50.0
    values["throughput/agent_steps_per_s"] = 20.0
    values |= {f"gradient/layer_{k}/norm": number + k / 3 for k in range(more)}
    return Record(
        agent_steps=number * step,
        frames=number * step * 4,
        updates=number,
        episodes=number,
        wall_s=5.0 * number,
        values=values,
    )


def write_records(folder, records, *, append=False):
    """Write metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a" if append else "w", encoding="utf-8") as file:
        file.writelines(each.to_json() + "\n" for each in records)


def make_run(results, name, records=20, **flags):
    """Make a run that was stopped: its flags, what run.json says, records, no checkpoint."""
    folder = results / name
    some = [record(n) for n in range(1, records + 1)] if isinstance(records, int) else records
    write_records(folder, some)
    (folder / "checkpoints").mkdir()
    all_flags = {"env": "PongNoFrameskip-v4", "seed": 1, "environment_max_steps": 10_000, **flags}
    all_flags.setdefault("replay_parameters", [])
    (folder / "flags.json").write_text(json.dumps(all_flags), encoding="utf-8")
    session = {
        "started": "2026-11-22T12:00:00+00:00",
        "command_line": ["main.py", "--env=Pong"],
        "source": {"commit": "0" * 40, "dirty": False},
        "machine": {"cpu": "a processor", "cores_usable": 2, "gpus": []},
    }
    (folder / "run.json").write_text(json.dumps(session), encoding="utf-8")
    return folder


_HELD: list[FileLock] = []  # until this process ends, or `let_go`


def hold(folder):
    """Take the lock of a run, as the process that trains does."""
    _HELD.append(FileLock(folder / "lock"))
    assert _HELD[-1].acquire()


def let_go():
    """Release all locks of `hold`."""
    while _HELD:
        _HELD.pop().release()


def write_status(folder, **said):
    """Write status.json as a trainer does."""
    status = {"format": 1, "time": 1_790_000_000.0, "state": "training", "pid": os.getpid(), **said}
    (folder / "status.json").write_text(json.dumps(status), encoding="utf-8")
