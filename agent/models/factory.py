"""Builds a model from a config and the shapes of the environment."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from agent.models.base import ActorCritic
from agent.models.popart import PopArt
from agent.models.torsos import IMAGE_TORSOS, ImageTorso, MlpTorso
from core.errors import ConfigError
from core.spec import EnvSpec

MODEL_NAMES = ("auto", *IMAGE_TORSOS, "mlp")

POLICY_HEAD_GAIN = 0.01  # almost uniform at the start, whatever the features are


@dataclass(frozen=True)
class ModelConfig:
    """Which network, and how its value head is normalised."""

    name: str = "auto"  # one of MODEL_NAMES; auto: impala_shallow for images, mlp for vectors
    feature_count: int = 0  # F, width of the last hidden layer; 0: the network's own
    normalise_pixels: bool = True  # subtract the mean image, divide by the deviation
    popart_step_size: float = 3e-4  # beta, share of the statistics replaced per update
    popart_sigma_min: float = 1e-4
    popart_sigma_max: float = 1e6

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        if self.name not in MODEL_NAMES:
            raise ConfigError(f"model is {self.name!r}, expected one of {', '.join(MODEL_NAMES)}.")
        if self.feature_count < 0:
            raise ConfigError(f"feature_count is {self.feature_count}, expected 0 or more.")
        if not 0 < self.popart_step_size <= 1:
            raise ConfigError(f"popart_step_size is {self.popart_step_size}, expected in (0, 1].")
        if not 0 < self.popart_sigma_min < self.popart_sigma_max:
            raise ConfigError(
                f"popart_sigma_min is {self.popart_sigma_min} and popart_sigma_max is "
                f"{self.popart_sigma_max}, expected 0 < min < max."
            )


def make_model(
    config: ModelConfig,
    env_spec: EnvSpec,
    task_count: int = 1,
    popart: bool = False,
    seed: int = 0,
) -> ActorCritic:
    """Build a freshly initialised model on the CPU.

    Args:
      config: which network.
      env_spec: gives the observation shape and the number of actions.
      task_count: K, games in the run; each has its own value output, the policy is shared.
      popart: whether the value head normalises its targets.
      seed: of the initial weights; equal seeds give equal weights.
    """
    name = config.name
    if name == "auto":
        name = "impala_shallow" if env_spec.is_image else "mlp"
    if name in IMAGE_TORSOS and not env_spec.is_image:
        raise ConfigError(
            f"model {name!r} needs images, but {env_spec.env_id} shows vectors of shape "
            f"{env_spec.obs_shape}. Use --model=mlp or --model=auto."
        )
    torso: ImageTorso | MlpTorso
    if name == "mlp":
        torso = MlpTorso(env_spec.obs_shape, config.feature_count)
    else:
        torso = ImageTorso(
            name,
            env_spec.obs_shape,
            config.feature_count,
            normalise_pixels=config.normalise_pixels and env_spec.frame_dtype == "uint8",
        )
    value_head = PopArt(
        torso.feature_count,
        task_count,
        enabled=popart,
        step_size=config.popart_step_size,
        sigma_min=config.popart_sigma_min,
        sigma_max=config.popart_sigma_max,
    )
    model = ActorCritic(
        torso, env_spec.obs_shape, torso.feature_count, env_spec.action_count, value_head
    )
    _initialise(model, torch.Generator().manual_seed(seed))
    return model


def _initialise(model: ActorCritic, generator: torch.Generator) -> None:
    """Draw orthogonal weights and zero biases."""
    gains: dict[nn.Module, float] = {
        model.policy_head: POLICY_HEAD_GAIN,
        model.value_head.linear: 1.0,
    }
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            gain = gains.get(module, math.sqrt(2))  # sqrt(2) keeps the scale through ReLU
            nn.init.orthogonal_(module.weight, gain, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
