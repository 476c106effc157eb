"""The flags of the group `workers`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from flags.group import FlagGroup, flag
from flags.kinds import Count, CountOrAuto


class WorkersFlags(FlagGroup):
    """The processes that play, and what they hand to the learner at once."""

    worker_count: CountOrAuto = flag(
        0, "worker processes; 0 chooses by the number of CPU cores", le=1_024
    )
    envs_per_worker: CountOrAuto = flag(
        0,
        "environments per worker, stepped together with one forward pass; 0 chooses",
        le=8_192,
    )
    inference: Literal["auto", "worker", "server"] = flag(
        "auto",
        "who chooses actions: each worker, on the CPU; or one server for all workers, on the learner's device (meant for a GPU); auto: the workers",
    )
    r_f_steps: Count = flag(20, "T, unroll length in agent steps", le=100_000)
    shared_queue_size: Count = flag(
        2,
        "slots of shared memory per worker, each one unroll of all its environments; 1 is being written, the rest wait",
        ge=2,
        le=1_024,
    )
    multiprocessing_backend: Literal["python_native"] = flag(
        "python_native", "transport between workers and learner: shared memory and pipes"
    )
    max_worker_restarts: CountOrAuto = flag(
        10,
        "how many workers (or inference servers) that died within the last hour are replaced, all together; one more ends the run, and so does the same failure from every worker before the first unroll",
    )
    worker_timeout: Annotated[float, Field(ge=0.0)] = flag(
        120.0,
        "seconds after which a worker (or inference server) that does nothing is reported with its Python stack, killed and replaced: longer than the slowest step of all its environments; at its start it has 5 times as long, at least 600 s; waiting for the learner does not count; 0: never",
    )
    worker_niceness: Annotated[int, Field(ge=0, le=19)] = flag(
        4,
        "by how much workers give way to the learner, and to every other program of the same terminal: at 19 they play only where nobody else computes, which is a few per cent faster on a machine without other programs",
    )
