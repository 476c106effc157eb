"""The networks of TorchBeast, one environment and one step at a time: names, shapes, mathematics.

Written from the published description of the layers, with torch's functions and plain loops only:
no module of ours is used. `weights` is a state dict as TorchBeast saves it under model_state_dict.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

FRAME = (4, 84, 84)


def draw_weights(
    net, *, actions=6, values=1, extras, lstm_layers=0, lstm_size=0, popart=False, seed=0
):
    """Return random weights of "AtariNet" or "ResNet".

    Args:
      net: which.
      actions: A.
      values: outputs of the value head.
      extras: numbers appended to the features: 1 (reward) or 1 + A (reward, last action).
      lstm_layers: of the core; 0 for no core.
      lstm_size: its units.
      popart: whether the value head has statistics, mu and sigma.
      seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}

    def layer(name, *shape):
        fan_in = torch.Size(shape[1:]).numel()
        weights[f"{name}.weight"] = torch.randn(shape, generator=generator) * (2 / fan_in) ** 0.5
        weights[f"{name}.bias"] = torch.randn(shape[0], generator=generator) * 0.1

    if net == "AtariNet":
        features = 512
        layer("conv1", 32, 4, 8, 8)
        layer("conv2", 64, 32, 4, 4)
        layer("conv3", 64, 64, 3, 3)
        layer("fc", features, 64 * 7 * 7)
    else:
        features, before = 256, 4
        for section, channels in enumerate((16, 32, 32)):
            layer(f"feat_convs.{section}.0", channels, before, 3, 3)
            for block in (1, 2):
                for place in (1, 3):
                    layer(f"resnet{block}.{section}.{place}", channels, channels, 3, 3)
            before = channels
        layer("fc", features, 32 * 11 * 11)
    width = features + extras
    for number in range(lstm_layers):
        for kind, size in (("ih", width), ("hh", lstm_size)):
            shape = (4 * lstm_size, size)
            drawn = torch.randn(shape, generator=generator) / size**0.5
            weights[f"core.weight_{kind}_l{number}"] = drawn
            weights[f"core.bias_{kind}_l{number}"] = torch.randn(shape[0], generator=generator) / 9
        width = lstm_size
    layer("policy", actions, width)
    layer("baseline", values, width)
    if popart:
        weights["baseline.mu"] = torch.tensor([221.2, 0.914, 1646.8])[:values]
        weights["baseline.sigma"] = torch.tensor([35.25, 0.28, 428.9])[:values]
    return weights


def play(weights, frames, last_reward, last_action, done, *, clamp=True):
    """Return what the network says of one environment, step by step.

    Args:
      weights: of `draw_weights`.
      frames: [T, 4, 84, 84] uint8.
      last_reward: [T] float32, raw.
      last_action: [T, A] float32, one-hot.
      done: [T] bool, this step begins a new episode: the memory is zeroed before it.
      clamp: whether the reward is clamped to [-1, 1].

    Returns:
      (logits [T, A], values [T, K] in reward units).
    """
    lstm_layers = sum(name.startswith("core.weight_ih") for name in weights)
    extras = _inputs_of_core(weights) - weights["fc.weight"].shape[0]
    h = c = [torch.zeros(weights[f"core.weight_hh_l{n}"].shape[1]) for n in range(lstm_layers)]
    logits, values = [], []
    for t in range(len(frames)):
        if done[t]:
            h = [torch.zeros_like(part) for part in h]
            c = [torch.zeros_like(part) for part in c]
        reward = last_reward[t : t + 1]
        parts = [_features(weights, frames[t]), reward.clamp(-1, 1) if clamp else reward]
        if extras > 1:
            parts.append(last_action[t])
        x = torch.cat(parts)
        for n in range(lstm_layers):
            gates = _affine(weights, f"core.{{}}_ih_l{n}", x)
            gates = gates + _affine(weights, f"core.{{}}_hh_l{n}", h[n])
            i, f, g, o = gates.chunk(4)
            new_c = torch.sigmoid(f) * c[n] + torch.sigmoid(i) * torch.tanh(g)
            x = torch.sigmoid(o) * torch.tanh(new_c)
            h = [*h[:n], x, *h[n + 1 :]]
            c = [*c[:n], new_c, *c[n + 1 :]]
        logits.append(_affine(weights, "policy.{}", x))
        value = _affine(weights, "baseline.{}", x)
        if "baseline.mu" in weights:
            value = value * weights["baseline.sigma"] + weights["baseline.mu"]
        values.append(value)
    return torch.stack(logits), torch.stack(values)


def _inputs_of_core(weights):
    first = weights.get("core.weight_ih_l0", weights["policy.weight"])
    return first.shape[1]


def _affine(weights, name, x):
    return weights[name.format("weight")] @ x + weights[name.format("bias")]


def _conv(weights, name, x, **options):
    return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], **options)


def _features(weights, frame):
    x = frame[None].float() / 255
    if "conv1.weight" in weights:
        for name, stride in (("conv1", 4), ("conv2", 2), ("conv3", 1)):
            x = _conv(weights, name, x, stride=stride).relu()
    else:
        for section in range(3):
            x = _conv(weights, f"feat_convs.{section}.0", x, padding=1)
            x = F.max_pool2d(x, 3, stride=2, padding=1)
            for block in (1, 2):
                inner = _conv(weights, f"resnet{block}.{section}.1", x.relu(), padding=1)
                x = x + _conv(weights, f"resnet{block}.{section}.3", inner.relu(), padding=1)
        x = x.relu()
    return _affine(weights, "fc.{}", x.flatten()).relu()
