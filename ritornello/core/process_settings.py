"""Settings that libraries read from the environment, and only when a process starts.

By default glibc gives the activations of every update back to the kernel and faults them in again:
a quarter of the processor time of an update. Told to keep its memory it does not, and asked for
huge pages it needs fewer address translations. NumPy's OpenBLAS spreads each matrix product over
threads of its own, one per core, which wait for one another by spinning: on cores that the learner
and the workers fill already, attentive replay's distances then cost a seventh of the speed.
`main.py` and benchmarks start themselves anew with these settings; worker processes inherit them.
"""

from __future__ import annotations

import os
import sys

SETTINGS = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # madvise; glibc 2.35 and newer, others ignore it
    "OPENBLAS_NUM_THREADS": "1",
}


def environment_to_restart_with() -> dict[str, str] | None:
    """Return the environment with the missing settings added, or None if none is missing.

    Settings of the user stay as they are.
    """
    if not sys.platform.startswith("linux"):
        return None
    missing = {name: value for name, value in SETTINGS.items() if name not in os.environ}
    return {**os.environ, **missing} if missing else None


def restart_with_settings() -> None:
    """Start the interpreter anew with settings that are read only at its start.

    The whole command line is kept, so that `python -m cProfile main.py` and `python -X importtime
    main.py` do what they say. A signal waits until the new interpreter has its handlers.
    """
    environment = environment_to_restart_with()
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
