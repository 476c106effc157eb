"""Builds a model from a config and the shapes of the environment."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ritornello.agent.models.base import ActorCritic, Core
from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.models.initialisation import draw_layer
from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.pixels import Normalise, PixelStatistics
from ritornello.agent.models.popart import PopArt
from ritornello.agent.models.torsos import FloatInput
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import shown
from ritornello.core.spec import EnvSpec, ObservationPart
from ritornello.flags.parts import AUTO, NETWORKS
from ritornello.wrappers.user_code import describe

SMALLEST_FOR_SHALLOW = 20  # pixels: the two convolutions of impala_shallow fit into no less
SMALL_GAIN = 0.01  # of a policy that is almost uniform at the start, whatever the features are


@dataclass(frozen=True)
class ModelConfig:
    """Settings of a model: network, inputs, memory and value head."""

    name: str = AUTO  # or one of NETWORKS, or <module>:<name> (agent/models/networks.py)
    # F, width of the torso's last layer (attention: channels of the map); 0: the network's own
    feature_count: int = 0
    normalise_pixels: Normalise = "each"  # as --normalise_pixels
    layer_norm: str = "none"  # none | features | all layers of the torso
    normalise_vectors: bool = False  # by their running mean and deviation
    popart_step_size: float = 3e-3  # beta, share of the statistics replaced per update
    use_lstm: bool = False  # attention always has one of its own
    lstm_size: int = 256  # H
    lstm_layers: int = 1
    use_last_action: bool = False  # the last action, one-hot, is an input
    use_last_reward: bool = False  # the last reward, clamped to [-1, 1], is an input
    clamp_last_reward: bool = True  # False: raw, as in agents of TorchBeast with PopArt
    use_task_id: bool = False  # the number of the game, one-hot, is an input
    action_values: bool = False  # it acts by values of actions, and has no policy of its own


def make_model(
    config: ModelConfig,
    env_spec: EnvSpec,
    popart: bool = False,
    seed: int = 0,
) -> ActorCritic:
    """Build a freshly initialised model on the CPU; equal seeds give equal weights.

    Each game of the environment has its own value output; the policy is shared. With `popart`, the
    value head normalises its targets.

    Raises:
      ConfigError: if the network does not take what the environment shows (one for images takes no
        vectors, and the one for vectors no images), or cannot be built with these settings.
    """
    extras = ExtraInputs(
        actions=env_spec.actions.parts if config.use_last_action else (),
        reward=config.use_last_reward,
        task_count=env_spec.task_count * config.use_task_id,
        clamp_reward=config.clamp_last_reward,
    )
    _check_games(config, env_spec)
    # Layers of a user's own draw their weights from the global generator, so it is seeded here.
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        if env_spec.observation_parts:
            built = _of_parts(config, env_spec, extras)
        else:
            built = _of_one_array(config, env_spec, extras)
        core, feature_count = built.core, built.feature_count
        if core is None and (config.use_lstm or extras.count):
            from ritornello.agent.models.recurrent import RecurrentCore

            lstm_size = config.lstm_size * config.use_lstm
            core = RecurrentCore(feature_count, extras, lstm_size, config.lstm_layers)
        value_head = PopArt(
            core.hidden_count if core is not None else feature_count,
            env_spec.task_count,
            enabled=popart,
            step_size=config.popart_step_size,
        )
        of_pixels = config.normalise_pixels if env_spec.frame_dtype == "uint8" else False
        games = env_spec.task_count if of_pixels and env_spec.task_count > 1 else 0
        kind = ActorCritic
        if config.action_values:
            from ritornello.agent.models.action_values import ActionValueModel

            kind = ActionValueModel
        model = kind(
            built.torso,
            env_spec.obs_shape,
            feature_count,
            env_spec.actions,
            value_head,
            core,
            game_pixels=[PixelStatistics(env_spec.obs_shape, of_pixels) for _ in range(games)],
        )
    generator = torch.Generator().manual_seed(seed)
    _initialise(model, generator, action_values=config.action_values)
    if built.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


class _Built(NamedTuple):
    """Torso and core of a network, without heads."""

    torso: nn.Module
    core: Core | None  # core that the network brings, if any
    feature_count: int  # F
    channels_last: bool


def _of_one_array(config: ModelConfig, env_spec: EnvSpec, extras: ExtraInputs) -> _Built:
    """Build the network for observations that are one image or one vector."""
    name = network_name(config, env_spec)
    network = NETWORKS.find(name)
    _check_sight(name, network, env_spec)
    if config.layer_norm != "none" and not network.takes_layer_norm:
        raise ConfigError(
            f"layer_norm is {config.layer_norm}, which model {name!r} does not follow: expected "
            "none. A network of your own says takes_layer_norm=True (docs/your_own.md)."
        )
    of_pixels = env_spec.frame_dtype == "uint8" and env_spec.task_count == 1 and env_spec.is_image
    request = NetworkRequest(
        obs_shape=env_spec.obs_shape,
        feature_count=config.feature_count,
        normalise_pixels=config.normalise_pixels if of_pixels else False,
        layer_norm=config.layer_norm,
        extras=extras,
        lstm_size=config.lstm_size,
    )
    try:
        built = network.build(request)
    except PlatformError:
        raise
    except Exception as error:
        raise ConfigError(
            f"network {name!r} cannot be built for observations of {env_spec.env_id}: "
            f"{describe(error, hints=False)}."
        ) from error
    torso, core = built if isinstance(built, tuple) else (built, None)
    if not isinstance(torso, nn.Module):
        raise ConfigError(f"network {name!r} returns {shown(torso)}, expected a torch module.")
    if not network.takes_raw:
        torso = FloatInput(torso, request)
    feature_count = _feature_count(name, torso, env_spec)
    if config.normalise_vectors and not env_spec.is_image:
        from ritornello.agent.models.vectors import NormalisedVectors

        torso = NormalisedVectors(torso, env_spec.obs_shape[0])
    return _Built(torso, core, feature_count, network.channels_last)


def _of_parts(config: ModelConfig, env_spec: EnvSpec, extras: ExtraInputs) -> _Built:
    """Build the network for images with a vector beside them: each image has a torso."""
    from ritornello.agent.models.parts import PartsTorso

    torsos: list[_Built] = []

    def make_torso(part: ObservationPart) -> tuple[nn.Module, int]:
        alone = replace(
            env_spec, frame_shape=part.shape, frame_dtype=part.dtype, observation_parts=()
        )
        built = _of_one_array(config, alone, extras)
        if built.core is not None:
            raise ConfigError(
                f"model {config.name!r} brings a memory that looks at one image, but "
                f"{env_spec.env_id} shows {len(env_spec.observation_parts)} things at once. Use "
                "--model=auto, with --use_lstm=True for a memory."
            )
        torsos.append(built)
        return built.torso, built.feature_count

    torso = PartsTorso(
        env_spec, make_torso, config.feature_count, normalise_vectors=config.normalise_vectors
    )
    channels_last = any(built.channels_last for built in torsos)
    return _Built(torso, None, torso.feature_count, channels_last)


def _check_games(config: ModelConfig, env_spec: EnvSpec) -> None:
    """Raise ConfigError for a setting that works with one game only."""
    if env_spec.task_count == 1:
        return
    if env_spec.observation_parts:
        raise ConfigError(
            f"env names {env_spec.task_count} games that show several things at once, expected one "
            "of them in a run, or games that show one image or one vector."
        )
    if config.normalise_vectors and not env_spec.is_image:
        raise ConfigError(
            "normalise_vectors is True, expected False for several games: what is usual in one "
            "says nothing of another. Scale observations in the environments."
        )


def describe_networks(config: ModelConfig, env_spec: EnvSpec) -> str:
    """Return which network sees what, for the log of a run."""
    if not env_spec.observation_parts:
        return network_name(config, env_spec)
    said = []
    for part in env_spec.observation_parts:
        alone = replace(env_spec, frame_shape=part.shape, observation_parts=())
        what = "x".join(str(n) for n in part.shape)
        name = network_name(config, alone) if part.is_image else "one layer"
        said.append(f"{name} for {part.name} ({what})")
    return ", ".join(said)


def network_name(config: ModelConfig, env_spec: EnvSpec) -> str:
    """Return the name of the network that `config` chooses for this environment."""
    if config.name != AUTO:
        return config.name
    if not env_spec.is_image:
        return "mlp"
    is_small = min(env_spec.obs_shape[1:]) < SMALLEST_FOR_SHALLOW
    return "resnet" if is_small else "impala_shallow"


def _check_sight(name: str, network: Network, env_spec: EnvSpec) -> None:
    """Raise ConfigError if a network is not for what the environment shows."""
    if network.sees == "images" and not env_spec.is_image:
        raise ConfigError(
            f"model {name!r} needs images, but {env_spec.env_id} shows vectors of shape "
            f"{env_spec.obs_shape}. Use --model=mlp or --model=auto."
        )
    if network.sees == "vectors" and env_spec.is_image:
        raise ConfigError(
            f"model {name!r} is for vectors, but {env_spec.env_id} shows images of shape "
            f"{env_spec.obs_shape}, of which it would see neither places nor shapes. Give "
            "an --env that shows vectors, or --model=impala_shallow or --model=auto."
        )


def _feature_count(name: str, torso: nn.Module, env_spec: EnvSpec) -> int:
    """Return F of a torso: its `feature_count`, or the size of its output.

    Raises:
      ConfigError: if the module cannot be a torso.
    """
    said = getattr(torso, "feature_count", None)
    if isinstance(said, int):
        return said
    expected = f"expected a module that maps [N, {', '.join(map(str, env_spec.obs_shape))}] to "
    expected += "features [N, F]"
    one = torch.arange(1, math.prod(env_spec.obs_shape) + 1) % 2  # of which no mean or norm is 0
    two = one.to(getattr(torch, env_spec.frame_dtype)).repeat(2, 1).view(2, *env_spec.obs_shape)
    for seen in (two, two[:1]):  # a test plays one game
        features = _tried(torso, seen, name, expected)
    if any(module.training for module in torso.modules() if isinstance(module, _BatchNorm)):
        raise ConfigError(
            f"network {name!r} has batch normalisation, which mixes observations: {expected}, each "
            "row by itself. Use nn.LayerNorm or nn.GroupNorm."
        )
    if not any(True for _ in torso.parameters()):
        raise ConfigError(f"network {name!r} has no weights; {expected}, with layers to learn.")
    return int(features.shape[1])


def _tried(torso: nn.Module, seen: Tensor, name: str, expected: str) -> Tensor:
    """Return the features of some observations, or raise ConfigError if they are none."""
    try:
        with torch.enable_grad():
            features = torso.eval()(seen)
        torso.train()
    except Exception as error:
        raise ConfigError(
            f"network {name!r} fails for observations {list(seen.shape)}: "
            f"{describe(error, hints=False)}; {expected}."
        ) from error
    is_tensor = isinstance(features, Tensor)
    if not is_tensor or features.ndim != 2 or len(features) != len(seen) or not features.shape[1]:
        got = f"a tensor of shape {list(features.shape)}" if is_tensor else shown(features)
        raise ConfigError(
            f"network {name!r} makes {got} of observations {list(seen.shape)}; {expected}."
        )
    learns = any(weights.requires_grad for weights in torso.parameters())
    for is_wrong, got in (
        (not features.is_floating_point(), f"makes features of {features.dtype}"),
        (not features.isfinite().all(), "makes NaN or infinity of observations of 0 and 1"),
        (learns and not features.requires_grad, "cuts off the gradient, as detach() does"),
    ):
        if is_wrong:
            raise ConfigError(
                f"network {name!r} {got}; {expected}, finite ones that can be learned."
            )
    return features


def _initialise(model: ActorCritic, generator: torch.Generator, *, action_values: bool) -> None:
    """Draw orthogonal weights and zero biases, in the order of the state dict."""
    for module in model.torso_net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            draw_layer(module, math.sqrt(2), generator)  # keeps the scale through ReLU
    model.core.initialise(generator)
    draw_layer(model.policy_head, SMALL_GAIN, generator)
    # Values of actions start near 0: bootstrapped from each other they keep a wrong start for long.
    draw_layer(model.value_head.linear, SMALL_GAIN if action_values else 1.0, generator)
