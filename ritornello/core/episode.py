"""The end of a game, as a message: statistics are not experience, so they never enter an unroll."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpisodeEnd:
    """One whole game (all lives), with raw rewards.

    Replaying an unroll can never count a game twice, because games are not in unrolls.
    """

    env_id: int  # index of the environment within its worker
    return_raw: float  # sum of the unclipped rewards
    length_steps: int  # agent steps (decisions)
    length_frames: int  # simulator frames, start-up no-ops included
    task_id: int = 0  # index of the game in a multi-task run
