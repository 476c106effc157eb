"""The loss of a batch and its gradient: computed, or replayed from a recording of the GPU's work.

An update of a small network is some 400 kernels, each of a few microseconds. Python takes ten times
as long to ask for them as a large GPU takes to compute them (docs/performance.md). A CUDA graph
holds all of them: it is recorded once, and one call starts it again. It always reads the same
memory, so a batch is copied to where the recorded one was, and always writes the same, so what must
outlive the next update is copied away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm, Loss
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.models.base import ActorCritic

log = logging.getLogger(__name__)


class Made(NamedTuple):
    """What one call of the work leaves behind, besides the gradient in the parameters."""

    loss: Loss
    figures: Tensor  # [metrics] float32, those of the loss


Work = Callable[[], Made]
Replay = Callable[[], None]


class Recording(NamedTuple):
    """What was recorded, and where it reads and writes."""

    kind: Any
    replay: Replay
    batch: Batch  # what it reads
    made: Made  # what it writes, and
    gradient: list[Tensor | None]  # of each parameter; None: it has none

    def play(self, batch: Batch, parameters: Sequence[Tensor]) -> Loss:
        """Compute the loss of another batch, and leave its gradient in the parameters."""
        torch._foreach_copy_(list(vars(self.batch).values()), list(vars(batch).values()))
        self.replay()
        for parameter, gradient in zip(parameters, self.gradient, strict=True):
            parameter.grad = gradient  # after an update that was not made it has none
        loss, figures = self.made
        metrics = dict(zip(loss.metrics, figures.clone().unbind(), strict=True))
        return loss._replace(total=loss.total.clone(), metrics=metrics)


class Backward:
    """Computes a loss and its gradient, which it leaves in the parameters. One thread."""

    def __init__(self, model: ActorCritic, optimiser: torch.optim.Optimizer) -> None:
        """Keep both; `optimiser` has all parameters of `model`."""
        self._model = model
        self._optimiser = optimiser

    def __call__(self, algorithm: Algorithm, batch: Batch, progress: float) -> Loss:
        """Return the loss of a batch, `progress` (0 to 1) through the training."""
        self._optimiser.zero_grad(set_to_none=True)
        loss = algorithm.loss(self._model, batch, self._optimiser, progress)
        loss.total.backward()
        return loss

    def forget(self) -> None:
        """Forget what was recorded: other tensors than then hold what was learned."""


class RecordedBackward(Backward):
    """The same, recorded at the second batch of a kind, and replayed for all others of it.

    A kind is the shapes of a batch and the algorithm with its settings. What cannot be recorded is
    computed as ever.
    """

    def __init__(
        self,
        model: ActorCritic,
        optimiser: torch.optim.Optimizer,
        record: Callable[[Work], tuple[Replay, Made]] | None = None,
    ) -> None:
        """Record nothing yet.

        Args:
          model: the network, on a GPU.
          optimiser: has all its parameters.
          record: takes work, and returns what does it anew each time it is called, and what it
            then writes to; None: a CUDA graph, whose work has not been done so far.
        """
        super().__init__(model, optimiser)
        self._parameters = list(model.parameters())
        self._record = record or cuda_graph
        self._recording: Recording | None = None
        self._computed: Any = None  # the kind of the batch before, if it may be recorded
        self._refused: Any = None  # a kind that cannot be

    def __call__(self, algorithm: Algorithm, batch: Batch, progress: float) -> Loss:
        """Return the loss of a batch; its `errors` are valid until the next call."""
        kind = (algorithm, algorithm.config, [tensor.shape for tensor in vars(batch).values()])
        if self._recording is not None and kind == self._recording.kind:
            return self._recording.play(batch, self._parameters)
        # At the first batch libraries prepare themselves, and models what they keep.
        if kind == self._computed != self._refused:
            try:
                self._recording = self._recorded(kind, algorithm, batch, progress)
            except RuntimeError as error:
                self._refused = kind
                log.warning(
                    "the updates cannot be recorded for the GPU, so each is asked for kernel by "
                    "kernel, which is slower: %s",
                    str(error).split("\n")[0],
                )
            else:
                return self._recording.play(batch, self._parameters)
        may_record = algorithm.is_pure() and not self._model.unsettled()
        self._computed = kind if may_record else None
        return super().__call__(algorithm, batch, progress)

    def forget(self) -> None:
        """Drop the recording, if there is one."""
        self._recording = self._computed = None

    def _recorded(
        self, kind: Any, algorithm: Algorithm, batch: Batch, progress: float
    ) -> Recording:
        kept = replace(batch, **{name: tensor.clone() for name, tensor in vars(batch).items()})

        def work() -> Made:
            loss = Backward.__call__(self, algorithm, kept, progress)
            figures = torch.stack([value.float() for value in loss.metrics.values()])
            return Made(loss._replace(total=loss.total.detach()), figures)

        replay, made = self._record(work)
        return Recording(kind, replay, kept, made, [p.grad for p in self._parameters])


def make_backward(
    model: ActorCritic, optimiser: torch.optim.Optimizer, *, may_record: bool
) -> Backward:
    """Return what computes losses and gradients; it records on a GPU only."""
    is_on_gpu = next(model.parameters()).device.type == "cuda"
    kind = RecordedBackward if may_record and is_on_gpu else Backward
    return kind(model, optimiser)


def cuda_graph(work: Work) -> tuple[Replay, Made]:
    """Record work as a CUDA graph; return what does it, and what it will write to.

    Raises:
      RuntimeError: if the work waits for the GPU, or asks it for something that no graph can hold.
    """
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads compose batches meanwhile, and may wait for the GPU as they like.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            made = work()
    finally:
        torch.cuda.set_stream(stream)  # a recording that fails leaves its own
    return graph.replay, made
