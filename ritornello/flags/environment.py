"""The flags of the group `environment`."""

from __future__ import annotations

from typing import Literal

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import (
    Count,
    CountOrAuto,
    EnvIds,
    EnvKwargs,
    Number,
    Resolution,
    RewardTransform,
    Shares,
    Text,
)
from ritornello.wrappers.config import BackendChoice


class EnvironmentFlags(FlagGroup, effect="learning"):
    """The games, and what the agent sees of them."""

    env: EnvIds = flag(
        "PongNoFrameskip-v4",
        "environment id: <Game>NoFrameskip-v4, ALE/<Game>-v5, nearly any Gymnasium id, e.g. CartPole-v1 (docs/worlds.md), or <module>:<id> for your own (docs/your_own.md). Several ids separated by commas train one agent for all of these games; three = AirRaid, Carnival, DemonAttack; six = these, NameThisGame, Pong and SpaceInvaders; all = every game that ale-py can play (NoFrameskip-v4)",
        main=True,
    )
    env_kwargs: EnvKwargs = flag(
        "",
        'keyword arguments of the environments, as a mapping in JSON, e.g. {"size": 8}; of Atari only mode and difficulty. python -m ritornello.wrappers.check <id> checks an environment of yours',
    )
    env_shares: Shares = flag(
        (),
        "with several games: the weight of each game, in the order of --env, e.g. 2,1,1. Environments and replay are divided by these weights; a game of weight 0 belongs to the agent and is not played. Empty: equal weights",
    )
    reward_clipping_method: RewardTransform | Literal["none"] = flag(
        "abs_one_sign",
        "rewards as the learner sees them; reported returns stay raw. abs_one_sign: sign(r); abs_one_clamp: clip r to [-1, 1]; soft_asymmetric: 5 tanh(r/5), negative values times 0.3; log: sign(r) log(1 + |r|); none: raw",
    )
    skipped_frames: Count = flag(
        4, "simulator frames per agent step (action repeat)", le=10_000, of_atari=True
    )
    frames_stacked: Count = flag(4, "number of newest frames that the model sees at once", le=64)
    noop_threshold: CountOrAuto = flag(
        30,
        "each game starts with a random number of simulator frames without action, less than this; 0: none",
        le=1_000_000,
        of_atari=True,
    )
    grayscaling_frames: bool = flag(
        True, "gray frames (1 channel) instead of RGB frames (3 channels)", of_atari=True
    )
    frame_scale_resolution: Resolution = flag(
        (84, 84), "height,width to which a frame is scaled, in pixels", of_atari=True
    )
    episodic_life: bool = flag(
        True,
        "in training, the loss of a life ends the agent's episode, but not the game",
        of_atari=True,
    )
    fire_reset: bool = flag(
        True, "press FIRE after a reset in games that wait for it", of_atari=True
    )
    repeat_action_probability: Number | None = flag(
        None,
        "sticky actions: probability that the simulator repeats the previous action; none: 0 for NoFrameskip-v4 and 0.25 for ALE/...-v5",
        of_atari=True,
    )
    action_set: Text = flag(
        "",
        "names of the Atari actions from which the agent chooses, e.g. NOOP,FIRE,LEFT,RIGHT; empty: all actions that the games use; all: all 18. A run that starts from the weights of another keeps the actions of the other",
    )
    max_episode_frames: Count = flag(
        108_000,
        "simulator frames after which a game is cut off (truncated, not terminated); 108 000 frames are 30 minutes",
        of_atari=True,
    )
    env_backend: BackendChoice = flag(
        "auto",
        "ale_vector: Atari, fast, in C++; gymnasium: readable wrappers; gymnasium_vector: one gymnasium.make_vec; envpool: EnvPool's (docs/extra_worlds.md); auto: ale_vector if it supports all flags, else gymnasium",
        effect="machine",
    )
