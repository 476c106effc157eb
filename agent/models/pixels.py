"""`PixelStatistics` normalises images, so that a network sees what moves and no background.

A frame of Pong is a gray plane with a few bright pixels on it, the same in every frame but for
those. Scaled to [0, 1], the plane dominates every feature and every gradient, and the ball is a
small correction. With the mean image taken away and what is left brought to unit deviation, as the
theory of initialisation assumes of inputs, Pong needs far fewer steps (docs/results.md).

The deviation is one number for all pixels, or one for each: then a pixel over which the ball comes
now and then counts as much as one that the player's paddle hides half of the time. Sample Factory
normalises its inputs in this way (Petrenko et al. 2020; its `normalize_input`). In between, only
rare pixels have one of their own: the ball counts for more, and the paddle for no less than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup

# Whether pixels are normalised; "each": every pixel by a deviation of its own; "rare": those whose
# own is the smaller one, and all others by the common one.
Normalise = bool | Literal["each", "rare"]

PIXEL_MAX = 255.0
# After this many batches the statistics are frozen, also in runs that start from these weights.
OBSERVED_BATCHES = 200
# The learner shows every seventh step of an unroll, because neighbouring frames hardly differ.
OBSERVED_EVERY = 7
MIN_DEVIATION = 4.0  # of 255, so that what hardly ever changes does not blow up
# Pixels farther from the mean image are seen at this many deviations of their own: scenery that
# comes later in a game, where nothing moved before, would drown everything else.
MAX_DEVIATIONS = 10.0


class PixelStatistics(nn.Module):
    """Mean image and deviation of uint8 images, over the batches shown to `observe`.

    Not thread-safe; `observe` writes in place.
    """

    mean: Tensor  # [C, H, W] float32
    mean_square: Tensor  # [] float32, over all pixels; or of each, [C, H, W]
    batches: Tensor  # [] float32

    def __init__(self, image_shape: tuple[int, ...], normalise: Normalise = True) -> None:
        """Start from black: no batch was seen, and pixels are scaled to [0, 1].

        `image_shape` is (C, H, W). `normalise` says whose deviation a pixel is divided by; it is
        not False.
        """
        super().__init__()
        each = normalise in ("each", "rare")
        self._is_capped = normalise == "rare"
        self.register_buffer("mean", torch.zeros(image_shape))
        self.register_buffer("mean_square", torch.full(image_shape if each else (), PIXEL_MAX**2))
        self.register_buffer("batches", torch.tensor(0.0))
        # `batches` as the host knows it, so that nobody waits for a GPU; None: to be looked up.
        self._count: int | None = 0
        self._kept_parts: dict[tuple[object, ...], tuple[Tensor, ...]] = {}
        self.register_load_state_dict_post_hook(_look_again)

    @property
    def is_of_each(self) -> bool:
        """Whether pixels have deviations of their own."""
        return self.mean_square.ndim > 0

    @property
    def is_settled(self) -> bool:
        """Whether enough batches were seen, so that `observe` changes nothing any more."""
        if self._count is None:
            self._count = int(self.batches)
        return self._count >= OBSERVED_BATCHES

    @torch.no_grad()
    def observe(self, images: Tensor, group: ProcessGroup = SINGLE_PROCESS) -> None:
        """Add a batch `[N, C, H, W]` uint8 to the averages, unless enough batches were seen.

        All batches weigh the same, and one without an image changes nothing. `group` sums over
        learners, whose images together are one batch.
        """
        if self.is_settled:
            return
        if group.world_size == 1:
            if not len(images):
                return
            values = images.float()
            mean, mean_square = values.mean(0), self._of_pixels(values.square().mean(0))
        else:
            sums = group.sum_(_sums(images), "pixels")
            count = sums[-1]
            if not count:
                return
            mean, squares = (sums[:-1] / count).view(2, *self.mean.shape).float()
            mean_square = self._of_pixels(squares)
        self.batches += 1
        self._count = (self._count or 0) + 1
        self.mean += (mean - self.mean) / self.batches
        self.mean_square += (mean_square - self.mean_square) / self.batches

    def _of_pixels(self, values: Tensor) -> Tensor:
        """Return [C, H, W] values as they are, or their mean [] if all pixels have one."""
        return values if self.is_of_each else values.mean()

    def snapshot(self) -> Callable[[], None]:
        """Remember all that `observe` writes to; return a function that restores it."""
        put_back, count = snapshot_of(self.buffers()), self._count

        def restore() -> None:
            put_back()
            self._count = count
            self._kept_parts.clear()

        return restore

    def background(self, dtype: torch.dtype) -> Tensor:
        """Return the mean image [C, H, W], in units of 1/255, that is subtracted from images.

        It is rounded, so that differences are integers up to 255: exact also in bfloat16.
        """
        return self.mean.round().to(dtype)

    def centred(
        self, images: Tensor, dtype: torch.dtype, layout: torch.memory_format
    ) -> tuple[Tensor, Tensor]:
        """Return images - `background` in units of 1/255, and the `scale` to multiply them by.

        `images` are [N, C, H, W] uint8; the result has the type `dtype` and the memory format
        `layout`.
        """
        background, scale = self.prepared(dtype, layout)
        return _ordered(images, layout).to(dtype).sub_(background), scale

    def normalised(self, images: Tensor, dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
        """Return (images - `background`) / deviation, if each pixel has its own deviation.

        The arguments are those of `centred`. The result is bounded by MAX_DEVIATIONS, to a whole
        1/255. It takes one pass over floats, as `centred` does, and a quick one over bytes. In
        bfloat16 the background is rounded by up to 1/512 of its size in deviations, an error that
        all images share.
        """
        return in_deviations(_ordered(images, layout), *self.prepared(dtype, layout))

    def shown(self, images: Tensor, dtype: torch.dtype, layout: torch.memory_format) -> Tensor:
        """Return images in deviations of either kind; the arguments are those of `centred`."""
        if self.is_of_each:
            return self.normalised(images, dtype, layout)
        centred, scale = self.centred(images, dtype, layout)
        return centred * scale.to(dtype)

    def prepared(self, dtype: torch.dtype, layout: torch.memory_format) -> tuple[Tensor, ...]:
        """Return what `centred` and `normalised` need; kept once the statistics are settled.

        For the few images of one acting step, making it anew would take a tenth or a fifth of the
        torso's time. It has the type and memory format of the images that are wanted.

        Returns:
          `background` [1, C, H, W] and `scale` [] float32; or, if each pixel has a deviation of its
          own, the arguments of `in_deviations`.
        """
        key = (dtype, layout, self.mean.device)
        if key in self._kept_parts:
            return self._kept_parts[key]
        # Who acts is in inference mode, and who learns from the same weights may come later.
        with torch.inference_mode(False), torch.no_grad():
            made = tuple(
                part[None].contiguous(memory_format=layout) if part.ndim else part
                for part in self._parts(dtype)
            )
        if torch.compiler.is_compiling():
            return made  # a compiled function is not to look at numbers
        # A copy that acts has its numbers from the learner, and did not count them.
        on_host = self.batches.device.type == "cpu"
        is_settled = int(self.batches) >= OBSERVED_BATCHES if on_host else self.is_settled
        if is_settled:
            self._kept_parts[key] = made
        return made

    def _parts(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Return what `prepared` returns, without the batch axis and in the usual memory format."""
        scale = self.scale()
        if not self.is_of_each:
            return self.background(dtype), scale
        offset = -self.background(torch.float32) * scale
        return (*self.bounds(), offset.to(dtype), scale.to(dtype))

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return lowest and highest value with which each pixel is seen: [C, H, W] uint8 each."""
        mean, reach = self.background(torch.float32), (MAX_DEVIATIONS / self.scale()).floor()
        low, high = (mean - reach).clamp(min=0.0), (mean + reach).clamp(max=PIXEL_MAX)
        return low.to(torch.uint8), high.to(torch.uint8)

    def scale(self) -> Tensor:
        """Return 1 / deviation, by which centred images are multiplied.

        The shape is [], float32, or [C, H, W] if each pixel has its own.
        """
        variance = self.mean_square - self._of_pixels(self.mean.square())
        if self._is_capped:
            variance = variance.clamp(max=variance.mean())
        return variance.clamp(min=MIN_DEVIATION**2).rsqrt()


@torch.no_grad()
def snapshot_of(tensors: Iterable[Tensor]) -> Callable[[], None]:
    """Remember tensors; return a function that restores them, bit by bit."""
    kept = [(tensor, tensor.clone()) for tensor in tensors]

    @torch.no_grad()
    def restore() -> None:
        for tensor, before in kept:
            tensor.copy_(before)

    return restore


def in_deviations(
    images: Tensor, low: Tensor, high: Tensor, offset: Tensor, scale: Tensor
) -> Tensor:
    """Return images in deviations of their pixels, of the type of `scale`.

    Args:
      images: [N, C, H, W] uint8.
      low: [1 or N, C, H, W] uint8, the lowest value that each pixel is seen with.
      high: the same shape and type, the highest.
      offset: [1 or N, C, H, W], minus the mean image, in deviations.
      scale: [1 or N, C, H, W], 1 / deviation.
    """
    seen = torch.clamp(images, low, high).to(scale.dtype)
    return torch.addcmul(offset, seen, scale, out=seen)


def _ordered(images: Tensor, layout: torch.memory_format) -> Tensor:
    """Return the same images in the memory format `layout`."""
    if layout == torch.channels_last and images.device.type == "cpu":
        # Half the time of `contiguous`, which takes no account of how few channels there are.
        return torch.stack(images.unbind(1), -1).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=layout)


def shown_steps(length: int, size: int, update: int, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Return the steps of a batch to show to the statistics: rows and columns, [N] int64 each.

    These are every seventh step of each unroll. The first of them differs by unroll and update, so
    that all steps weigh the same. `length` is the number of rows, `size` that of unrolls; the
    unrolls of learner `rank` are counted after those of the learners before it.
    """
    turn = torch.arange(length)[:, None] + torch.arange(rank * size, (rank + 1) * size) + update
    rows, columns = (turn % OBSERVED_EVERY == 0).nonzero(as_tuple=True)
    return rows, columns


def _sums(images: Tensor) -> Tensor:
    """Return sum of the images, sum of their squares, and count: [2 * C * H * W + 1] float64."""
    values = images.double()
    sums = (values.sum(0).flatten(), values.square().sum(0).flatten())
    return torch.cat([*sums, values.new_tensor([len(images)])])


def _look_again(statistics: PixelStatistics, _: object) -> None:
    statistics._count = None
    statistics._kept_parts.clear()
