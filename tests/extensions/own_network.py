"""A network of one's own: found by --model=tests.extensions.own_network:wide."""

from torch import nn

from agent.models.networks import NetworkRequest, register_network


@register_network("wide", sees="vectors")
def wide(request: NetworkRequest) -> nn.Module:
    """Return a torso that maps observations [N, D] to features [N, F]."""
    (numbers,) = request.obs_shape
    features = request.feature_count or 32  # --feature_out_layer_size, if it is given
    return nn.Sequential(nn.Linear(numbers, features), nn.LayerNorm(features), nn.SiLU())
