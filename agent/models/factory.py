"""Builds a model from a config and the shapes of the environment."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from agent.models.attention import KEY_CHANNELS, AttentionCore, AttentionTorso
from agent.models.base import ActorCritic, Core
from agent.models.initialisation import draw_layer
from agent.models.pixels import PixelStatistics
from agent.models.popart import PopArt
from agent.models.recurrent import ExtraInputs, RecurrentCore
from agent.models.torsos import IMAGE_TORSOS, ImageTorso, MlpTorso
from core.errors import ConfigError
from core.spec import EnvSpec

IMAGE_MODELS = (*IMAGE_TORSOS, "attention")
MODEL_NAMES = ("auto", *IMAGE_MODELS, "mlp")

POLICY_HEAD_GAIN = 0.01  # almost uniform at the start, whatever the features are


@dataclass(frozen=True)
class ModelConfig:
    """Which network, what it sees and remembers, and how its value head is normalised."""

    name: str = "auto"  # one of MODEL_NAMES; auto: impala_shallow for images, mlp for vectors
    # F, width of the torso's last layer (attention: channels of the map); 0: the network's own
    feature_count: int = 0
    normalise_pixels: bool = True  # subtract the mean image, divide by the deviation
    popart_step_size: float = 3e-4  # beta, share of the statistics replaced per update
    popart_sigma_min: float = 1e-4
    popart_sigma_max: float = 1e6
    use_lstm: bool = False  # attention always has one of its own
    lstm_size: int = 256  # H
    lstm_layers: int = 1
    use_last_action: bool = False  # the last action, one-hot, is an input
    use_last_reward: bool = False  # the last reward, clamped to [-1, 1], is an input
    clamp_last_reward: bool = True  # False: raw, as in agents of TorchBeast with PopArt
    use_task_id: bool = False  # the number of the game, one-hot, is an input

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        if self.name not in MODEL_NAMES:
            raise ConfigError(f"model is {self.name!r}, expected one of {', '.join(MODEL_NAMES)}.")
        if self.feature_count < 0:
            raise ConfigError(f"feature_count is {self.feature_count}, expected 0 or more.")
        if self.name == "attention" and 0 < self.feature_count <= KEY_CHANNELS:
            raise ConfigError(
                f"feature_count is {self.feature_count}, expected 0 or more than {KEY_CHANNELS} "
                f"for model 'attention': {KEY_CHANNELS} channels of its map are keys, the others "
                "values."
            )
        for name in ("lstm_size", "lstm_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 1 or more.")
        if self.name == "attention" and self.lstm_layers != 1:
            raise ConfigError(
                f"lstm_layers is {self.lstm_layers}, expected 1 for model 'attention', whose "
                "policy LSTM has one layer. Raise lstm_size instead."
            )
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
    popart: bool = False,
    seed: int = 0,
) -> ActorCritic:
    """Build a freshly initialised model on the CPU.

    Args:
      config: which network.
      env_spec: gives the observation shape and the numbers of actions and of games. Each game has
        its own value output; the policy is shared.
      popart: whether the value head normalises its targets.
      seed: of the initial weights; equal seeds give equal weights.

    Raises:
      ConfigError: if the network is not for what the environment shows: one for images sees no
        vectors, and the one for vectors no images.
    """
    name = config.name
    if name == "auto":
        name = "impala_shallow" if env_spec.is_image else "mlp"
    if name in IMAGE_MODELS and not env_spec.is_image:
        raise ConfigError(
            f"model {name!r} needs images, but {env_spec.env_id} shows vectors of shape "
            f"{env_spec.obs_shape}. Use --model=mlp or --model=auto."
        )
    if name == "mlp" and env_spec.is_image:
        raise ConfigError(
            f"model 'mlp' is for vectors, but {env_spec.env_id} shows images of shape "
            f"{env_spec.obs_shape}, of which it would see neither places nor shapes. Use "
            "--model=impala_shallow or --model=auto."
        )
    of_pixels = config.normalise_pixels and env_spec.frame_dtype == "uint8"
    normalise_pixels = of_pixels and env_spec.task_count == 1
    extras = ExtraInputs(
        action_count=env_spec.action_count * config.use_last_action,
        reward=config.use_last_reward,
        task_count=env_spec.task_count * config.use_task_id,
        clamp_reward=config.clamp_last_reward,
    )
    torso: AttentionTorso | ImageTorso | MlpTorso
    core: Core | None = None
    if name == "attention":
        torso = AttentionTorso(
            env_spec.obs_shape, config.feature_count, normalise_pixels=normalise_pixels
        )
        core = AttentionCore(torso.map_shape, extras, config.feature_count, config.lstm_size)
    else:
        if name == "mlp":
            torso = MlpTorso(env_spec.obs_shape, config.feature_count)
        else:
            torso = ImageTorso(
                name,
                env_spec.obs_shape,
                config.feature_count,
                normalise_pixels=normalise_pixels,
            )
        if config.use_lstm or extras.count:
            lstm_size = config.lstm_size * config.use_lstm
            core = RecurrentCore(torso.feature_count, extras, lstm_size, config.lstm_layers)
    value_head = PopArt(
        core.hidden_count if core is not None else torso.feature_count,
        env_spec.task_count,
        enabled=popart,
        step_size=config.popart_step_size,
        sigma_min=config.popart_sigma_min,
        sigma_max=config.popart_sigma_max,
    )
    games = env_spec.task_count if of_pixels and env_spec.task_count > 1 else 0
    model = ActorCritic(
        torso,
        env_spec.obs_shape,
        torso.feature_count,
        env_spec.action_count,
        value_head,
        core,
        game_pixels=[PixelStatistics(env_spec.obs_shape) for _ in range(games)],
    )
    _initialise(model, torch.Generator().manual_seed(seed))
    return model


def _initialise(model: ActorCritic, generator: torch.Generator) -> None:
    """Draw orthogonal weights and zero biases, in the order of the state dict."""
    for module in model.torso_net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            draw_layer(module, math.sqrt(2), generator)  # keeps the scale through ReLU
    model.core.initialise(generator)
    draw_layer(model.policy_head, POLICY_HEAD_GAIN, generator)
    draw_layer(model.value_head.linear, 1.0, generator)
