"""Scores replay candidates with the policy as it is now.

Elite and attentive replay compare stored unrolls with the present policy. `replay/` knows no
model; it is handed `Scorer.evaluate`. Runs in the cache threads, never on the learner's.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch

from agent.acting import ActingModel, FlatWeights
from agent.feed import restack, stale_frames
from agent.models.base import ActorCritic
from core.unroll import Record, UnrollSchema
from replay.manager import Evaluation
from transport.weights import WeightBoard

CHUNK_ROWS = 256  # observations per forward pass: enough to be efficient, small enough for caches


class Scorer:
    """A reader of the WeightBoard that evaluates unrolls. Thread-safe: one evaluation at a time."""

    def __init__(
        self,
        model: ActorCritic,
        weights: FlatWeights,
        board: WeightBoard,
        schema: UnrollSchema,
        device: torch.device,
    ) -> None:
        """Own `model`, an acting copy that no one else uses."""
        dtype = next(model.torso_net.parameters()).dtype  # on a GPU too, scores as it acts
        self._acting = ActingModel(model, weights, board, device=device, torso_dtype=dtype)
        self._schema = schema
        self._device = device
        self._lock = threading.Lock()

    def evaluate(self, records: Sequence[Record], rows: np.ndarray) -> Evaluation:
        """Return features and action logits of the given rows under the newest weights.

        Args:
          records: n records of the schema.
          rows: [R] int, rows of each unroll to evaluate, within 0 .. T.

        Returns:
          Evaluation(features [n, R, F] float32, params [n, R, A] float32).
        """
        with self._lock, torch.inference_mode():
            self._acting.refresh()
            obs = self._observations(records, rows)
            features, params = [], []
            for chunk in obs.split(CHUNK_ROWS):
                torso = self._acting.model.torso(chunk.to(self._device))
                features.append(torso.float())
                params.append(self._acting.model.heads(torso, None).params)
            n, count = len(records), len(rows)
            return Evaluation(
                features=torch.cat(features).view(n, count, -1).cpu().numpy(),
                params=torch.cat(params).view(n, count, -1).cpu().numpy(),
            )

    def _observations(self, records: Sequence[Record], rows: np.ndarray) -> torch.Tensor:
        """Return the stacked observations [n*R, S*C, ...] of the chosen rows only."""
        spec = self._schema.env_spec
        depth = spec.frames_stacked
        frames = np.stack([self._schema.view(record, "frames") for record in records])
        first = np.stack([self._schema.view(record, "first") for record in records], axis=1)
        if len(rows) == self._schema.unroll_length + 1:
            obs = restack(torch.from_numpy(frames).transpose(0, 1), depth).transpose(0, 1)
            obs = obs.contiguous()
        else:
            wanted = rows[:, None] + np.arange(depth)[None]  # [R, S] frame numbers
            obs = torch.from_numpy(frames[:, wanted]).flatten(2, 3)  # [n, R, S*C, ...]
        if depth > 1 and first.any():
            position_of_row = np.full(first.shape[0], -1)
            position_of_row[rows] = np.arange(len(rows))
            row, column, position = stale_frames(first, depth)
            kept = position_of_row[row] >= 0
            by_frame = obs.unflatten(2, (depth, spec.frame_shape[0]))
            by_frame[column[kept], position_of_row[row[kept]], position[kept]] = 0
        return obs.flatten(0, 1)
