"""What networks are shown when they are compared: observations of a file, or of games played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ritornello.analysis.playing import LoadedAgent, play_many
from ritornello.core.errors import ConfigError

ENVS = 8  # that play for the observations, or as many as there are games
STRIDE = 16  # of their steps one is kept: neighbours show nearly the same


@dataclass(frozen=True)
class Shown:
    """N observations that networks are asked about, and the game that each is of."""

    obs: Tensor  # [N, *obs_shape]
    games: Sequence[str]  # N ids

    def first(self, count: int) -> Shown:
        """Return the first `count` of them."""
        return Shown(self.obs[:count], self.games[:count])


def check_differ(shown: Shown) -> None:
    """Raise ConfigError if nothing can be told from the observations, as all are equal."""
    if bool((shown.obs == shown.obs[:1]).all()):
        raise ConfigError(
            f"the {len(shown.obs)} observations that are shown are all the same, so that no two "
            "layers can be compared by them: expected different ones. Give other --observations, "
            "or a larger --observation_count."
        )


def played_observations(agent: LoadedAgent, count: int, seed: int = 0) -> Shown:
    """Let an agent play its games and return `count` observations of what it sees.

    Stacks that reach over a reset are left out: a few pictures that are partly black are so unlike
    all others that they alone would decide how alike two layers are.
    """
    envs = max(ENVS, len(agent.games))
    depth = agent.env_spec.frames_stacked
    frames = torch.zeros(envs, dtype=torch.int64)  # of this game so far
    seen: list[Tensor] = []
    games: list[str] = []
    for number, step in enumerate(play_many(agent, envs, seed=seed)):
        frames = torch.where(step.inputs.first, 1, frames + 1)
        if number % STRIDE == 0:
            whole = frames >= depth
            assert step.inputs.task_id is not None
            seen.append(step.inputs.obs[whole])
            games += [agent.games[task] for task in step.inputs.task_id[whole].tolist()]
        if len(games) >= count:
            break
    return Shown(torch.cat(seen), games).first(count)


def read_observations(path: Path, agent: LoadedAgent) -> Shown:
    """Read `obs` [N, *obs_shape] and `games` [N] from an .npz file.

    Without `games`, as in files of before, all are of the agent's first game.

    Raises:
      ConfigError: if they are not there, damaged, not finite, or of another shape.
    """
    try:
        # A named pipe would keep its reader waiting for ever.
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        # Opened here, because np.load leaves a file open that it cannot read.
        with path.open("rb") as opened, np.load(opened) as file:
            obs = torch.from_numpy(file["obs"])
            games = file["games"].tolist() if "games" in file else [agent.games[0]] * len(obs)
    except Exception as error:  # whatever a stranger's file makes NumPy say, MemoryError included
        raise ConfigError(
            f"--observations={path}: expected an .npz file with an array obs, got {error!r}. "
            "Leave it out, and the agent plays for them."
        ) from error
    obs_shape = agent.model.obs_shape
    if tuple(obs.shape[1:]) != tuple(obs_shape) or len(obs) < 2:
        raise ConfigError(
            f"--observations={path} has shape {tuple(obs.shape)}, expected [N, *{obs_shape}], N at "
            "least 2: they are of another environment."
        )
    if not obs.isfinite().all():
        raise ConfigError(
            f"--observations={path} holds numbers that are not finite, expected none. Leave it "
            "out, and the agent plays for them."
        )
    if not isinstance(games, list) or len(games) != len(obs):
        raise ConfigError(
            f"--observations={path} names the games of {np.size(games)} observations, expected one "
            f"for each of {len(obs)}. Leave it out, and the agent plays for them."
        )
    return Shown(obs, games)
