"""A torso for frames of several parts: images, and a vector beside them.

A frame is a block of bytes (core/spec.py's `EnvSpec.observation_parts`). It is taken apart here;
each image goes through a torso of its own, the vector through a layer of its own, and one layer
over all of these makes the features. Sizes: N observations, S stacked frames, D numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ritornello.agent.models.base import TorsoWithStatistics
from ritornello.agent.models.pixels import PixelStatistics
from ritornello.agent.models.precision import compute_dtype
from ritornello.agent.models.vectors import VectorStatistics
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.core.spec import EnvSpec, ObservationPart

VECTOR_FEATURES = 128  # units of the layer that sees the vector
DEFAULT_FEATURES = 256

# An image -> a torso for stacks of it, and the number of its features.
MakeTorso = Callable[[ObservationPart], tuple[nn.Module, int]]
Statistics = PixelStatistics | VectorStatistics


class PartsTorso(TorsoWithStatistics):
    """Features of frames that are blocks of bytes."""

    def __init__(
        self,
        spec: EnvSpec,
        make_torso: MakeTorso,
        feature_count: int = 0,
        *,
        normalise_vectors: bool = False,
    ) -> None:
        """Build a torso for each image, and the layers that join them.

        `feature_count` is F, 0 for the default. With `normalise_vectors`, the vector is shown in
        deviations from its running mean.
        """
        super().__init__()
        self.feature_count = feature_count or DEFAULT_FEATURES
        self._stacked = spec.frames_stacked
        self._places: list[tuple[ObservationPart, slice]] = []
        start = 0
        for part in spec.observation_parts:
            self._places.append((part, slice(start, start + part.nbytes)))
            start += part.nbytes
        widths: list[int] = []
        self.image_torsos = nn.ModuleList()
        self.vector_layer: nn.Linear | None = None
        self.statistics: VectorStatistics | None = None
        for part in spec.observation_parts:
            if part.is_image:
                torso, width = make_torso(part)
                self.image_torsos.append(torso)
            else:
                numbers, width = self._stacked * part.shape[0], VECTOR_FEATURES
                self.vector_layer = nn.Linear(numbers, width)
                self.statistics = VectorStatistics(numbers) if normalise_vectors else None
            widths.append(width)
        self.joined = nn.Linear(sum(widths), self.feature_count)

    def parts(self, obs: Tensor) -> list[Tensor]:
        """Return the parts of `[N, S * bytes]` uint8: [N, S*C, H, W] and [N, S*D] float32."""
        frames = obs.unflatten(1, (self._stacked, -1))
        found = []
        for part, place in self._places:
            # Always a copy: a slice of one row is contiguous as it is, and may begin at any byte.
            block = frames[..., place].clone(memory_format=torch.contiguous_format)
            typed = block if part.dtype == "uint8" else block.view(torch.float32)
            channels, *area = part.shape
            found.append(typed.reshape(len(obs), self._stacked * channels, *area))
        return found

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, S * bytes]` uint8 to features `[N, F]`."""
        return self.of_parts(self.parts(obs))

    def of_parts(self, parts: Sequence[Tensor]) -> Tensor:
        """Map what `parts` returns to features `[N, F]`."""
        torsos = iter(self.image_torsos)
        features = []
        for (part, _), seen in zip(self._places, parts, strict=True):
            if part.is_image:
                features.append(next(torsos)(seen))
                continue
            assert self.vector_layer is not None
            shown = seen if self.statistics is None else self.statistics.normalised(seen)
            dtype = compute_dtype(self.vector_layer.weight)
            features.append(torch.tanh(self.vector_layer(shown.to(dtype))))
        return F.relu(self.joined(torch.cat(features, -1)))

    def unsettled(self) -> dict[int, Statistics]:
        """Return part number -> statistics, for those that `observe` may still change."""
        found: dict[int, Statistics] = {}
        torsos = iter(self.image_torsos)
        for number, (part, _) in enumerate(self._places):
            if not part.is_image:
                if self.statistics is not None:
                    found[number] = self.statistics
                continue
            modules = next(torsos).modules()
            pixels = next((m for m in modules if isinstance(m, PixelStatistics)), None)
            if pixels is not None and not pixels.is_settled:
                found[number] = pixels
        return found

    def observe(self, obs: Tensor, group: ProcessGroup = SINGLE_PROCESS) -> None:
        """Take observations `[N, S * bytes]` into the statistics of their parts."""
        parts = self.parts(obs)
        for number, statistics in self.unsettled().items():
            statistics.observe(parts[number], group)
