"""The unroll: T consecutive steps of one environment, as a table of facts.

This file defines the shapes of experience; transport/mailbox.py has those of a single row, which a
worker sends to the inference server. An unroll is a *record*: one contiguous block of bytes, with
every field at a fixed, 64-byte aligned offset. A slot of a worker's shared memory, an item in
replay and a file on the disk hold the same record, so moving experience is one memory copy and
compressing it is one call.

The rows have this meaning (T steps, S stacked frames):

    row      0        1        ...      T-1       T
    x_t      x_0      x_1               x_{T-1}   x_T     x_T is row 0 of the next unroll
    mask     m_0      m_1               m_{T-1}   m_T     what is allowed on x_t, if anything is not
    action   a_0      a_1               a_{T-1}           chosen on x_t
    reward   r_0      r_1               r_{T-1}           received after a_t, raw

Each frame is stored once. `frames[t : t + S]` is the stack of row t, so T + 1 observations need
only T + S frames. A stack never reaches across a reset: its frames from before a `first` row are
zero (`agent/learning/feed.py` rebuilds stacks).

The end of an episode is a row. If the episode ends at step t, row t+1 holds the true last
observation, and the next step resets the environment: `first[t + 2]` is true. The transition from
row t+1 to row t+2 is a *reset row*. Its action was ignored, and learners mask it. The value of row
t+1 then bootstraps a truncated episode. `terminated[t]` without a reset row after it is the loss of
a life: the agent's episode ends there, but the game goes on.

The header describes the time before row 0: `last_action`, `last_reward` and, if the model has a
memory, `state`, the memory before x_0. A learner that starts from these and runs over the rows
computes the same outputs as the actor. If `first[0]` is true, ignore all three.

Next to read: agent/acting/rollout.py, which writes unrolls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import ShapeError
from ritornello.core.layout import lay_out
from ritornello.core.spec import EnvSpec

POISON_BYTE = 0xCD  # makes an unwritten integer field obvious; floats are NaN

Record = NDArray[np.uint8]


@dataclass(frozen=True)
class Unroll:
    """Named views of one record, or of a block of records with leading axes `[...]`.

    The views share memory with the record; nothing is copied. `action_mask` is None if the
    environment allows all actions at all times, `features` if no buffer needs them, and `state` if
    the model has no memory.
    """

    frames: np.ndarray  # [..., T+S, *frame_shape] uint8 or float32
    first: np.ndarray  # [..., T+1] bool, x_t is the first observation after a reset
    # [..., T+1, P] bool, the parameters of mu(.|x_t) that count; None: all, at each step. False is
    # the logit of a choice that the environment does not allow on x_t.
    action_mask: np.ndarray | None
    action: np.ndarray  # [..., T, *action_shape] int64 or float32 (core/spec.py)
    reward: np.ndarray  # [..., T] float32, raw
    terminated: np.ndarray  # [..., T] bool; ended by the task (or a lost life), not by time
    behaviour_params: np.ndarray  # [..., T, P] float32, parameters of mu(.|x_t): mostly logits
    behaviour_value: np.ndarray  # [..., T] float32, V_mu(x_t), unnormalised
    features: np.ndarray | None  # [..., T, F] float16, torso output under mu
    worker_id: np.ndarray  # [...] int64
    env_id: np.ndarray  # [...] int64, index of the environment within its worker
    seq: np.ndarray  # [...] int64, n-th unroll of this environment since its worker started
    version: np.ndarray  # [...] int64, learner updates in the weights that chose the actions
    task_id: np.ndarray  # [...] int64, index of the game in a multi-task run
    last_action: np.ndarray  # [..., *action_shape], a_{-1}
    last_reward: np.ndarray  # [...] float32, r_{-1}, raw
    state: np.ndarray | None  # [..., state_count] float32, the model's memory before x_0

    def where(self) -> str:
        """Name this unroll in error messages (single records only)."""
        return (
            f"unroll of worker {int(self.worker_id)}, env {int(self.env_id)}, seq {int(self.seq)}"
        )


class UnrollSchema:
    """The table of the fields of an unroll, with their shapes."""

    def __init__(
        self,
        env_spec: EnvSpec,
        unroll_length: int,
        feature_count: int = 0,
        state_count: int = 0,
    ) -> None:
        """Lay out a record.

        Args:
          env_spec: the environment's frame shape and stack depth, and what its actions are.
          unroll_length: T, number of agent steps per unroll.
          feature_count: F, number of features per row; 0 if unrolls carry none.
          state_count: number of values in the model's memory; 0 if it has none.
        """
        self.env_spec = env_spec
        self.unroll_length = unroll_length
        self.feature_count = feature_count
        self.state_count = state_count
        steps, stack = unroll_length, env_spec.frames_stacked
        actions = env_spec.actions
        table: list[tuple[str, tuple[int, ...], str]] = [
            ("frames", (steps + stack, *env_spec.frame_shape), env_spec.frame_dtype),
            ("first", (steps + 1,), "bool"),
            ("action", (steps, *actions.shape), actions.dtype),
            ("reward", (steps,), "float32"),
            ("terminated", (steps,), "bool"),
            ("behaviour_params", (steps, actions.param_count), "float32"),
            ("behaviour_value", (steps,), "float32"),
        ]
        if env_spec.has_action_mask:
            table.append(("action_mask", (steps + 1, actions.param_count), "bool"))
        if feature_count:
            table.append(("features", (steps, feature_count), "float16"))
        table += [
            (name, (), "int64") for name in ("worker_id", "env_id", "seq", "version", "task_id")
        ]
        table.append(("last_action", actions.shape, actions.dtype))
        table.append(("last_reward", (), "float32"))
        if state_count:
            table.append(("state", (state_count,), "float32"))
        self.fields, self.nbytes = lay_out(table)

    def allocate(self, *leading: int) -> Record:
        """Return poisoned records `[*leading, nbytes]` uint8, owned by the caller."""
        records = np.empty((*leading, self.nbytes), np.uint8)
        self.poison(records)
        return records

    def poison(self, records: Record) -> None:
        """Fill records with NaN and 0xCD, so that an unwritten row is obvious."""
        records[...] = POISON_BYTE
        for field in self.fields.values():
            if np.issubdtype(field.dtype, np.floating):
                self.view(records, field.name)[...] = np.nan

    def view(self, records: Record, name: str) -> np.ndarray:
        """Return field `name` of records `[..., nbytes]` as a view `[..., *shape]`."""
        if records.dtype != np.uint8 or records.shape[-1] != self.nbytes:
            raise ShapeError(
                f"record has {records.shape[-1]} bytes of {records.dtype}, "
                f"expected {self.nbytes} of uint8: it belongs to another schema."
            )
        return self.fields[name].view(records)

    def unroll(self, records: Record) -> Unroll:
        """Return named views of one record `[nbytes]` or of a block `[..., nbytes]`."""
        views = {name: self.view(records, name) for name in self.fields}
        optional = ("action_mask", "features", "state")
        absent = {name: None for name in optional if name not in views}
        return Unroll(**views, **absent)  # type: ignore[arg-type]

    def check(self, unroll: Unroll) -> None:
        """Raise ShapeError if a field of a single unroll is unwritten or out of range."""
        where = unroll.where()
        for field in self.fields.values():
            _check_finite(field.name, getattr(unroll, field.name), where)
        for name in ("action", "last_action"):
            for chosen, count in self.env_spec.actions.choices_in(getattr(unroll, name)):
                if chosen.min() < 0 or chosen.max() >= count or (chosen % 1).any():
                    raise ShapeError(
                        f"{name} is in [{chosen.min()}, {chosen.max()}], expected "
                        f"whole numbers in [0, {count - 1}]: {where}."
                    )
        for name, numbers in self.env_spec.numbers_in(unroll.frames):
            _check_finite(f"{name} of frames", numbers, where)


def _check_finite(name: str, array: np.ndarray, where: str) -> None:
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ShapeError(
            f"{name}{list(index)} is {array[index]}, expected a finite number: {where}."
        )
