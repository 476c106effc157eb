"""From draws to a batch on the learner's device.

Runs in the background threads of the batch cache (or inline in the reproducible mode): stack the
drawn unrolls time-major, copy the *single* frames to the device, rebuild the frame stacks there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ritornello.agent.algorithms.batch import Batch
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.item import Draw

PINNED_FROM_BYTES = 65536  # CUDA itself puts smaller arrays aside before it copies them


def restack(frames: torch.Tensor, depth: int) -> torch.Tensor:
    """Rebuild stacked observations from single frames.

    Args:
      frames: [T+S, B, C, H, W] or [T+S, B, D]; row t of the result is frames t .. t+S-1.
      depth: S, number of frames per stack.

    Returns:
      [T+1, B, S*C, ...] contiguous, oldest frame first.
    """
    rows = frames.shape[0] - depth + 1
    stacked = torch.stack([frames[k : k + rows] for k in range(depth)], dim=2)
    return stacked.flatten(2, 3)


def stale_frames(first: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the frames of each stack that lie before a reset, and so must read as zero.

    Args:
      first: [T+1, B] bool, the row is the first of an episode.
      depth: S, number of frames per stack.

    Returns:
      Index arrays (row, column, position in the stack), each [n]; position S-1 is the newest frame.
    """
    rows: list[int] = []
    columns: list[int] = []
    positions: list[int] = []
    for t, b in np.argwhere(first):
        # Rows t .. t+S-2 still reach over the reset at t; row t+j may see its newest j+1 frames.
        for j in range(min(depth - 1, first.shape[0] - t)):
            count = depth - 1 - j
            rows += [t + j] * count
            columns += [b] * count
            positions += range(count)
    return (
        np.array(rows, np.int64),
        np.array(columns, np.int64),
        np.array(positions, np.int64),
    )


class Feed:
    """Composes batches. Stateless apart from a side stream, so any thread may call it."""

    def __init__(self, schema: UnrollSchema, device: torch.device) -> None:
        """Prepare for one schema and one device."""
        self.schema = schema
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def compose(self, draws: Sequence[Draw], update: int) -> Batch:
        """Stack draws into a batch on the device.

        Args:
          draws: B draws, grouped by buffer.
          update: the learner's update count now, from which ages are measured.
        """
        arrays = self.schema.stack([draw.record for draw in draws], self._empty)
        first = arrays["first"]
        arrays["item"] = np.array([draw.item.id for draw in draws])
        arrays["age"] = np.array([update - draw.item.inserted_at_update for draw in draws])
        arrays["source"] = np.array([draw.source for draw in draws])
        arrays["weight"] = np.array([draw.weight for draw in draws], np.float32)
        arrays["is_online"] = np.array([draw.is_online for draw in draws])
        # What came before each row, and from its second row on what was done in them: one array.
        for name in ("action", "reward"):
            before = arrays[f"last_{name}"][np.newaxis]
            arrays[f"last_{name}"] = np.concatenate([before, arrays[name]])
        if self._stream is None:
            return self._to_device(arrays, first)
        with torch.cuda.stream(self._stream):
            batch = self._to_device(arrays, first)
        # The batch is handed over only when it is complete, so the learner needs no event.
        self._stream.synchronize()
        # Its memory is the side stream's, which would give it to the next batch while the
        # learner's last kernels on this one are under way. The allocator is to wait for those.
        learners = torch.cuda.current_stream(self._device)
        for tensor in vars(batch).values():
            tensor.record_stream(learners)
        return batch

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return memory for a part of a batch, from which a GPU takes large ones at full speed."""
        array = np.empty(shape, dtype)
        if self._stream is None or array.nbytes < PINNED_FROM_BYTES:
            return array
        pinned: np.ndarray = torch.empty_like(torch.from_numpy(array), pin_memory=True).numpy()
        return pinned

    def _to_device(self, arrays: dict[str, np.ndarray], first: np.ndarray) -> Batch:
        def move(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(self._device, non_blocking=True)

        spec = self.schema.env_spec
        depth = spec.frames_stacked
        obs = restack(move(arrays["frames"]), depth)
        if depth > 1 and first.any():
            row, column, position = (move(index) for index in stale_frames(first, depth))
            by_frame = obs.unflatten(2, (depth, spec.frame_shape[0]))
            by_frame[row, column, position] = 0
        last_action, last_reward = move(arrays["last_action"]), move(arrays["last_reward"])
        no_memory = last_reward.new_empty((last_reward.shape[1], 0))
        state = move(arrays["state"]) if "state" in arrays else no_memory
        return Batch(
            obs=obs,
            first=move(first),
            action=last_action[1:],
            reward=last_reward[1:],
            last_action=last_action,
            last_reward=last_reward,
            terminated=move(arrays["terminated"]),
            behaviour_params=move(arrays["behaviour_params"]),
            behaviour_value=move(arrays["behaviour_value"]),
            state=state,
            task_id=move(arrays["task_id"]),
            version=move(arrays["version"]),
            age=move(arrays["age"]),
            item=move(arrays["item"]),
            source=move(arrays["source"]),
            is_online=move(arrays["is_online"]),
            weight=move(arrays["weight"]),
        )
