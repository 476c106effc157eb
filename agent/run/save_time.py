"""How long a stop takes to save on this disk, measured before it matters, and said to the user.

Whoever stops a job gives it some time and then kills it. Only Slurm says how much is left
(ritornello/core/stop_signals.py). A run that saves the contents of replay therefore measures the
disk when it begins, and again with each save. It begins to stop early enough before the known end
of its job, warns if the usual time would not do, and leaves the contents out where they cannot fit.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import numpy as np

from ritornello.agent.stored.checkpoint_file import write_tree
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.core.atomic_file import TEMPORARY_SUFFIX
from ritornello.core.errors import CheckpointError
from ritornello.core.files import disk
from ritornello.core.stop_signals import StopSignals

PROBE_BYTES = 32_000_000  # written when a run begins
PROBE = f".probe{TEMPORARY_SUFFIX}"  # removed by the next session if this one is killed meanwhile
USUAL_GRACE_S = 30.0  # after which Kubernetes and others kill, unless they are told otherwise
SLOWER = 1.5  # than measured, which a shared disk may be at any time
ENDING_S = 10.0  # for workers to end once all is saved

log = logging.getLogger(__name__)


class SaveTime:
    """Seconds that replay contents take to be written. Belongs to the main thread."""

    def __init__(
        self,
        folder: Path,
        stop: StopSignals,
        *,
        weights_bytes: int,
        unroll_bytes: int,
        unrolls: int,
    ) -> None:
        """Measure the disk, tell the user, and reserve the time before the end of the job.

        Args:
          folder: where checkpoints are written.
          stop: what knows the end of the job.
          weights_bytes: of the learner's state.
          unroll_bytes: of one unroll.
          unrolls: number of unrolls in full buffers.
        """
        self._stop = stop
        self._full_bytes = unrolls * unroll_bytes
        self._bytes_per_s = _measured(folder, unroll_bytes, self._full_bytes)
        self._reserve()
        weights_s = 2 * weights_bytes / self._bytes_per_s  # they are read back
        full_s = self.of(self._full_bytes)
        told = f"a stop saves the weights in {weights_s:.1f} s, then replay in {full_s:.1f} s"
        log.info(
            "%s (%.2f GB when full, at %.0f MB/s)",
            told, self._full_bytes / 1e9, self._bytes_per_s / 1e6,
        )  # fmt: skip
        if weights_s + full_s > USUAL_GRACE_S:
            log.warning(
                "whoever kills %.0f s after SIGTERM, as Kubernetes does, leaves no time to save "
                "replay: give %.0f s (docs/slurm.md), or a resume finds the newest weights with "
                "the replay of an earlier checkpoint",
                USUAL_GRACE_S, SLOWER * (weights_s + full_s) + ENDING_S,
            )  # fmt: skip

    def of(self, nbytes: float) -> float:
        """Return the seconds that so many bytes of replay take."""
        return nbytes / self._bytes_per_s

    def note(self, path: Path, seconds: float) -> None:
        """Take over what the last save of replay contents took."""
        self._bytes_per_s = max(path.stat().st_size, 1) / max(seconds, 1e-6)
        self._reserve()

    def fits(self, nbytes: float) -> bool:
        """Whether so many bytes of replay can be saved before the job ends, as far as is known."""
        return SLOWER * self.of(nbytes) + ENDING_S <= self._stop.left_s

    def _reserve(self) -> None:
        self._stop.reserve(SLOWER * self.of(self._full_bytes))


def _measured(folder: Path, unroll_bytes: int, most_bytes: int) -> float:
    """Return the bytes per second at which unrolls are written as a checkpoint is.

    A disk that refuses counts as infinitely fast: the first save will tell.
    """
    count = max(1, min(PROBE_BYTES, most_bytes) // unroll_bytes)
    unrolls = [np.zeros(unroll_bytes, np.uint8) for _ in range(count)]
    began = time.monotonic()
    try:
        write_tree(folder / PROBE, encode({"unrolls": unrolls}))
        return count * unroll_bytes / max(time.monotonic() - began, 1e-6)
    except CheckpointError as error:
        log.warning("how fast the disk is could not be measured: %s", error)
        return float("inf")
    finally:
        disk().unlink(folder / PROBE)
