"""The default's network with one mean for all pixels: --model=experiments.trials.one_mean:one_mean.

By default the mean image is taken away. It is that of a run's first steps, so what stood there and
goes later, such as the invaders of SpaceInvaders, is seen as a dark shape in its place ever after.
Here the mean of all pixels is taken away, and the deviation is from that mean.
"""

import torch
from torch import Tensor

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.pixels import MIN_DEVIATION, PixelStatistics
from ritornello.agent.models.torsos import ImageTorso
from ritornello.core.errors import ConfigError
from ritornello.flags.parts import NETWORKS


class OneMean(PixelStatistics):
    """Statistics of images whose pixels all have one mean and one deviation."""

    def background(self, dtype: torch.dtype) -> Tensor:
        """Return the mean of all pixels, as an image [C, H, W] in whole units of 1/255."""
        return self.mean.mean().round().to(dtype).expand_as(self.mean)

    def scale(self) -> Tensor:
        """Return 1 / deviation of all pixels from their mean: [] float32."""
        variance = self.mean_square - self.mean.mean().square()
        return variance.clamp(min=MIN_DEVIATION**2).rsqrt()


def _build(want: NetworkRequest) -> ImageTorso:
    if want.normalise_pixels is not True:
        raise ConfigError(
            f"normalise_pixels is {want.normalise_pixels}, expected True: one_mean is a way to "
            "normalise the images of one game."
        )
    torso = ImageTorso(
        "impala_shallow",
        want.obs_shape,
        want.feature_count,
        normalise_pixels=True,
        layer_norm=want.layer_norm,
    )
    torso.convs[0].statistics = OneMean(want.obs_shape)
    return torso


NETWORKS.add(
    "one_mean",
    Network(_build, sees="images", takes_raw=True, takes_layer_norm=True, channels_last=True),
    __name__,
)
