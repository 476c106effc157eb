"""Work of a GPU that is recorded once and replayed for each update.

An update of a small network is some 400 kernels, each of a few microseconds. Python takes ten times
as long to ask for them as a large GPU takes to compute them (docs/performance.md). A CUDA graph
holds all of them: it is recorded once, and one call starts it again. It always reads the same
memory, so what is new is copied to where the recorded work read it; and always writes the same, so
what must outlive the next update is copied away. Next to read: agent/learning/learner.py, whose
work it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ritornello.core.errors import first_line

log = logging.getLogger(__name__)

Replay = Callable[[], Any]
# Takes work; returns what does it anew, and the result, whose tensors are written each time.
Record = Callable[[Callable[[], Any]], tuple[Replay, Any]]


class Recording(NamedTuple):
    """Recorded work."""

    kind: Any
    replay: Replay
    reads: tuple[Tensor, ...]
    result: Any  # its tensors are written by each replay


class Recorded:
    """Work on tensors that is recorded at its second call in a row of one kind, then replayed.

    Libraries prepare themselves at the first call, and optimisers make what they keep. What cannot
    be recorded is computed at each call. One thread.
    """

    def __init__(self, record: Record | None) -> None:
        """Record nothing yet. Without `record` nothing is ever recorded: each call computes."""
        self._record = record
        self.recording: Recording | None = None
        self._warm: Any = None  # the kind of the call before, if it may be recorded
        self._refused: Any = None  # a kind that cannot be recorded

    def __call__(self, work: Callable[..., Any], kind: Any, *inputs: Tensor) -> Any:
        """Return the result for these inputs; if it is replayed, valid until the next call.

        Args:
          work: a function of tensors, always the same one.
          kind: calls of equal kinds are the same work on tensors of the same shapes. None means
            that the work depends on something else besides, and is computed.
          inputs: the arguments of `work`.
        """
        if self._record is None or kind is None:
            self._warm = None
            return work(*inputs)
        if kind == self._warm and kind != self._refused and not self._is_recorded(kind):
            self._try_to_record(work, kind, inputs)
        if self.recording is not None and self._is_recorded(kind):
            for read, new in zip(self.recording.reads, inputs, strict=True):
                read.copy_(new)
            self.recording.replay()
            return self.recording.result
        self._warm = kind
        return work(*inputs)

    def forget(self) -> None:
        """Drop the recording: what was learned now lies in other tensors."""
        self.recording = self._warm = None

    def _is_recorded(self, kind: Any) -> bool:
        return self.recording is not None and self.recording.kind == kind

    def _try_to_record(self, work: Callable[..., Any], kind: Any, inputs: Sequence[Tensor]) -> None:
        assert self._record is not None
        reads = tuple(tensor.clone() for tensor in inputs)
        try:
            replay, result = self._record(lambda: work(*reads))
        except RuntimeError as error:
            self._refused = kind
            log.warning(
                "the updates cannot be recorded for the GPU, so each is asked for kernel by "
                "kernel, which is slower: %s",
                first_line(error),
            )
        else:
            self.recording = Recording(kind, replay, reads, result)


def cuda_graph(
    work: Callable[[], Any], generator: torch.Generator | None = None
) -> tuple[Replay, Any]:
    """Record work as a CUDA graph; return a function that replays it, and the result it writes to.

    `generator` is the source of the random numbers that the work draws; None: it draws none.

    Raises:
      RuntimeError: if the work waits for the GPU, or asks it for something that no graph can hold.
    """
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    try:
        # Other threads compose batches meanwhile, and may wait for the GPU as they like.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = work()
    finally:
        torch.cuda.set_stream(stream)  # a recording that fails leaves its own
    return graph.replay, result
