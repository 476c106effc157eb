"""Files of a run that are damaged before it is resumed: checkpoints, replay contents, journals."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.chaos.catalogue import Plan, fault
from tests.chaos.configurations import draw_configuration
from tests.chaos.folder import take_snapshot
from tests.chaos.history import Expected
from tests.chaos.stage import Stage

Damage = Callable[[Path, random.Random], None]
JOURNALS = (
    "metrics.jsonl", "Scores.txt", "Episode_steps.txt", "max_reward_file.txt", "Loss_file.txt",
    "lr_file.txt", "Train_time.txt", "train.log", "run.json", "flags.json", "summary.json",
    "training_summary.txt",
)  # fmt: skip


def _truncate(path: Path, rng: random.Random) -> None:
    size = path.stat().st_size
    os.truncate(path, rng.randrange(size) if size else 0)


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def _remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def _zeros(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def _noise(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(max(100, path.stat().st_size)))


def _become_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _foreign_byte(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    place = rng.randrange(len(data) + 1)
    path.write_bytes(data[:place] + b"\xff" + data[place:])


def _strange_lines(path: Path, rng: random.Random) -> None:
    lines = (
        b'{"agent_steps": 1, "updates": 1, "episodes": 0, "frames": 1, "wall_s": 1, "values":null}',
        b"[" * 100_000, b"null", b'"text"', b"1e400,nan,inf,-1", b"{}", b"\0\0\0",
        b'{"resumed": 5}', b"9" * 5000, "\N{GREEK SMALL LETTER LAMDA}".encode("utf-16"),
    )  # fmt: skip
    with path.open("ab") as file:
        for _ in range(3):
            file.write(rng.choice(lines) + b"\n")


DAMAGES: dict[str, Damage] = {
    "truncate": _truncate, "flip": _flip, "empty": _empty, "remove": _remove, "zeros": _zeros,
    "noise": _noise, "folder": _become_folder, "foreign-byte": _foreign_byte,
    "strange-lines": _strange_lines,
}  # fmt: skip
BINARY = ("truncate", "flip", "empty", "remove", "zeros", "noise", "folder")


def _draw(*kinds: str, **choices: Any) -> Any:
    def draw(rng: random.Random) -> Plan:
        configuration = draw_configuration(rng, *kinds)
        drawn = {name: rng.choice(values) for name, values in choices.items()}
        return {"configuration": configuration, "seed": rng.randrange(2**31), **drawn}

    return draw


def _newest_first(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("update_*.pt"), reverse=True)


@fault("damaged-checkpoint", _draw(damage=BINARY, which=("newest", "newest", "two", "all", "best")))
def damaged_checkpoint(stage: Stage, plan: Plan) -> None:
    """Damage checkpoints: the newest sound one is resumed, with a word about the others."""
    run, rng = stage.copy_template(), random.Random(plan["seed"])
    files = _newest_first(run)
    every = [*files, *(run / "checkpoints").glob("best.pt"), *(run / "checkpoints").glob("step_*")]
    chosen = {"newest": files[:1], "two": files[:2], "all": every, "best": every[-1:]}[
        plan["which"]
    ]
    for path in chosen:
        DAMAGES[plan["damage"]](path, rng)
    stage.inject(f"{plan['damage']} of {', '.join(path.name for path in chosen)}")
    is_refused = plan["which"] == "all" and not take_snapshot(run).sound
    if is_refused:
        stage.resume_for(Expected(statuses=(2,), saved=False, keeps_period=False))
        return  # nothing is left that could be resumed
    is_noticed = plan["which"] != "best" and not _is_sound(run, files[0].name)
    says = files[0].name if is_noticed else ""
    stage.resume_for(Expected(says=says, keeps_period=False))
    stage.finale()


def _is_sound(run: Path, name: str) -> bool:
    return name in {each.name for each in take_snapshot(run).sound}


@fault("damaged-replay", _draw("replay", "serial", damage=BINARY))
def damaged_replay(stage: Stage, plan: Plan) -> None:
    """Damage the newest replay contents: one message says how to go on without them."""
    run, rng = stage.copy_template(), random.Random(plan["seed"])
    path = _newest_first(run)[0].with_suffix(".replay")
    DAMAGES[plan["damage"]](path, rng)
    stage.inject(f"{plan['damage']} of {path.name}")
    # To go on with empty buffers, or from the checkpoint before, is as right as to refuse.
    says = r"\.replay|replay contents"
    stage.resume_for(Expected(statuses=(0, 1, 2), saved=False, says=says))
    stage.resume_for(Expected(statuses=(0, 2), saved=False), "--load_replay=False")
    # A reproducible run whose replay is gone goes on from the checkpoint before.
    if stage.sessions[-1].status == 0:
        stage.finale()


@fault(
    "damaged-journal", _draw("serial", "serial", "workers", damage=tuple(DAMAGES), file=JOURNALS)
)
def damaged_journal(stage: Stage, plan: Plan) -> None:
    """Damage a file that only tells of the run: the resume does not care."""
    run, rng = stage.copy_template(), random.Random(plan["seed"])
    path = run / plan["file"]
    if not path.exists():
        path.write_text("")
    DAMAGES[plan["damage"]](path, rng)
    stage.inject(f"{plan['damage']} of {path.name}")
    damaged = Expected(journals=False)
    stage.resume_for(damaged)
    stage.finale_expected = damaged
    stage.finale()


LATEST: dict[str, Any] = {
    "vanished": b"update_000999999.pt\n", "traversal": b"../../../../etc/passwd\n",
    "empty": b"", "binary": bytes(range(256)), "nul": b"update_\0.pt", "long": b"a" * 5000,
    "dot": b".", "best": b"best.pt\n", "many lines": b"update_000000020.pt\n" * 100,
}  # fmt: skip


@fault("damaged-latest", _draw("serial", "workers", content=(*LATEST, "missing", "folder", "link")))
def damaged_latest(stage: Stage, plan: Plan) -> None:
    """Put nonsense into `latest`: the newest sound checkpoint is resumed all the same."""
    run = stage.copy_template()
    path = run / "checkpoints" / "latest"
    if plan["content"] in LATEST:
        path.write_bytes(LATEST[plan["content"]])
    else:
        path.unlink(missing_ok=True)
        if plan["content"] == "folder":
            path.mkdir()
        elif plan["content"] == "link":
            path.symlink_to("/nonexistent/elsewhere")
    stage.inject(f"latest: {plan['content']}")
    stage.resume_for(Expected())
    stage.finale()


@fault("poisoned-checkpoint", _draw(value=("nan", "inf", "-inf"), which=(1, 1, 2)))
def poisoned_checkpoint(stage: Stage, plan: Plan) -> None:
    """Put numbers that are not finite into the newest weights: passed over, with a word."""
    run, rng = stage.copy_template(), random.Random(plan["seed"])
    files = _newest_first(run)
    for path in files[: plan["which"]]:
        data = torch.load(path, weights_only=True)
        tensors = _float_tensors(data["state"]["learner"])
        tensor = rng.choice(tensors)
        tensor.reshape(-1)[rng.randrange(tensor.numel())] = float(plan["value"])
        torch.save(data, path)
    stage.inject(f"{plan['value']} in {plan['which']} checkpoints")
    stage.resume_for(Expected(says=files[0].name, keeps_period=False))
    stage.finale()


def _float_tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree] if tree.is_floating_point() and tree.numel() else []
    children = tree.values() if isinstance(tree, dict) else tree
    is_tree = isinstance(tree, (dict, list, tuple))
    return [tensor for child in children for tensor in _float_tensors(child)] if is_tree else []


@fault("changed-times", _draw(how=("future", "reversed", "equal", "past")))
def changed_times(stage: Stage, plan: Plan) -> None:
    """Change the times of the files, as a clock that was set does: update numbers decide."""
    run, rng = stage.copy_template(), random.Random(plan["seed"])
    files = _newest_first(run)
    now = time.time()
    for place, path in enumerate(files):
        times = {"future": now + 1e7 - place, "reversed": now + place * 1e4, "equal": now,
                 "past": place * 10.0}[plan["how"]]  # fmt: skip
        for each in (path, path.with_suffix(".replay")):
            if each.exists():
                os.utime(each, (times, times))
    (run / "checkpoints" / "latest").unlink()  # or it alone would decide
    stage.inject(f"times: {plan['how']}")
    stage.resume_for(Expected())
    kept = [each.updates or 0 for each in take_snapshot(run).sound]
    made = sorted({*kept, *(int(path.stem.split("_")[1]) for path in files)}, reverse=True)
    if kept != made[: len(kept)]:
        stage.break_promise("kept", f"kept {kept}, not the newest of {made}")
    _damage_newest_and_go_on(stage, run, rng)


def _damage_newest_and_go_on(stage: Stage, run: Path, rng: random.Random) -> None:
    """What is fallen back to is the newest by number as well."""
    shutil.copy(_newest_first(run)[0], stage.folder / "undamaged.pt")
    _empty(_newest_first(run)[0], rng)
    stage.finale()
