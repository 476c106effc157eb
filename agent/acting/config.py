"""Settings of workers and of the inference server: plain and picklable.

The learner's process reads this file, but not the files that do their work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ritornello.agent.machine import WeightFormat
from ritornello.agent.models.factory import ModelConfig
from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.wrappers.config import EnvConfig


@dataclass(frozen=True)
class WorkerConfig:
    """All that a worker needs to know."""

    worker_id: int
    life: int  # 0, then 1 more for each restart, so that a restarted worker plays new games
    env_config: EnvConfig
    env_spec: EnvSpec
    num_envs: int
    tasks: tuple[int, ...]  # which game each environment plays
    unroll_length: int
    feature_count: int  # F if unrolls carry features, else 0
    state_count: int  # numbers in the model's memory, 0 if it has none
    model_config: ModelConfig
    popart: bool
    acting_format: WeightFormat
    seed: int
    core: int | None = None  # core that the process stays on; None: any
    restorable: bool = False
    check_unrolls: bool = False
    launch: tuple[int, ...] = ()  # on a cluster: number of the start, so that it plays new games

    def schema(self) -> UnrollSchema:
        """Return the schema of this worker's unrolls."""
        return UnrollSchema(self.env_spec, self.unroll_length, self.feature_count, self.state_count)


@dataclass(frozen=True)
class ServerConfig:
    """All that the inference server needs to know."""

    life: int  # grows with each restart, so that actions are drawn from another random stream
    env_spec: EnvSpec
    feature_count: int  # F if unrolls carry features, else 0
    model_config: ModelConfig
    popart: bool
    acting_format: WeightFormat  # format of the torso's parameters on the board
    device: torch.device
    torso_dtype: torch.dtype  # dtype of the torso's parameters on a GPU
    seed: int


def group_sizes(num_envs: int) -> tuple[int, ...]:
    """Return how many environments of a worker step together: two halves, if it has two."""
    half = num_envs // 2
    return (num_envs - half, half) if half else (num_envs,)
