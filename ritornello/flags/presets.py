"""Recipes: named sets of flags, chosen by `--preset=<name>` or `--preset=<name>,<name>`.

A recipe contains only the flags that differ from the defaults in flags/. The defaults are the
recipe for Atari on a small machine. If several recipes are given, a later one overrides an earlier
one. Flags that the user passes override all of them.
`docs/flags.md` and `--help` show this table.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import american, did_you_mean
from ritornello.core.plain_data import shown, shown_text
from ritornello.flags.replay import DEFAULT_REPLAY


@dataclass(frozen=True)
class Preset:
    """A documented set of flags."""

    purpose: str
    flags: dict[str, Any]


# Looking at each 4th row of a candidate (attentive: each 2nd) hardly changes which are chosen:
# docs/performance.md, "Scoring fewer rows".
def _instead_of_uniform(**replay: Any) -> list[dict[str, Any]]:
    """Return the default mixture with another buffer in the place of the uniform one."""
    queue, uniform = json.loads(DEFAULT_REPLAY)
    return [queue, {**uniform, **replay}]


def _half(**replay: Any) -> list[dict[str, Any]]:
    """Return a mixture of half new unrolls and half another buffer."""
    return [
        {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
        {"type": "standard", "capacity": 1000, "sample_ratio": 0.5, **replay},
    ]


def _circular(capacity: int, uses: int) -> list[dict[str, Any]]:
    """Return a circular buffer, which draws each unroll `uses` times, and no other buffer."""
    return [{"type": "circular", "capacity": capacity, "sample_ratio": 1.0, "uses": uses}]


# Espeholt et al. 2018, table G.1: the rate goes to 0 over 200 M frames, losses are summed, and
# RMSprop's epsilon stands inside the square root.
_IMPALA: dict[str, Any] = {
    "model": "impala_shallow",
    "r_f_steps": 20,
    "batch_size": 32,
    "replay_parameters": [{"type": "queue", "capacity": 32, "sample_ratio": 1.0}],
    "environment_max_steps": 50_000_000,
    "lr_scheduler_steps": 50_000_000,
    "optimizer": "rmsprop_tf",
    "optimizer_eps": 0.01,
    "lr": 6e-4,
    "lr_end_value": 0.0,
    "loss_reduction": "sum",
    "gradient_clip_by_norm_threshold": 40.0,
    "entropy_loss_weight": 0.01,
    "value_loss_weight": 0.5,
    "vtrace_lambda": 1.0,
    "normalise_pixels": False,
    "use_popart": False,
    "advantage_normalisation": "none",
    "reward_clipping_method": "abs_one_clamp",
}

# Environments that show vectors and are quick: one worker with eight of them keeps a learner busy,
# and nothing is stacked, skipped or clipped. Two small layers take less time than handing them to
# a second thread of the learner: docs/performance.md, "Small networks".
_VECTORS: dict[str, Any] = {
    "model": "mlp",
    "precision": "fp32",
    "learner_thread_count": 1,
    "reward_clipping_method": "none",
    "worker_count": 1,
    "envs_per_worker": 8,
    "noop_threshold": 0,
    "frames_stacked": 1,
    "skipped_frames": 1,
}

# What is usual for PPO on MuJoCo: normalised observations, two tanh layers of 64, no entropy bonus,
# and a learning rate of 3e-4 that goes to 0 over a million steps. PopArt stands for the scaling of
# rewards. What IMPACT reaches with them: docs/results.md, "MuJoCo's robots".
_MUJOCO: dict[str, Any] = {
    **_VECTORS,
    "feature_out_layer_size": 64,
    "normalise_vectors": True,
    "use_popart": True,
    "advantage_normalisation": "rms",
    "entropy_loss_weight": 0.0,
    "gamma": 0.99,
    "vtrace_lambda": 0.95,
    "optimizer": "adam",
    "lr": 3e-4,
    "lr_end_value": 0.0,
    "gradient_clip_by_norm_threshold": 0.5,
    "environment_max_steps": 1_000_000,
    "lr_scheduler_steps": 1_000_000,
}

PRESETS: dict[str, Preset] = {
    "atari": Preset("Atari on a small machine; the default for Atari games", {}),
    "vector": Preset(
        "small vector observations; the default for them where actions are choices",
        {
            **_VECTORS,
            "environment_max_steps": 300_000,
            "lr_scheduler_steps": 300_000,
            "advantage_normalisation": "none",
            "popart_beta": 3e-4,
            "entropy_loss_weight": 0.005,
            "lr": 7e-4,
        },
    ),
    "image": Preset(
        "images other than Atari's; the default for them",
        {
            "reward_clipping_method": "none",
            "noop_threshold": 0,
            "frames_stacked": 1,
            "skipped_frames": 1,
        },
    ),
    # Clipped rewards would make a point of Pong equal to one of 400 in Carnival for the policy as
    # well; with raw ones each game is learned in units of its own, by PopArt (Hessel et al. 2019).
    "several-games": Preset(
        "one agent for several Atari games; the default for them",
        {"reward_clipping_method": "none"},
    ),
    "cartpole": Preset("CartPole-v1, solved within minutes", {"env": "CartPole-v1"}),
    "impala-shallow": Preset(
        "IMPALA's published settings, small network, 200 M frames (Espeholt et al. 2018)", _IMPALA
    ),
    "impala-deep": Preset(
        "impala-shallow with the residual network, for which a GPU is advisable",
        {**_IMPALA, "model": "resnet"},
    ),
    "laser": Preset(
        "impala-deep, 7/8 of each batch replayed, trust region (Schmitt et al. 2019)",
        {
            **_IMPALA,
            "model": "resnet",
            "replay_parameters": [
                {"type": "queue", "capacity": 32, "sample_ratio": 0.125},
                {"type": "standard", "capacity": 50_000, "sample_ratio": 0.875},
            ],
            "use_replay_compression": True,
            "kl_mask_kind": "implied",
            "kl_div_threshold": 0.3,
            "entropy_on": "online",
        },
    ),
    "more-replay": Preset(
        "three quarters of each batch replayed, little entropy bonus: docs/results.md",
        {
            "replay_parameters": [
                {"type": "queue", "capacity": 4, "sample_ratio": 0.25},
                {"type": "standard", "capacity": 10_000, "sample_ratio": 0.75},
            ],
            "entropy_on": "online",
        },
    ),
    "clear": Preset(
        "half replay from a reservoir, cloning losses, against forgetting (Rolnick et al. 2019)",
        {
            "replay_parameters": _half(capacity=10_000, reservoir=True, per_game=False),
            "policy_cloning_loss_weight": 0.01,
            "value_cloning_loss_weight": 0.005,
        },
    ),
    "attentive": Preset(
        "attentive replay: unrolls near the agents' present states (Sun et al. 2020)",
        {
            "replay_parameters": _instead_of_uniform(
                type="attentive", lambda_batch_multiplier=6.0, score_stride=2
            )
        },
    ),
    "elite": Preset(
        "elite replay, strategy 3: the least drawn unrolls, and of these the least drifted",
        {
            "replay_parameters": _instead_of_uniform(
                type="elite",
                lambda_batch_multiplier=6.0,
                elite_sampling_strategy=3,
                score_stride=4,
            )
        },
    ),
    "prioritised": Preset(
        "prioritised replay: unrolls with larger errors more often (Schaul et al. 2016)",
        {"replay_parameters": _instead_of_uniform(type="prioritised")},
    ),
    "least_drawn": Preset(
        "replay of the least drawn unrolls, ties at random: elite without its distance",
        {"replay_parameters": _instead_of_uniform(type="least_drawn", lambda_batch_multiplier=6.0)},
    ),
    "impact": Preset(
        "IMPACT: clipped steps against a target network, each of 4 batches used twice (Luo et al. "
        "2020): docs/impact.md",
        {
            "algorithm": "impact",
            "replay_parameters": _circular(32, uses=2),
        },
    ),
    "q_lambda": Preset(
        "Q(lambda): values of actions and a norm in each layer, as in PQN (Gallici et al. 2024): "
        "docs/q_lambda.md",
        {
            "algorithm": "q_lambda",
            "layer_norm": "all",
            "normalise_pixels": True,
            "replay_parameters": _half(),
            "use_popart": False,
            "value_loss_weight": 1.0,
            "gradient_clip_by_norm_threshold": 10.0,
        },
    ),
    "mujoco": Preset(
        "MuJoCo's robots by V-trace, each unroll used twice: docs/extra_worlds.md",
        {
            **_MUJOCO,
            "r_f_steps": 32,
            "batch_size": 8,
            "replay_parameters": _circular(32, uses=2),
        },
    ),
    "impact-mujoco": Preset(
        "vectors and actions of real numbers, as of MuJoCo's robots, by IMPACT, each of 8 batches "
        "used 20 times (Luo et al. 2020); the default for them: docs/extra_worlds.md",
        {
            **_MUJOCO,
            "algorithm": "impact",
            "algorithm_kwargs": '{"surrogate_clip": 0.2}',
            "r_f_steps": 64,
            "batch_size": 4,
            # 2,048 steps, as many as PPO's usual rollout: twice as many, the paper's 16 batches,
            # learn half as fast (the same place).
            "replay_parameters": _circular(32, uses=20),
        },
    ),
    "minigrid": Preset(
        "MiniGrid and BabyAI, whose observations become vectors: docs/extra_worlds.md",
        {
            **_VECTORS,
            "feature_out_layer_size": 128,
            "entropy_loss_weight": 0.01,
            # A constant bonus keeps drawn actions behind the most probable: docs/results.md.
            "entropy_end_weight": 1e-4,
            "lr": 5e-4,
            "r_f_steps": 32,
            "environment_max_steps": 1_000_000,
            "lr_scheduler_steps": 1_000_000,
        },
    ),
    "vizdoom": Preset(
        "Doom's screen, each action repeated for 4 ticks: docs/extra_worlds.md",
        {
            "env_kwargs": '{"frame_skip": 4}',
            "normalise_pixels": True,
            "reward_clipping_method": "none",
            "frames_stacked": 4,
            "skipped_frames": 4,
            "noop_threshold": 0,
        },
    ),
    "attention": Preset(
        "an agent that shows where it looks (Mott et al. 2019, with smaller maps); "
        "--preset=attention,rgb_last gives it one RGB frame, as in the paper",
        # Half the widths that the model has by itself, for speed; and a wider batch than that of
        # other agents, because the rows of an unroll go through its memory one after another.
        {
            "model": "attention",
            "normalise_pixels": True,
            "feature_out_layer_size": 16,
            "lstm_size": 128,
            "batch_size": 16,
            "replay_parameters": [
                {"type": "queue", "capacity": 8, "sample_ratio": 0.5},
                {"type": "standard", "capacity": 1000, "sample_ratio": 0.5},
            ],
        },
    ),
    # What an old command line leaves unsaid. Its learning rate annealed over 10 000 updates.
    "older-platform": Preset(
        "defaults of the older elite-replay platform, for old command lines: docs/migration.md",
        {
            "env": "AtlantisNoFrameskip-v4",
            "environment_max_steps": 15_000_000,
            "model": "elite",
            "worker_count": 7,
            "envs_per_worker": 5,
            "shared_queue_size": 4,
            "r_f_steps": 10,
            "batch_size": 100,
            "replay_parameters": [
                {"type": "queue", "capacity": 1, "sample_ratio": 0.5},
                {"type": "standard", "capacity": 1000, "sample_ratio": 0.5},
            ],
            "training_fill_in_factor": 0.2,
            "use_replay_compression": True,
            "optimizer": "rmsprop",
            "optimizer_eps": 0.01,
            "lr": 8e-4,
            "lr_schedule": "polynomial",
            "lr_end_value": 1e-5,
            "lr_scheduler_steps": "10000u",
            "loss_reduction": "sum",
            "gradient_clip_by_norm_threshold": 40.0,
            "entropy_loss_weight": 0.01,
            "value_loss_weight": 0.5,
            "vtrace_lambda": 1.0,
            "policy_cloning_loss_weight": 0.05,
            "value_cloning_loss_weight": 0.005,
            "kl_mask_kind": "kl_pi_mu",
            "normalise_pixels": False,
            "use_popart": False,
            "advantage_normalisation": "none",
            "learner_thread_count": 1,
        },
    ),
    "rgb_stack": Preset(
        "the newest 4 frames in colour", {"grayscaling_frames": False, "frames_stacked": 4}
    ),
    "rgb_last": Preset(
        "only the newest frame, in colour; for models with memory",
        {"grayscaling_frames": False, "frames_stacked": 1},
    ),
    "sticky": Preset(
        "protocol of Machado et al. 2018: sticky actions, all 18 actions, lost lives are ignored",
        {
            "repeat_action_probability": 0.25,
            "action_set": "all",
            "episodic_life": False,
            "fire_reset": False,
            "max_episode_frames": 108_000,
        },
    ),
}


_NAMES = {american(name): name for name in PRESETS}


def preset_names(typed: str) -> list[str]:
    """Return the names in a comma-separated list of presets.

    Raises:
      ConfigError: on an unknown name.
    """
    names = [_NAMES.get(american(part.strip()), part.strip()) for part in typed.split(",")]
    for name in names:
        if name not in PRESETS:
            hint = did_you_mean(name, PRESETS) or f"expected {', '.join(PRESETS)}"
            raise ConfigError(
                f"--preset={shown_text(typed)}: there is no preset {shown(name)}; {hint}"
            )
    return names


def preset_flags(typed: str) -> dict[str, Any]:
    """Return the flags of a comma-separated list of presets; later ones win.

    Raises:
      ConfigError: on an unknown name.
    """
    flags: dict[str, Any] = {}
    for name in preset_names(typed):
        flags |= PRESETS[name].flags
    return flags


def describe(preset: Preset) -> str:
    """Return the flags of a preset as they would be typed."""
    return shlex.join(
        f"--{name}={json.dumps(value) if isinstance(value, list) else value}"
        for name, value in preset.flags.items()
    )
