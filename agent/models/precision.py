"""In which number format a model computes, which need not be the one of its weights."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_dtype(parameter: Tensor) -> torch.dtype:
    """Return the dtype this layer will run in: autocast's if it is on, else the parameter's."""
    device = parameter.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return parameter.dtype
