"""From draws to a batch on the learner's device.

Runs in the background threads of the batch cache (or inline in the reproducible mode). The records
of the draws are copied side by side as bytes, each followed by what the draw says of it. A GPU gets
them in one transfer, and cuts them into the fields of a batch itself, as the first part of an
update (agent/learning/recorded.py). Next to read: agent/learning/learner.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ritornello.agent.algorithms.batch import Batch
from ritornello.core.layout import Field, lay_out
from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.replay.item import Draw

OF_DRAW = (
    ("item", (), "int64"),
    ("age", (), "int64"),
    ("source", (), "int64"),
    ("weight", (), "float32"),
    ("is_online", (), "bool"),
)


def restack(frames: Tensor, depth: int) -> Tensor:
    """Rebuild stacked observations from single frames.

    `frames` are [T+S, B, C, H, W] or [T+S, B, D], with S = `depth`; row t of the result stacks
    frames t .. t+S-1.

    Returns:
      [T+1, B, S*C, ...] contiguous, oldest frame first.
    """
    rows = frames.shape[0] - depth + 1
    stacked = torch.stack([frames[k : k + rows] for k in range(depth)], dim=2)
    return stacked.flatten(2, 3)


def stale_frames(first: Tensor, depth: int) -> Tensor:
    """Return which frames of each stack lie before a reset, and so must read as zero.

    `first` [T+1, B] bool marks the rows that are the first of an episode; S = `depth` is the number
    of frames in a stack.

    Returns:
      [T+1, B, S] bool; position S-1 is the newest frame, which is never stale.
    """
    by_age = [torch.zeros_like(first)]
    for back in range(1, depth):  # stale if there was a reset in the last `back` rows
        reset = by_age[-1].clone()
        reset[back - 1 :] |= first[: max(0, len(first) - back + 1)]
        by_age.append(reset)
    return torch.stack(by_age[::-1], -1)


class BatchLayout:
    """Where the fields of a batch lie in the bytes of its unrolls."""

    def __init__(self, schema: UnrollSchema) -> None:
        """Lay out a record of the schema, and behind it the fields OF_DRAW."""
        self.spec: EnvSpec = schema.env_spec
        self.record_nbytes = schema.nbytes
        self.of_draw, nbytes = lay_out(OF_DRAW)
        self.nbytes = schema.nbytes + nbytes
        behind = {
            name: Field(name, field.shape, field.dtype, schema.nbytes + field.offset)
            for name, field in self.of_draw.items()
        }
        self._fields = {
            name: (field.offset, field.nbytes, getattr(torch, field.dtype.name), field.shape)
            for name, field in {**schema.fields, **behind}.items()
        }

    def unpack(self, packed: Tensor) -> Batch:
        """Cut bytes, [B, nbytes] uint8 on any device, into the batch of B unrolls.

        Nothing here makes the host wait for a GPU, so that the work can be recorded.
        """

        def of_unrolls(name: str) -> Tensor:  # [B, *shape]
            offset, nbytes, dtype, shape = self._fields[name]
            return packed[:, offset : offset + nbytes].view(dtype).unflatten(1, shape or (1,))

        def of_columns(name: str) -> Tensor:  # [B]
            return of_unrolls(name).squeeze(1).clone()

        def of_rows(name: str) -> Tensor:  # [time, B, ...]
            return of_unrolls(name).transpose(0, 1).contiguous()

        def with_header(name: str) -> Tensor:
            """Return what came before each row, and from the second row on what it did."""
            before = of_unrolls(f"last_{name}")
            if not self._fields[f"last_{name}"][3]:
                before = before.squeeze(1)
            return torch.cat([before.unsqueeze(0), of_unrolls(name).transpose(0, 1)])

        first = of_rows("first")
        last_action, last_reward = with_header("action"), with_header("reward")
        no_memory = last_reward.new_empty((len(packed), 0))
        return Batch(
            obs=self._observations(of_unrolls("frames").transpose(0, 1), first),
            first=first,
            action=last_action[1:],
            reward=last_reward[1:],
            last_action=last_action,
            last_reward=last_reward,
            terminated=of_rows("terminated"),
            behaviour_params=of_rows("behaviour_params"),
            behaviour_value=of_rows("behaviour_value"),
            state=of_unrolls("state").clone() if "state" in self._fields else no_memory,
            task_id=of_columns("task_id"),
            version=of_columns("version"),
            age=of_columns("age"),
            item=of_columns("item"),
            source=of_columns("source"),
            is_online=of_columns("is_online"),
            weight=of_columns("weight"),
            action_mask=of_rows("action_mask") if self.spec.has_action_mask else None,
        )

    def _observations(self, frames: Tensor, first: Tensor) -> Tensor:
        depth = self.spec.frames_stacked
        obs = restack(frames, depth)
        if depth == 1:
            return obs
        by_frame = obs.unflatten(2, (depth, self.spec.frame_shape[0]))
        if obs.is_cuda:
            stale = stale_frames(first, depth)
            by_frame.masked_fill_(stale.reshape(*stale.shape, *[1] * (by_frame.ndim - 3)), 0)
        elif first.any():  # a processor looks first: hardly any frame is stale
            by_frame[stale_frames(first, depth)] = 0
        return obs


@dataclass(frozen=True)
class PackedBatch:
    """A batch as bytes, on the learner's device."""

    layout: BatchLayout
    packed: Tensor  # [B, layout.nbytes] uint8
    item: Tensor  # [B] int64, on the host; see `Batch`

    def unpacked(self) -> Batch:
        """Return its fields."""
        return self.layout.unpack(self.packed)


class Feed:
    """Composes batches. Stateless apart from a side stream, so any thread may call it."""

    def __init__(self, schema: UnrollSchema, device: torch.device) -> None:
        """Prepare for one schema and one device."""
        self.layout = BatchLayout(schema)
        self._device = device
        # Of a GPU, which cuts the bytes itself.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def compose(self, draws: Sequence[Draw], update: int) -> Batch | PackedBatch:
        """Put B draws, grouped by buffer, together as a batch on the device.

        `update` is the number of updates that the learner has done; ages are measured from it.
        """
        shape, is_pinned = (len(draws), self.layout.nbytes), self._stream is not None
        # From pinned memory, which PyTorch reuses, a GPU takes bytes at full speed.
        packed = torch.empty(shape, dtype=torch.uint8, pin_memory=is_pinned)
        self.pack(draws, update, packed)
        if self._stream is None:
            return self.layout.unpack(packed)
        there = self._to_device(packed, self._stream)
        return PackedBatch(self.layout, there, torch.tensor([draw.item.id for draw in draws]))

    def pack(self, draws: Sequence[Draw], update: int, packed: Tensor) -> None:
        """Write draws, and what is known of each, into `packed`, [B, nbytes] uint8 on the host.

        Ages are measured from `update`, as in `compose`.
        """
        rows, end = packed.numpy(), self.layout.record_nbytes
        for row, draw in zip(rows, draws, strict=True):
            row[:end] = draw.record
        columns = {
            "item": [draw.item.id for draw in draws],
            "age": [update - draw.item.inserted_at_update for draw in draws],
            "source": [draw.source for draw in draws],
            "weight": [draw.weight for draw in draws],
            "is_online": [draw.is_online for draw in draws],
        }
        for name, values in columns.items():
            self.layout.of_draw[name].view(rows[:, end:])[...] = values

    def _to_device(self, packed: Tensor, stream: torch.cuda.Stream) -> Tensor:
        with torch.cuda.stream(stream):
            there = packed.to(self._device, non_blocking=True)
        # The batch is handed over only when it is complete, so the learner needs no event.
        stream.synchronize()
        # Its memory is the side stream's, which would give it to the next batch while the
        # learner still reads this one. The allocator is to wait for that.
        there.record_stream(torch.cuda.current_stream(self._device))
        return there
