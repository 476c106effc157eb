"""Networks of 3x3 convolutions with layer normalisation: arms of queue.yaml.

    --model=research.stem:epsilon --layer_norm=all

The strides are those of "Epsilon" (github.com/tahashieenavaz/aftab): 2, 2, 2, 1; the
widths are those of the default's network, so that it costs about 1.5 times its multiplications.
"""

from __future__ import annotations

from torch import nn

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import IMAGE_TORSOS, ImageTorso, _relu_convs
from ritornello.flags.parts import NETWORKS

IMAGE_TORSOS["epsilon"] = (_relu_convs((16, 3, 2), (32, 3, 2), (32, 3, 2), (32, 3, 1)), 256)


def _build(want: NetworkRequest) -> nn.Module:
    return ImageTorso(
        "epsilon", want.obs_shape, want.feature_count,
        normalise_pixels=want.normalise_pixels, layer_norm=want.layer_norm,
    )  # fmt: skip


NETWORKS.add(
    "epsilon", Network(_build, sees="images", takes_raw=True, takes_layer_norm=True), __name__
)
