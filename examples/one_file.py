"""Ritornello in one file: V-trace actor-critic (IMPALA) with mixed replay, in one process.

    python examples/one_file.py                                  CartPole, a minute or two
    python examples/one_file.py --env=ALE/Pong-v5 --steps=2500000

The story is told in the order in which data flows: environments -> unrolls -> queue and replay ->
batch -> V-trace -> loss -> update. The platform does the same with worker processes, shared
memory, seven kinds of replay, PopArt and checkpoints (docs/architecture.md). Its loss on a
batch is this one. Sizes: T steps per unroll, E environments, B unrolls per batch, A actions.

Espeholt et al., "IMPALA", 2018, https://arxiv.org/abs/1802.01561.
"""

import argparse
import random
from collections import deque
from dataclasses import dataclass, fields

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

T = 20  # steps per unroll
E = 16  # environments
GAMMA = 0.99
LAMBDA = 0.95
VALUE_COST = 0.5  # times 0.5 (target - value)^2
ENTROPY_COST = 0.025  # per step
MAX_GRADIENT_NORM = 0.5
REPLAY_UNROLLS = 1000
WINDOW = 100  # episodes in the mean return


# --- 1. Environments -----------------------------------------------------------------------------


def make_env(env_id: str) -> gymnasium.Env:
    """Return one environment; Atari games as usual: 84x84 gray, 4 stacked, 4 frames per step."""
    if not env_id.startswith("ALE/"):
        return gymnasium.make(env_id)
    import ale_py

    gymnasium.register_envs(ale_py)
    game = gymnasium.make(env_id, frameskip=1, repeat_action_probability=0.0)
    game = gymnasium.wrappers.AtariPreprocessing(game, noop_max=30, terminal_on_life_loss=False)
    return gymnasium.wrappers.FrameStackObservation(game, 4)


# --- 2. The network: a policy and a value --------------------------------------------------------


class ActorCritic(nn.Module):
    """Maps observations [..., *shape] to logits [..., A] and values [...]."""

    def __init__(self, shape: tuple[int, ...], actions: int) -> None:
        """Make a small convolutional network for images [4, 84, 84], else an MLP."""
        super().__init__()
        self.shape = shape
        if len(shape) == 3:
            self.torso = nn.Sequential(
                nn.Conv2d(shape[0], 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
                nn.Flatten(), nn.Linear(32 * 9 * 9, 256), nn.ReLU(),
            )  # fmt: skip
            self.scale = 1 / 255
        else:
            (numbers,) = shape
            self.torso = nn.Sequential(
                nn.Linear(numbers, 64), nn.Tanh(), nn.Linear(64, 256), nn.Tanh()
            )
            self.scale = 1.0
        for layer in self.torso:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(layer.weight, 2**0.5)
                nn.init.zeros_(layer.bias)
        self.policy, self.value = nn.Linear(256, actions), nn.Linear(256, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.orthogonal_(self.value.weight, 1.0)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and values."""
        rows = obs.reshape(-1, *self.shape).float() * self.scale
        hidden = self.torso(rows)
        leading = obs.shape[: -len(self.shape)]
        return (
            self.policy(hidden).reshape(*leading, -1),
            self.value(hidden).reshape(leading),
        )


# --- 3. Unrolls: what is stored, replayed and learned from ---------------------------------------


@dataclass
class Unroll:
    """T steps of one environment, or of B of them side by side in axis 1: a batch.

    Row T of the observations is row 0 of the next unroll: it bootstraps. After the end of an
    episode comes a *reset row*, whose action the environment ignores: nothing is learned from it.
    """

    obs: Tensor  # [T+1, ...]
    action: Tensor  # [T] int64
    reward: Tensor  # [T] float32, the sign of the raw reward, scaled
    terminated: Tensor  # [T] bool, ended by the task, not by a limit of time
    reset_row: Tensor  # [T] bool
    logits: Tensor  # [T, A], of the policy mu that acted

    @staticmethod
    def stack(unrolls: list["Unroll"]) -> "Unroll":
        """Return a batch [T, B, ...]."""
        parts = {
            field.name: torch.stack([getattr(unroll, field.name) for unroll in unrolls], 1)
            for field in fields(Unroll)
        }
        return Unroll(**parts)


class Actors:
    """E environments that are played by the present policy, and their episodes' returns."""

    def __init__(self, env_id: str, seed: int) -> None:
        """Reset the environments."""
        self.envs = gymnasium.vector.SyncVectorEnv([lambda: make_env(env_id)] * E)
        self.obs, _ = self.envs.reset(seed=seed)
        # Games pay now and then. A reward at every step is worth 1 / (1 - GAMMA) in all, and such
        # values would drown the policy gradient. The platform normalises them instead (PopArt).
        self.reward_scale = 1.0 if self.obs.ndim > 2 else 1 - GAMMA
        self.ended = np.zeros(E, bool)  # the episode ended in the step before: this one resets
        self.returns = np.zeros(E)
        self.finished: deque[float] = deque(maxlen=WINDOW)

    @torch.no_grad()
    def play(self, model: ActorCritic) -> list[Unroll]:
        """Play T steps in each environment; return E unrolls."""
        rows = []
        for _ in range(T):
            obs = torch.as_tensor(np.array(self.obs))
            logits, _ = model(obs)
            action = torch.distributions.Categorical(logits=logits).sample()
            self.obs, reward, terminated, truncated, _ = self.envs.step(action.numpy())
            reset_row, self.ended = self.ended, terminated | truncated
            self._count(reward, self.ended)
            scaled = (self.reward_scale * np.sign(reward)).astype(np.float32)
            flags = (scaled, terminated & ~reset_row, reset_row)
            rows.append((obs, action, *(torch.as_tensor(flag) for flag in flags), logits))
        obs, action, reward, terminated, reset_row, logits = (
            torch.stack(column) for column in zip(*rows, strict=True)
        )
        last = torch.as_tensor(np.array(self.obs)).unsqueeze(0)
        parts = (torch.cat([obs, last]), action, reward, terminated, reset_row, logits)
        return [Unroll(*(part[:, env] for part in parts)) for env in range(E)]

    def _count(self, reward: np.ndarray, ended: np.ndarray) -> None:
        self.returns += reward
        for env in np.flatnonzero(ended):
            self.finished.append(self.returns[env])
            self.returns[env] = 0.0


# --- 4. Replay: a queue of new unrolls, and a uniform buffer of old ones -------------------------


class MixedReplay:
    """Each batch has all new unrolls, each once, and `share` of the batch from the buffer."""

    def __init__(self, share: float, seed: int) -> None:
        """Start empty.

        Args:
          share: of replayed unrolls in a batch, 0 to below 1.
          seed: of the draws.
        """
        self.share = share
        self.buffer: deque[Unroll] = deque(maxlen=REPLAY_UNROLLS)
        self.random = random.Random(seed)

    def batches(self, new: list[Unroll], size: int) -> list[Unroll]:
        """Put new unrolls in; return batches of `size` unrolls that use each new one once."""
        self.buffer.extend(new)
        replayed = min(size - 1, round(self.share * size))
        parts = [new[i : i + size - replayed] for i in range(0, len(new), size - replayed)]
        return [
            Unroll.stack(part + self.random.sample(list(self.buffer), min(replayed, len(new))))
            for part in parts
        ]


# --- 5. V-trace: targets and advantages, corrected for old policies ------------------------------


def vtrace(
    log_rhos: Tensor, discounts: Tensor, rewards: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Return value targets and advantages, each [T, B]; bars of 1, lambda = LAMBDA.

    delta_t = rho_t (r_t + discount_t V_{t+1} - V_t), acc_t = delta_t + discount_t c_t acc_{t+1};
    the target is V_t + acc_t, the advantage rho_t (r_t + discount_t (V_{t+1} + acc_{t+1}) - V_t).

    Args:
      log_rhos: [T, B], log pi(a|x) - log mu(a|x); -inf on reset rows, where nothing is learned.
      discounts: [T, B], 0 where the episode terminated.
      rewards: [T, B].
      values: [T+1, B].
    """
    rhos = log_rhos.exp().clamp(max=1.0)
    deltas = rhos * (rewards + discounts * values[1:] - values[:-1])
    acc = torch.zeros_like(values)
    for t in reversed(range(len(rewards))):
        acc[t] = deltas[t] + discounts[t] * LAMBDA * rhos[t] * acc[t + 1]
    targets = values[:-1] + acc[:-1]
    advantages = rhos * (rewards + discounts * (values[1:] + acc[1:]) - values[:-1])
    return targets, advantages


# --- 6. The loss of a batch ----------------------------------------------------------------------


def loss_of(logits: Tensor, values: Tensor, batch: Unroll) -> Tensor:
    """Return the loss, a mean over valid steps: policy gradient, value error, entropy.

    Args:
      logits: [T+1, B, A], of the policy pi that is trained.
      values: [T+1, B].
      batch: T steps of B unrolls.
    """
    valid = ~batch.reset_row
    pi = torch.distributions.Categorical(logits=logits[:-1])
    mu = torch.distributions.Categorical(logits=batch.logits)
    log_pi = pi.log_prob(batch.action)
    with torch.no_grad():
        log_rhos = (log_pi - mu.log_prob(batch.action)).masked_fill(~valid, -torch.inf)
        discounts = GAMMA * ~batch.terminated
        targets, advantages = vtrace(log_rhos, discounts, batch.reward, values.detach())
        rms = ((advantages.square() * valid).sum() / valid.sum()).sqrt()
        advantages = advantages / (rms + 1e-8)  # one entropy cost then fits all games
    policy = -advantages * log_pi
    value = VALUE_COST * 0.5 * (values[:-1] - targets).square()
    entropy = -ENTROPY_COST * pi.entropy()
    return ((policy + value + entropy) * valid).sum() / valid.sum()


# --- 7. The update -------------------------------------------------------------------------------


class Learner:
    """Owns the network and the optimiser."""

    def __init__(self, model: ActorCritic, lr: float) -> None:
        """Make the optimiser."""
        self.model, self.lr = model, lr
        self.optimiser = torch.optim.Adam(model.parameters(), lr, eps=1e-5)

    def step(self, batch: Unroll, progress: float) -> None:
        """Take one step; the learning rate falls to nothing with progress, 0 to 1."""
        self.optimiser.zero_grad()
        logits, values = self.model(batch.obs)
        loss_of(logits, values, batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
        self.optimiser.param_groups[0]["lr"] = self.lr * (1 - progress)
        self.optimiser.step()


# --- 8. The training -----------------------------------------------------------------------------


def train(env_id: str, steps: int, seed: int, replay: float, lr: float) -> float:
    """Train for so many steps of the agent; return the mean return of the last episodes."""
    torch.manual_seed(seed)
    actors = Actors(env_id, seed)
    space = actors.envs.single_observation_space
    model = ActorCritic(space.shape, int(actors.envs.single_action_space.n))
    learner = Learner(model, lr)
    mixed = MixedReplay(replay, seed)
    done, told = 0, 0
    while done < steps:
        new = actors.play(model)
        for batch in mixed.batches(new, size=8):
            learner.step(batch, done / steps)
        done += T * E
        if done - told >= steps / 20:
            told = done
            mean = np.mean(actors.finished) if actors.finished else float("nan")
            print(f"{done:9,} of {steps:,} steps, mean return {mean:.1f}", flush=True)
    actors.envs.close()
    return float(np.mean(actors.finished))


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=200_000, help="steps of the agent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=float, default=0.5, help="replayed share of each batch")
    parser.add_argument("--lr", type=float, help="default: 0.00025 for images, else 0.0005")
    flags = parser.parse_args()
    lr = flags.lr or (2.5e-4 if flags.env.startswith("ALE/") else 5e-4)
    train(flags.env, flags.steps, flags.seed, flags.replay, lr)


if __name__ == "__main__":
    main()
