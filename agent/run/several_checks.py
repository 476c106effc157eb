"""What several learners of one run cannot do is refused here, before anything is started."""

from __future__ import annotations

import json
import platform

import numpy as np
import torch

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learners.place import Place
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.core.errors import ConfigError
from ritornello.core.version import VERSION
from ritornello.flags.options import Flags
from ritornello.flags.parts import ALGORITHMS

# Flags that each of several learners may have of its own: machines differ.
OF_EACH_LEARNER = {
    *("device", "worker_count", "envs_per_worker", "learner_thread_count", "inference"),
    *("results_dir", "load_model_url", "background", "debug", "learner_count"),
}


def check_several(flags: Flags, place: Place) -> None:
    """Check that these flags go together with the number of learners.

    Args:
      flags: the flags of the session.
      place: which learner this is, among how many.

    Raises:
      ConfigError: naming the flag.
    """
    count = place.world_size
    if flags.op_mode == "test":
        if count > 1:
            raise ConfigError(
                f"--op_mode=test was started in {count} processes, expected one: it plays with one "
                "model, and nothing is learned. Start it without torchrun."
            )
        return
    if flags.learner_count not in (1, count):
        raise ConfigError(
            f"--learner_count={flags.learner_count}, but {_learners(count)} started: expected it "
            "on the command line of main.py (not in a file, a preset or a sequence), and with "
            "torchrun not at all."
        )
    if count == 1:
        return
    if flags.reproducible:
        raise ConfigError(
            f"--reproducible=True with {count} learners: expected one, because the order in which "
            "learners become ready depends on time."
        )
    if flags.multiprocessing_backend != "python_native":
        raise ConfigError(
            f"--multiprocessing_backend={flags.multiprocessing_backend} with {count} learners: "
            "expected python_native, because each learner has the workers of its own machine. "
            "One learner may have workers on other machines."
        )
    if flags.save_replay:
        raise ConfigError(
            f"--save_replay=True with {count} learners: expected False, because each learner has "
            "a replay of its own, and a checkpoint holds that of one."
        )
    if not getattr(ALGORITHMS.find(flags.algorithm), "sums_over_learners", False):
        raise ConfigError(
            f"--algorithm={flags.algorithm} with {count} learners: expected one that has "
            "sums_over_learners = True, which says that it adds up over learners what has to be "
            "(docs/several_learners.md)."
        )


def check_several_resume(checkpoint: Checkpoint, flags: Flags, place: Place) -> None:
    """Refuse replay contents of one learner where there are several now.

    Args:
      checkpoint: what the session goes on from.
      flags: the flags of the session.
      place: which learner this is, among how many.

    Raises:
      ConfigError: if they would be lost to the others without a word.
    """
    count = place.world_size
    if count > 1 and checkpoint.state.get("has_replay") and flags.load_replay:
        raise ConfigError(
            f"{checkpoint.path} holds the replay contents of one learner, and {count} are to go on "
            "from it: expected --load_replay=False, with which they start with empty buffers."
        )


def _learners(count: int) -> str:
    return "one learner was" if count == 1 else f"{count} learners were"


def kind_of(blueprint: Blueprint) -> dict[str, str]:
    """Return what has to be the same at every learner of a run."""
    flags = {
        f"--{name}": json.dumps(value)
        for name, value in blueprint.flags.to_json().items()
        if name not in OF_EACH_LEARNER
    }
    return flags | {
        "version": VERSION,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "the environment": json.dumps(blueprint.env_spec.to_dict()),
        "unrolls of bytes": str(blueprint.schema.nbytes),
        "the torso's precision": str(blueprint.choices.torso_dtype),
    }
