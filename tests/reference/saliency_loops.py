"""Perturbation saliency as the paper writes it: a picture and a forward pass for every point."""

import numpy as np
import torch
from scipy import ndimage

from ritornello.agent.models.torsos import PixelConv2d


def saliency_loops(model, inputs, state, masks, *, channels=slice(None), blurred=None):
    """Return (policy, value) maps [I, J]. Slow on purpose.

    Args:
      model: with one PixelConv2d.
      inputs: [1, ...].
      state: [1, state_count].
      masks: [I, J, H, W].
      channels: those that are perturbed.
      blurred: [C, H, W], what is blended in; None: each channel blurred, sigma 3.
    """
    (layer,) = [m for m in model.modules() if isinstance(m, PixelConv2d)]
    shown = inputs.obs[0]
    if layer.statistics is not None and layer.statistics.is_of_each:
        shown = torch.clamp(shown, *layer.statistics.bounds())
    pixels = shown.double().numpy()
    if blurred is None:
        blurred = np.stack([ndimage.gaussian_filter(channel, 3) for channel in pixels])
    with torch.no_grad():
        _, heads, _ = model(inputs, state)
        policy, value = np.zeros(masks.shape[:2]), np.zeros(masks.shape[:2])
        for i in range(masks.shape[0]):
            for j in range(masks.shape[1]):
                perturbed = pixels.copy()
                mixed = pixels * (1 - masks[i, j]) + blurred * masks[i, j]
                perturbed[channels] = mixed[channels]
                # Floats are taken as scaled already; uint8 would round the perturbation away.
                if layer.statistics is None:
                    perturbed = perturbed / 255
                else:
                    mean = layer.statistics.mean.round().double().numpy()
                    perturbed = (perturbed - mean) * layer.statistics.scale().double().numpy()
                obs = torch.from_numpy(perturbed).float()[None]
                _, other, _ = model(inputs._replace(obs=obs), state)
                policy[i, j] = 0.5 * ((other.params - heads.params) ** 2).sum()
                value[i, j] = 0.5 * (other.value - heads.value) ** 2
    return policy, value
