"""A network of one's own: found by --model=tests.extensions.own_network:wide."""

from torch import nn

from ritornello.agent.models.networks import NetworkRequest, register_network


@register_network("wide", sees="vectors")
def wide(request: NetworkRequest) -> nn.Module:
    """Return a torso that maps observations [N, D] to features [N, F]."""
    (numbers,) = request.obs_shape
    features = request.feature_count or 32  # --feature_out_layer_size, if it is given
    return nn.Sequential(nn.Linear(numbers, features), nn.LayerNorm(features), nn.SiLU())


@register_network("squeezed", sees="images")
def squeezed(request: NetworkRequest) -> nn.Module:
    """Return a torso for images [N, C, H, W]; pixels come as floating-point numbers near 1."""
    channels = request.obs_shape[0]
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d((1, 8)),  # whatever the size of the images is
        nn.Flatten(),
        nn.LazyLinear(request.feature_count or 32),
        nn.ReLU(),
    )
