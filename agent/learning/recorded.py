"""The loss of a batch and its gradient, replayed from a recording of the GPU's work.

An update of a small network is some 400 kernels, each of a few microseconds. Python takes ten times
as long to ask for them as a large GPU takes to compute them (docs/performance.md). A CUDA graph
holds all of them: it is recorded once, and one call starts it again. It always reads the same
memory, so a batch is copied to where the recorded one was, and always writes the same, so what must
outlive the next update is copied away. Next to read: agent/learning/learner.py, whose work it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm, Loss
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.models.base import ActorCritic

log = logging.getLogger(__name__)

LossAndGradient = Callable[[Batch], Loss]  # leaves the gradient in the parameters


class Written(NamedTuple):
    """The tensors that recorded work writes to, besides the gradient in the parameters."""

    loss: Loss
    metrics: Tensor  # [metrics] float32, those of the loss


Work = Callable[[], Written]
Replay = Callable[[], None]


class Runner:
    """Runs work as it is. One thread."""

    def __call__(self, work: LossAndGradient, algorithm: Algorithm, batch: Batch) -> Loss:
        """Return the loss that `work` computes of a batch.

        Args:
          work: computes the loss of `algorithm` and its gradient.
          algorithm: decides with its settings whether two calls are the same work.
          batch: T steps of B unrolls.
        """
        return work(batch)

    def forget(self) -> None:
        """Forget what was recorded: other tensors than then hold what was learned."""


class Recording(NamedTuple):
    """Recorded work, and where it reads and writes."""

    kind: Any
    replay: Replay
    reads: Batch
    writes: Written
    gradient: list[Tensor | None]  # of each parameter; None: it has none


class State(Enum):
    """Progress of a kind of batch towards a recording."""

    NEW = auto()  # at the first batch libraries prepare themselves, and models what they keep
    WARM = auto()  # the batch before was of this kind, and may be recorded
    RECORDED = auto()
    REFUSED = auto()  # it cannot be recorded


class RecordingRunner(Runner):
    """Records work at the second batch of a kind, and replays it for all others of that kind.

    A kind is the shapes of a batch and the algorithm with its settings. What cannot be recorded is
    computed as ever.
    """

    def __init__(
        self, model: ActorCritic, record: Callable[[Work], tuple[Replay, Written]] | None = None
    ) -> None:
        """Record nothing yet.

        Args:
          model: the network, on a GPU.
          record: takes work, and returns a function that does it anew, and what that writes to;
            None: a CUDA graph, whose work has not been done so far.
        """
        self._model = model
        self._parameters = list(model.parameters())
        self._record = record or cuda_graph
        self._recording: Recording | None = None
        self._warm: Any = None  # the kind of the batch before, if it may be recorded
        self._refused: Any = None  # a kind that cannot be recorded

    def __call__(self, work: LossAndGradient, algorithm: Algorithm, batch: Batch) -> Loss:
        """Return the loss of a batch; its `errors` are valid until the next call."""
        kind = (algorithm, algorithm.config, [tensor.shape for tensor in vars(batch).values()])
        if self._state_of(kind) is State.WARM:
            self._try_to_record(kind, work, batch)
        if self._recording is not None and self._state_of(kind) is State.RECORDED:
            return self._replayed(self._recording, batch)
        may_record = algorithm.is_pure() and not self._model.unsettled()
        self._warm = kind if may_record else None
        return work(batch)

    def forget(self) -> None:
        """Drop the recording, if there is one."""
        self._recording = self._warm = None

    def _state_of(self, kind: Any) -> State:
        if self._recording is not None and kind == self._recording.kind:
            return State.RECORDED
        if kind == self._refused:
            return State.REFUSED
        return State.WARM if kind == self._warm else State.NEW

    def _try_to_record(self, kind: Any, work: LossAndGradient, batch: Batch) -> None:
        reads = replace(batch, **{name: tensor.clone() for name, tensor in vars(batch).items()})

        def recorded_work() -> Written:
            loss = work(reads)
            metrics = torch.stack([value.float() for value in loss.metrics.values()])
            return Written(loss._replace(total=loss.total.detach()), metrics)

        try:
            replay, writes = self._record(recorded_work)
        except RuntimeError as error:
            self._refused = kind
            log.warning(
                "the updates cannot be recorded for the GPU, so each is asked for kernel by "
                "kernel, which is slower: %s",
                str(error).split("\n")[0],
            )
        else:
            gradient = [parameter.grad for parameter in self._parameters]
            self._recording = Recording(kind, replay, reads, writes, gradient)

    def _replayed(self, recording: Recording, batch: Batch) -> Loss:
        """Return the loss of another batch, and leave its gradient in the parameters."""
        torch._foreach_copy_(list(vars(recording.reads).values()), list(vars(batch).values()))
        recording.replay()
        for parameter, gradient in zip(self._parameters, recording.gradient, strict=True):
            parameter.grad = gradient  # after an update that was not made it has none
        loss, figures = recording.writes
        metrics = dict(zip(loss.metrics, figures.clone().unbind(), strict=True))
        return loss._replace(total=loss.total.clone(), metrics=metrics)


def make_runner(model: ActorCritic, *, may_record: bool) -> Runner:
    """Return what runs the work of an update; it records on a GPU only."""
    is_on_gpu = next(model.parameters()).device.type == "cuda"
    return RecordingRunner(model) if may_record and is_on_gpu else Runner()


def cuda_graph(work: Work) -> tuple[Replay, Written]:
    """Record work as a CUDA graph; return what does it, and what it will write to.

    Raises:
      RuntimeError: if the work waits for the GPU, or asks it for something that no graph can hold.
    """
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads compose batches meanwhile, and may wait for the GPU as they like.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            written = work()
    finally:
        torch.cuda.set_stream(stream)  # a recording that fails leaves its own
    return graph.replay, written
