"""What pixels look like on average, so that a network sees what moves instead of the background.

A frame of Pong is a gray plane with a few bright pixels on it, the same in every frame but for
those. Scaled to [0, 1], the plane dominates every feature and every gradient, and the ball is a
small correction. With the mean image taken away and what is left brought to unit deviation, as the
theory of initialisation assumes of inputs, Pong needs far fewer steps (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from agent.reduction import ALONE, Reduction

PIXEL_MAX = 255.0
# After this many batches the statistics are frozen, also in runs that start from these weights.
OBSERVED_BATCHES = 200
# The learner shows every seventh step of an unroll, because neighbouring frames hardly differ.
OBSERVED_EVERY = 7
MIN_DEVIATION = 4.0  # of 255, so that a picture in which hardly anything moves does not blow up


class PixelStatistics(nn.Module):
    """Mean image and overall deviation of uint8 images, over the batches shown to `observe`.

    Not thread-safe; `observe` writes in place.
    """

    mean: Tensor  # [C, H, W] float32
    mean_square: Tensor  # [] float32, over all pixels
    batches: Tensor  # [] float32

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        """Start from black: no batch was seen, and pixels are scaled to [0, 1]."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(image_shape))
        self.register_buffer("mean_square", torch.tensor(PIXEL_MAX**2))
        self.register_buffer("batches", torch.tensor(0.0))
        # `batches` as the host knows it, so that nobody waits for a GPU; None: to be looked up.
        self._count: int | None = 0
        self.register_load_state_dict_post_hook(_look_again)

    @property
    def is_settled(self) -> bool:
        """Whether enough batches were seen, so that `observe` changes nothing any more."""
        if self._count is None:
            self._count = int(self.batches)
        return self._count >= OBSERVED_BATCHES

    @torch.no_grad()
    def observe(self, images: Tensor, across: Reduction = ALONE) -> None:
        """Take a batch `[N, C, H, W]` uint8 into the averages, unless there were enough of them.

        All batches weigh the same. A batch without an image changes nothing.

        Args:
          images: the images of this learner; those of all learners together are one batch.
          across: sums over learners.
        """
        if self.is_settled:
            return
        if across.world_size == 1:
            if not len(images):
                return
            values = images.float()
            mean, mean_square = values.mean(0), values.square().mean()
        else:
            sums = across.sum_(_sums(images), "pixels")
            count = sums[-1]
            if not count:
                return
            mean = (sums[:-2] / count).view_as(self.mean).float()
            mean_square = (sums[-2] / count / self.mean.numel()).float()
        self.batches += 1
        self._count = (self._count or 0) + 1
        self.mean += (mean - self.mean) / self.batches
        self.mean_square += (mean_square - self.mean_square) / self.batches

    def keep(self) -> Callable[[], None]:
        """Remember all that `observe` writes to; return a function that puts it back."""
        kept, count = [buffer.clone() for buffer in self.buffers()], self._count

        def put_back() -> None:
            for buffer, before in zip(self.buffers(), kept, strict=True):
                buffer.copy_(before)
            self._count = count

        return put_back

    def background(self, dtype: torch.dtype) -> Tensor:
        """Return the mean image [C, H, W] in units of 1/255, as it is taken away from others.

        It is rounded, so that differences are integers up to 255: exact also in bfloat16.
        """
        return self.mean.round().to(dtype)

    def centred(self, images: Tensor, dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
        """Return images - `background`, in units of 1/255.

        Args:
          images: [N, C, H, W] uint8.
          dtype: of the result.
          layout: order of its values in memory.
        """
        mean = self.background(dtype)[None].contiguous(memory_format=layout)
        return _ordered(images, layout).to(dtype).sub_(mean)

    def scale(self) -> Tensor:
        """Return what centred images are to be multiplied by: [] float32, 1 / deviation."""
        variance = self.mean_square - self.mean.square().mean()
        return variance.clamp(min=MIN_DEVIATION**2).rsqrt()


def _ordered(images: Tensor, layout: torch.memory_format) -> Tensor:
    """Return the same images, their bytes in this order."""
    if layout == torch.channels_last and images.device.type == "cpu":
        # Half the time of `contiguous`, which takes no account of how few channels there are.
        return torch.stack(images.unbind(1), -1).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=layout)


def shown_steps(length: int, size: int, update: int, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Return which steps of a batch are shown to the statistics: rows and columns, [N] int64 each.

    Every seventh step of each unroll. Which one comes first differs by unroll and update, so that
    all weigh the same.

    Args:
      length: rows of the batch that have been acted in.
      size: unrolls of the batch.
      update: number of the update.
      rank: number of the learner, whose unrolls are counted after those of the learners before.
    """
    turn = torch.arange(length)[:, None] + torch.arange(rank * size, (rank + 1) * size) + update
    rows, columns = (turn % OBSERVED_EVERY == 0).nonzero(as_tuple=True)
    return rows, columns


def _sums(images: Tensor) -> Tensor:
    """Return sum of the images, sum of the squares, and count: [C * H * W + 2] float64."""
    values = images.double()
    others = torch.stack([values.square().sum(), values.new_tensor(len(images))])
    return torch.cat([values.sum(0).flatten(), others])


def _look_again(statistics: PixelStatistics, _: object) -> None:
    statistics._count = None
