"""The smallest states that a checkpoint may hold, for tests of files and folders."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ritornello.core.rng import generator_state
from ritornello.core.spec import EnvSpec

SPEC = EnvSpec("PongNoFrameskip-v4", (1, 84, 84), "uint8", 4, ("NOOP", "FIRE", "UP"), 4)


def state_at(updates: int, **more: Any) -> dict[str, Any]:
    """A state with weights, of which `updates` tells which one it is; `more` adds or replaces."""
    state: dict[str, Any] = {
        "updates": updates,
        "flags": {"batch_size": 2, "r_f_steps": 5},
        "env_spec": SPEC.to_dict(),
        "learner": {"model": {"weights": torch.full((3,), updates)}},
        "tally": {"updates": updates, "agent_steps": 100 * updates},
    }
    return {**state, **more}


def replay_with(**more: Any) -> dict[str, Any]:
    """The state of replay without unrolls, and whatever a test wants to find again."""
    rng = generator_state(np.random.default_rng(0))
    quotas = {"claims": [1, 2], "carry": [0]}
    return {
        "format": 1,
        "buffers": ["queue"],
        "counters": {"next_id": 0, "update": 0, "draws": 0, "online_draws": 0},
        "mixer": {"rng": rng, "quotas": quotas, "wanted": [2], "drop_newest_next": False},
        "contents": None,
        **more,
    }
