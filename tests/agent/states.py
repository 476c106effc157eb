"""The smallest states that a checkpoint may hold, for tests of files and folders."""

import torch

from ritornello.core.spec import EnvSpec

SPEC = EnvSpec("PongNoFrameskip-v4", (1, 84, 84), "uint8", 4, ("NOOP", "FIRE", "UP"), 4)


def state_at(updates, **more):
    """A state with weights, of which `updates` tells which one it is; `more` adds or replaces."""
    state = {
        "updates": updates,
        "flags": {"batch_size": 2, "r_f_steps": 5},
        "env_spec": SPEC.to_dict(),
        "learner": {"model": {"weights": torch.full((3,), updates)}},
        "tally": {"updates": updates, "agent_steps": 100 * updates},
    }
    return {**state, **more}
