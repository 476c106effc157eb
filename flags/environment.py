"""The flags of the group `environment`."""

from __future__ import annotations

from flags.group import FlagGroup, flag
from flags.kinds import Count, CountOrAuto, EnvIds, EnvKwargs, Number, Resolution, Shares, Text
from flags.values import RewardTransform
from wrappers.config import BackendChoice


class EnvironmentFlags(FlagGroup):
    """The games, and what the agent sees of them."""

    env: EnvIds = flag(
        "PongNoFrameskip-v4",
        "environment id: <Game>NoFrameskip-v4, ALE/<Game>-v5, or any Gymnasium id with discrete actions that shows vectors or images, e.g. CartPole-v1, or <module>:<id> for one of your own (docs/your_own.md). Several ids with commas: one agent for all these games; three = AirRaid, Carnival, DemonAttack; six = these, NameThisGame, Pong and SpaceInvaders; all = every game that ale-py can play (NoFrameskip-v4)",
    )
    env_kwargs: EnvKwargs = flag(
        "",
        'arguments that environments are made with, a mapping in JSON, e.g. {"size": 8}; not for Atari, which has flags of its own; python -m wrappers.check <id> looks over an environment of yours',
    )
    env_shares: Shares = flag(
        (),
        "with several games: the weight of each, in the order of --env, e.g. 2,1,1; environments and replay are dealt out accordingly; empty: all the same",
    )
    clip_rewards: bool = flag(
        True,
        "transform rewards for learning by --reward_clipping_method; reported returns stay raw",
    )
    reward_clipping_method: RewardTransform = flag(
        "abs_one_sign",
        "sign(r); clip to [-1, 1]; or 5 tanh(r/5), negative part times 0.3",
    )
    skipped_frames: Count = flag(4, "simulator frames per agent step (action repeat)", le=10_000)
    frames_stacked: Count = flag(4, "newest frames that the model sees at once", le=64)
    noop_threshold: CountOrAuto = flag(
        30,
        "a game starts after a random number of simulator frames without action, below this; 0 for none",
        le=1_000_000,
    )
    grayscaling_frames: bool = flag(True, "gray frames (1 channel) instead of RGB (3)")
    frame_scale_resolution: Resolution = flag((84, 84), "height,width of a frame, pixels")
    episodic_life: bool = flag(
        True,
        "in training, the loss of a life ends the agent's episode (not the game)",
    )
    fire_reset: bool = flag(True, "press FIRE after a reset in games that wait for it")
    repeat_action_probability: Number | None = flag(
        None,
        "sticky actions: probability that the simulator repeats the previous action; default 0 for NoFrameskip-v4 and 0.25 for ALE/...-v5",
    )
    full_action_space: bool = flag(False, "all 18 Atari actions instead of the game's own")
    action_set: Text = flag(
        "",
        "names of the Atari actions that the agent chooses from, e.g. NOOP,FIRE,LEFT,RIGHT; empty: all that the games use (--full_action_space). A run that starts from another's weights keeps the other's actions",
    )
    max_episode_frames: Count = flag(
        108_000,
        "a game is cut (truncated, not terminated) after this many simulator frames; 108 000 is 30 minutes",
    )
    env_backend: BackendChoice = flag(
        "auto",
        "ale_vector: the fast C++ one; gymnasium: the readable wrappers; auto: the fast one where it honours every flag",
    )
