"""Refuses what a session cannot do, or cannot resume from, before anything is started.

A checkpoint that is sound and of the same network may still not fit the flags of the session that
resumes it: its optimiser is of another kind, its values are in other units, its environments are
others. If a resume is possible, but not exact, that is noted for the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path
from typing import Any

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learners.place import Place
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.checkpoint_folder import run_of
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.saved_state import restoring
from ritornello.flags.earlier import modern
from ritornello.flags.options import Flags
from ritornello.flags.parts import ALGORITHMS

MAX_PATH = 1000  # characters of a path in a message
# In a run with --sink=wandb, the service links each session to its own log, opened elsewhere.
WANDB_LINK = "wandb/*/logs/debug-core.log"
NEW_RUN = "To start a new run from its weights: --load=<this one>, without --resume."


def check_several(flags: Flags, place: Place) -> None:
    """Check that these flags work with the number of learners.

    Raises:
      ConfigError: the message names the flag.
    """
    count = place.world_size
    if flags.op_mode == "test":
        if count > 1:
            raise ConfigError(
                f"a test was started in {count} processes, expected one: it plays with one "
                "model, and nothing is learned. Start it without torchrun."
            )
        return
    if flags.learner_count not in (1, count):
        started = "one learner was" if count == 1 else f"{count} learners were"
        raise ConfigError(
            f"--learner_count={flags.learner_count}, but {started} started: expected it "
            "on the command line of main.py (not in a file, a preset or a sequence), and with "
            "torchrun not at all."
        )
    if count > 1:
        _check_flags_of_several(flags, count)


def _check_flags_of_several(flags: Flags, count: int) -> None:
    sums = getattr(ALGORITHMS.find(flags.algorithm), "sums_over_learners", False)
    # Flag, whether it is one that only a single learner can have, and what is expected.
    for name, is_refused, expected in (
        ("reproducible", flags.reproducible,
         "one learner, because the order in which learners become ready depends on time"),
        ("multiprocessing_backend", flags.multiprocessing_backend != "python_native",
         "python_native, because each learner has the workers of its own machine. One learner may "
         "have workers on other machines"),
        ("save_replay", flags.save_replay,
         "False, because each learner has a replay of its own, and a checkpoint holds that of one"),
        ("algorithm", not sums,
         "one that has sums_over_learners = True, which says that it adds up over learners what "
         "has to be (docs/several_learners.md)"),
    ):  # fmt: skip
        if is_refused:
            raise ConfigError(
                f"--{name}={getattr(flags, name)} with {count} learners: expected {expected}."
            )


def check_session(checkpoint: Checkpoint, blueprint: Blueprint) -> Checkpoint:
    """Check that a session can go on from `checkpoint`, or test it; its spec and weights must fit.

    Return the checkpoint, with notes about what will not be as it was.

    Raises:
      ConfigError: if a flag must have another value, or a link leads out of the run folder.
      CheckpointError: if there is nothing to resume in it, or the state cannot have been written by
        this program.
    """
    check_units(checkpoint, blueprint.flags)
    if not checkpoint.can_resume:
        return checkpoint
    resumes = blueprint.flags.op_mode == "train_w_load"
    makes_folder = blueprint.flags.new_run_folder or run_of(checkpoint.path) is None
    with restoring(str(checkpoint.path)):
        if not (resumes and makes_folder):
            check_folder(checkpoint)
        return check_resume(checkpoint, blueprint) if resumes else checkpoint


def check_resume(checkpoint: Checkpoint, blueprint: Blueprint) -> Checkpoint:
    """Check that a training can go on from a checkpoint; see `check_session`."""
    _check_is_of_run(checkpoint)
    _check_same(checkpoint, blueprint)
    _check_replay_of_several(checkpoint, blueprint)
    notes = [*_check_exactness(checkpoint, blueprint), *_schedule(checkpoint, blueprint)]
    return replace(checkpoint, notes=(*checkpoint.notes, *notes))


def check_folder(checkpoint: Checkpoint) -> None:
    """Refuse a folder in which a link leads out of it: a session would write there.

    In a run folder any link is refused. Beside a checkpoint that lies in no run folder, only the
    files that a test writes are looked at.

    Raises:
      ConfigError: the message names the link.
    """
    run = run_of(checkpoint.path)
    home, what = (checkpoint.path.parent, "folder") if run is None else (run, "run folder")
    inside = Path(os.path.realpath(home))
    for path in _written_in(home, run is not None):
        target = Path(os.path.realpath(path))  # which `resolve` does not say of links in a circle
        if path.is_symlink() and not target.is_relative_to(inside) and not path.match(WANDB_LINK):
            link, end = shown_text(str(path), MAX_PATH), shown_text(str(target), MAX_PATH)
            raise ConfigError(
                f"{link} is a link that leads out of the {what}, to {end}: what is written for "
                "this run would be written there. Remove the link (to keep a run on another disk, "
                "make the whole folder a link), or copy what you need."
            )


def _written_in(home: Path, is_run: bool) -> Iterator[Path]:
    """Yield whatever lies in a run folder, or what tests write beside a checkpoint."""
    from ritornello.agent.testing.score_table import WRITTEN_BY_TESTS

    if is_run:
        yield from home.rglob("*")
        return
    for path in home.iterdir():
        if any(fnmatch(path.name.lower(), pattern) for pattern in WRITTEN_BY_TESTS):
            yield path


def _check_is_of_run(checkpoint: Checkpoint) -> None:
    """Refuse a file that holds weights alone: it can only be tested."""
    state = checkpoint.state
    if not (
        state.get("replay") and state["learner"].get("optimiser") and state["tally"].get("games")
    ):
        raise CheckpointError(
            f"{checkpoint.path} holds weights, and no replay, optimiser or games: there is nothing "
            f"to resume. {NEW_RUN}"
        )


def _check_same(checkpoint: Checkpoint, blueprint: Blueprint) -> None:
    """Refuse another algorithm, optimiser, or unit of the values than those of the checkpoint."""
    flags, saved = blueprint.flags, checkpoint.state["flags"]
    units = "Its values are in the units of that."
    # Flag, its value where the checkpoint does not say it, and what to do about another value.
    checks = [
        ("algorithm", "impala", NEW_RUN),  # earlier versions had no other
        ("reward_clipping_method", flags.reward_clipping_method, f"{units} {NEW_RUN}"),
        # Nor can a new run without PopArt start from what has learned with it (`warm_start`).
        ("use_popart", flags.use_popart, f"{units} {NEW_RUN}" if flags.use_popart else units),
    ]
    if flags.load_optimizer_save:
        fresh = "--load_optimizer_save=False begins with a fresh optimiser."
        checks.append(("optimizer", flags.optimizer, fresh))
    for name, unsaid, advice in checks:
        now, then = getattr(flags, name), saved.get(name, unsaid)
        if then not in (now, None):
            raise ConfigError(
                f"--{name}={now}, but {checkpoint.path} is of a run with "
                f"--{name}={shown_text(str(then))}: expected the same. {advice}"
            )


def _check_replay_of_several(checkpoint: Checkpoint, blueprint: Blueprint) -> None:
    """Refuse replay contents of one learner for several learners: they would be lost."""
    count = blueprint.place.world_size
    if count > 1 and checkpoint.state.get("has_replay") and blueprint.flags.load_replay:
        raise ConfigError(
            f"{checkpoint.path} holds the replay contents of one learner, and {count} are to go on "
            "from it: expected --load_replay=False, with which they start with empty buffers."
        )


def check_units(checkpoint: Checkpoint, flags: Flags) -> None:
    """Refuse inputs in other units than those of the weights, which no shape tells apart."""
    saved = modern(checkpoint.state["flags"])
    for name, odd in (("normalise_pixels", "rare"), ("use_last_reward", "raw")):
        now, then = getattr(flags, name), saved.get(name)
        if then not in (now, None) and odd in (now, then):
            raise ConfigError(
                f"--{name}={now}, but {checkpoint.path} is of a run with "
                f"--{name}={shown_text(str(then))}, whose network saw that in other units: "
                "expected the same. Leave the flag out."
            )


def _check_exactness(checkpoint: Checkpoint, blueprint: Blueprint) -> list[str]:
    """Refuse what a reproducible run cannot go on from; return notes on what is not exact."""
    flags, serial = blueprint.flags, checkpoint.state.get("serial")
    if not flags.reproducible:
        if serial:
            return ["the run was reproducible and goes on without: it cannot be repeated from here"]
        return []
    if not serial:
        return [
            "the checkpoint is not of a reproducible run: its games begin anew, and only what "
            "follows can be repeated exactly"
        ]
    then = checkpoint.state["flags"].get("seed")
    if type(then) is int and then != flags.seed:  # nobody would see it: the state has all streams
        raise ConfigError(
            f"--seed={flags.seed}, but {checkpoint.path} is of a reproducible run with "
            f"--seed={then}, whose random streams go on: leave --seed out. --reproducible=False "
            "goes on with another seed."
        )
    if _layout_of_state(serial, blueprint) != _layout_of_flags(blueprint):
        raise ConfigError(
            f"{checkpoint.path} is of a reproducible run with other workers, environments or "
            "games: expected the same --worker_count, --envs_per_worker, --env and --env_shares, "
            "because the games go on where they were. --reproducible=False goes on with others."
        )
    if not flags.load_replay:
        return ["replay contents are left behind: the run is not the one that was not interrupted"]
    names = [buffer.name for buffer in blueprint.replay().buffers]
    if checkpoint.state["replay"]["buffers"] != names:
        raise ConfigError(
            f"{checkpoint.path} is of a reproducible run with the buffers "
            f"{shown_text(', '.join(checkpoint.state['replay']['buffers']))}, got "
            f"{', '.join(names)}: expected the same --replay_parameters. --load_replay=False goes "
            "on with empty buffers."
        )
    if not checkpoint.state.get("has_replay"):
        return ["there are no replay contents: the run is not the one that was not interrupted"]
    if not checkpoint.replay_path.is_file():
        raise ConfigError(
            f"{checkpoint.path} is of a reproducible run, but its replay contents are gone: "
            f"expected {checkpoint.replay_path}. --load_replay=False goes on with empty buffers."
        )
    return []


def _schedule(checkpoint: Checkpoint, blueprint: Blueprint) -> list[str]:
    """Return a note of the length of the schedules where the run now ends after it.

    agent/session.py keeps that length.
    """
    steps, ends_at = blueprint.schedule_steps, blueprint.flags.environment_max_steps
    if checkpoint.state["flags"].get("environment_max_steps") == ends_at or steps >= ends_at:
        return []
    return [
        f"the learning rate and other schedules go on over {steps:,} agent steps, and the run ends "
        f"at {ends_at:,}: --lr_scheduler_steps={ends_at} makes the two equal"
    ]


# Of each worker, in order: game and number of environments, for neighbours that play the same.
_Layout = list[list[tuple[str, int]]]


def _layout_of_state(serial: dict[str, Any], blueprint: Blueprint) -> _Layout:
    # An earlier version did not say which game it was, where there was only one.
    only = blueprint.env_spec.tasks[0]
    rollouts = [rollout["env"] for rollout in serial["pool"]["rollouts"]]
    return [
        [(part.get("env_id", only), len(part["seeds"])) for part in env.get("parts", [env])]
        for env in rollouts
    ]


def _layout_of_flags(blueprint: Blueprint) -> _Layout:
    tasks = blueprint.env_spec.tasks
    return [
        [(tasks[task], len(list(run))) for task, run in groupby(worker.tasks)]
        for worker in blueprint.workers()
    ]
