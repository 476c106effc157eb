"""Scores replay candidates with the policy as it is now.

Elite and attentive replay compare stored unrolls with the present policy. `replay/` knows no
model; it is handed `Scorer.evaluate`. Runs in the cache threads, never on the learner's.

What is compared are the features, the torso's view of a single observation. Logits also depend on
what a recurrent model remembers, so there all rows from the start of the unroll are evaluated, from
the state stored there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch

from ritornello.agent.acting.acting_model import ActingModel, FlatWeights
from ritornello.agent.learning.feed import stale_frames
from ritornello.agent.models.base import ActorCritic, Inputs
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.scoring import Evaluation
from ritornello.transport.weights import WeightBoard

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
        """Own `model`, an acting copy that no one else uses, and keep it up to date.

        `weights` is the layout of `board`, where the newest weights are; `schema` is that of the
        records. The model computes on `device`.
        """
        dtype = next(model.torso_net.parameters()).dtype  # on a GPU too, scores as it acts
        self._acting = ActingModel(model, weights, board, device=device, torso_dtype=dtype)
        self._schema = schema
        self._device = device
        self._lock = threading.Lock()

    def evaluate(
        self, records: Sequence[Record], rows: np.ndarray, queries: Sequence[Record] = ()
    ) -> Evaluation:
        """Evaluate n records at some of their rows with the newest weights.

        `rows` are [R] int, within 0 .. T. Of each of the Q `queries`, only the features of the last
        of these rows are computed.

        Returns:
          Evaluation(features [n, R, F] float32, params [n, R, P] float32, queries [Q, F] float32 or
          None).
        """
        with self._lock, torch.inference_mode():
            self._acting.refresh()
            is_recurrent = self._acting.model.state_count > 0
            evaluated = np.arange(rows.max() + 1) if is_recurrent else rows
            at_once = max(1, CHUNK_ROWS // len(evaluated))
            parts = [
                self._evaluate(records[start : start + at_once], evaluated)
                for start in range(0, len(records), at_once)
            ]
            both = (torch.cat(part, 1) for part in zip(*parts, strict=True))
            features, params = (part.transpose(0, 1).cpu().numpy() for part in both)
            if is_recurrent:
                features, params = features[:, rows], params[:, rows]
            present = self._features(queries, rows[-1:]) if queries else None
            return Evaluation(features, params, present)

    def _features(self, records: Sequence[Record], rows: np.ndarray) -> np.ndarray:
        """Return the features of one row of each record, [n, F]."""
        obs = self._observations(records, rows)
        games = torch.from_numpy(np.stack([self._schema.view(r, "task_id") for r in records]))
        chunks = [
            self._acting.model.torso(chunk.to(self._device), of_chunk.to(self._device))
            for chunk, of_chunk in zip(obs.split(CHUNK_ROWS), games.split(CHUNK_ROWS), strict=True)
        ]
        return torch.cat(chunks).cpu().numpy()

    def _evaluate(
        self, records: Sequence[Record], rows: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features [R, n, F] and parameters of policies [R, n, P] of n records."""
        model, schema = self._acting.model, self._schema
        obs = self._observations(records, rows).to(self._device)
        unrolls = [schema.unroll(record) for record in records]
        games = torch.from_numpy(np.stack([unroll.task_id for unroll in unrolls])).to(self._device)
        features = model.torso(obs, games.repeat_interleave(len(rows)))
        features = features.float().unflatten(0, (len(records), len(rows))).transpose(0, 1)

        def before(name: str) -> np.ndarray:
            """What came before each row, [R, n]."""
            now = np.stack([getattr(unroll, name) for unroll in unrolls], 1)
            header = np.stack([getattr(unroll, f"last_{name}") for unroll in unrolls])
            return np.concatenate([header[np.newaxis], now])[rows]

        shown = np.stack([unroll.first for unroll in unrolls], 1)[rows]
        arrays = (shown, before("action"), before("reward"))
        state = model.initial_state(len(records))
        if schema.state_count:
            stored = np.stack([schema.view(record, "state") for record in records])
            state = torch.from_numpy(stored).to(self._device)
        first, action, reward = (torch.from_numpy(array).to(self._device) for array in arrays)
        inputs = Inputs(obs, first, action, reward, games)
        hidden, _ = model.hidden(features, inputs, state)
        mask = None
        if schema.env_spec.has_action_mask:
            allowed = np.stack([schema.view(record, "action_mask") for record in records], 1)
            mask = torch.from_numpy(allowed[rows]).to(self._device)
        return features, model.heads(hidden, games, mask).params

    def _observations(self, records: Sequence[Record], rows: np.ndarray) -> torch.Tensor:
        """Return the stacked observations [n*R, S*C, ...] of the chosen rows only."""
        spec = self._schema.env_spec
        depth = spec.frames_stacked
        wanted = rows[:, None] + np.arange(depth)[None]  # [R, S] frame numbers
        stacks = np.empty((len(records), *wanted.shape, *spec.frame_shape), spec.frame_dtype)
        for record, of_record in zip(records, stacks, strict=True):
            # "clip" only because NumPy copies once more with its default; no number is outside.
            self._schema.view(record, "frames").take(wanted, axis=0, out=of_record, mode="clip")
        obs = torch.from_numpy(stacks).flatten(2, 3)  # [n, R, S*C, ...]
        first = np.stack([self._schema.view(record, "first") for record in records], axis=1)
        if depth > 1 and first.any():
            stale = stale_frames(torch.from_numpy(first), depth)[rows].transpose(0, 1)
            obs.unflatten(2, (depth, spec.frame_shape[0]))[stale] = 0
        return obs.flatten(0, 1)
