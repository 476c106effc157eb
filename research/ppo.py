"""PPO as Stable-Baselines3 and CleanRL run it on Atari, in one process: a yardstick.

    python -m research.ppo --game=SpaceInvadersNoFrameskip-v4 --steps=1_000_000 --seed=1

Schulman et al. 2017, https://arxiv.org/abs/1707.06347, with the details of their published agents:
8 games, 128 steps, GAE once per batch, 4 epochs of shuffled steps in 4 minibatches, advantages
normalised per minibatch, clip 0.1, raw values, Nature network, pixels / 255. The games are those of
the default (wrappers/), so that a difference is one of the algorithm. Each setting is an option:
from here it is taken towards ours, one by one, until the curve is lost. Curves go where those of
the queue are.

Sizes: T steps, N games.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import time
from collections import deque
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ritornello.agent.assembly import env_config
from ritornello.core.atomic_file import write_text
from ritornello.flags.options import Flags
from ritornello.wrappers.registry import make_env_vector
from ritornello.wrappers.vector import EnvVector

RESULTS = Path(__file__).resolve().parent / "results"
ROW_STEPS = 10_000  # agent steps between two rows of a curve
AVERAGED = 100  # games


@dataclass(frozen=True)
class Settings:
    """What is learned, and how; the defaults are those of the published agents."""

    game: str = "SpaceInvadersNoFrameskip-v4"
    name: str = "ppo"  # of the arm
    experiment: str = "ppo"  # folder of its curves
    seed: int = 1
    steps: int = 2_500_000
    anneal_steps: int = 2_500_000  # until the learning rate is 0
    games: int = 8
    unroll: int = 128
    epochs: int = 4
    minibatches: int = 4
    lr: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.1
    entropy: float = 0.01
    value: float = 0.5
    max_grad_norm: float = 0.5


class Network(nn.Module):
    """The Nature network (Mnih et al. 2015) with two heads, for uint8 [N, C, 84, 84]."""

    def __init__(self, channels: int, actions: int) -> None:
        """Draw orthogonal weights: sqrt(2) in the torso, 0.01 for the policy, 1 for values."""
        super().__init__()
        self.torso = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip
        self.policy, self.value = nn.Linear(512, actions), nn.Linear(512, 1)
        gains = {self.policy: 0.01, self.value: 1.0}
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(module.weight, gains.get(module, 2**0.5))
                nn.init.zeros_(module.bias)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities [N, A] and values [N]."""
        features = self.torso(obs.float() / 255)
        return self.policy(features).log_softmax(-1), self.value(features).squeeze(-1)


def gae(
    reward: Tensor, terminated: Tensor, valid: Tensor, values: Tensor, gamma: float, lambda_: float
) -> Tensor:
    """Return generalised advantages [T, N] (Schulman et al. 2015, https://arxiv.org/abs/1506.02438).

    Args:
      reward: [T, N] float32.
      terminated: [T, N] bool; nothing is worth anything afterwards.
      valid: [T, N] bool; False at a reset row, over which nothing flows.
      values: [T+1, N] float32; row T bootstraps, and so does the last row of a truncated game.
      gamma: discount.
      lambda_: of the trace.
    """
    goes_on = gamma * ~terminated
    deltas = reward + goes_on * values[1:] - values[:-1]
    advantages = torch.zeros_like(reward)
    carried = torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        carried = valid[t] * (deltas[t] + goes_on[t] * lambda_ * carried)
        advantages[t] = carried
    return advantages


@dataclass
class Batch:
    """T steps of N games, flattened to [T * N] where they are learned from."""

    obs: Tensor  # [T, N, C, 84, 84] uint8
    action: Tensor  # [T, N] int64
    log_prob: Tensor  # [T, N] float32, of the policy that acted
    value: Tensor  # [T+1, N] float32
    reward: Tensor  # [T, N] float32, its sign
    terminated: Tensor  # [T, N] bool
    valid: Tensor  # [T, N] bool


class Games:
    """N games that go on from batch to batch."""

    def __init__(self, settings: Settings) -> None:
        """Start them, by the rules of the default."""
        flags = Flags(env=settings.game)
        seeds = [1000 * settings.seed + n for n in range(settings.games)]
        self.env: EnvVector = make_env_vector(env_config(flags), settings.games, seeds)
        self.shown = self._stacked(self.env.reset())
        self.returns: deque[float] = deque(maxlen=AVERAGED)

    @staticmethod
    def _stacked(stacks: np.ndarray) -> Tensor:
        return torch.from_numpy(stacks.copy()).flatten(1, 2)

    @torch.no_grad()
    def play(self, network: Network, steps: int) -> Batch:
        """Play T steps of each game with sampled actions."""
        columns: dict[str, list[Tensor]] = {field.name: [] for field in fields(Batch)}
        for _ in range(steps):
            log_probs, value = network(self.shown)
            action = torch.distributions.Categorical(logits=log_probs).sample()
            result = self.env.step(action.numpy())
            row = {
                "obs": self.shown,
                "action": action,
                "log_prob": log_probs.gather(1, action[:, None]).squeeze(1),
                "value": value,
                "reward": torch.from_numpy(np.sign(result.reward)),
                "terminated": torch.from_numpy(result.terminated.copy()),
                "valid": torch.from_numpy(~result.first),
            }
            for name, part in row.items():
                columns[name].append(part)
            self.shown = self._stacked(result.stacks)
            self.returns.extend(end.return_raw for end in result.episodes)
        columns["value"].append(network(self.shown)[1])
        return Batch(**{name: torch.stack(parts) for name, parts in columns.items()})


def learn(
    network: Network, optimiser: torch.optim.Optimizer, batch: Batch, settings: Settings
) -> float:
    """Make the epochs of one batch; return the foresight of its values (docs/health.md)."""
    advantages = gae(
        batch.reward,
        batch.terminated,
        batch.valid,
        batch.value,
        settings.gamma,
        settings.gae_lambda,
    )
    targets = (advantages + batch.value[:-1]).flatten()
    obs, action = batch.obs.flatten(0, 1), batch.action.flatten()
    old, flat = batch.log_prob.flatten(), advantages.flatten()
    rows = batch.valid.flatten().nonzero().squeeze(1)
    for _ in range(settings.epochs):
        for own in rows[torch.randperm(len(rows))].chunk(settings.minibatches):
            log_probs, values = network(obs[own])
            ratio = (log_probs.gather(1, action[own, None]).squeeze(1) - old[own]).exp()
            own_advantages = flat[own]
            scaled = (own_advantages - own_advantages.mean()) / (own_advantages.std() + 1e-8)
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            gain = torch.minimum(ratio * scaled, clipped * scaled).mean()
            error = 0.5 * (values - targets[own]).square().mean()
            entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
            optimiser.zero_grad()
            (settings.value * error - gain - settings.entropy * entropy).backward()
            nn.utils.clip_grad_norm_(network.parameters(), settings.max_grad_norm)
            optimiser.step()
    deltas = batch.reward + settings.gamma * ~batch.terminated * batch.value[1:] - batch.value[:-1]
    paid = batch.reward.abs().sum()
    return float(1 - (deltas * batch.reward * batch.valid).sum() / paid) if paid else float("nan")


def train(settings: Settings, results: Path = RESULTS) -> Path:
    """Train; return the file of the curve, which is written as it grows."""
    torch.manual_seed(settings.seed)
    games = Games(settings)
    spec = games.env.spec
    network = Network(spec.obs_shape[0], spec.action_count)
    optimiser = torch.optim.Adam(network.parameters(), settings.lr, eps=1e-5)
    label = f"{settings.name}_{settings.game}_seed{settings.seed}"
    path = results / settings.experiment / f"{label}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    done, started = 0, time.monotonic()
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {json.dumps(_header(settings, finished=False))}\n")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["agent_steps", "wall_s", "return_mean"])
        while done < settings.steps:
            optimiser.param_groups[0]["lr"] = settings.lr * max(0, 1 - done / settings.anneal_steps)
            batch = games.play(network, settings.unroll)
            foresight = learn(network, optimiser, batch, settings)
            before, done = done, done + int(batch.valid.sum())
            if done // ROW_STEPS > before // ROW_STEPS and games.returns:
                wall_s = time.monotonic() - started
                mean = round(float(np.mean(games.returns)), 4)
                rows.writerow([done, round(wall_s, 3), mean])
                file.flush()
                left_s = wall_s / done * (settings.steps - done)
                print(
                    f"{label}: {done:,} of {settings.steps:,} steps, mean return {mean}, "
                    f"foresight {foresight:.2f}, {done / wall_s:.0f} steps/s, "
                    f"{left_s / 60:.0f} min left",
                    flush=True,
                )
    games.env.close()
    _, rest = path.read_text("utf-8").split("\n", 1)
    write_text(path, f"# {json.dumps(_header(settings, finished=True))}\n{rest}")
    return path


def _header(settings: Settings, *, finished: bool) -> dict[str, object]:
    changed = [f for f in fields(Settings) if getattr(settings, f.name) != f.default]
    options = " ".join(f"--{f.name}={getattr(settings, f.name)}" for f in changed)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=RESULTS.parent, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return {
        "label": settings.name, "env": settings.game, "seed": settings.seed, "finished": finished,
        "best": None,
        "command": f"python -m research.ppo {options}".strip(), "commit": commit,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "averaged_games": AVERAGED,
        "settings": asdict(settings),
    }  # fmt: skip


def main() -> None:
    """Train by the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Settings):
        kind = {"str": str, "int": int, "float": float}[str(field.type)]
        parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = vars(parser.parse_args())
    results = options.pop("results")
    train(Settings(**options), results)


if __name__ == "__main__":
    main()
