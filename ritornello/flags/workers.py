"""The flags of the group `workers`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count, CountOrAuto, Text


class WorkersFlags(FlagGroup):
    """The processes that play, and what they hand to the learner at once."""

    worker_count: CountOrAuto = flag(
        0,
        "number of worker processes; 0: chosen by the number of CPU cores, with --ray_address as many as all machines have room for",
        le=1_024,
        effect="learning",
        main=True,
    )
    envs_per_worker: CountOrAuto = flag(
        0,
        "number of environments per worker, which step together with one forward pass; 0: chosen automatically",
        le=8_192,
        effect="learning",
    )
    inference: Literal["auto", "worker", "server"] = flag(
        "auto",
        "process that chooses actions; worker: each worker, on the CPU; server: one server for all workers, on the learner's device; auto: server for --model=resnet on a GPU, else worker",
        effect="machine",
    )
    r_f_steps: Count = flag(
        20,
        "T, unroll length in agent steps",
        le=100_000,
        effect="learning",
        also="unroll_length",
        main=True,
    )
    shared_queue_size: Count = flag(
        2,
        "number of slots in shared memory per worker. A slot holds one unroll of each of its environments; the worker writes one slot while the others wait for the learner. 1: it plays on when the learner has taken what it played last",
        ge=1,
        le=1_024,
        effect="learning",
    )
    multiprocessing_backend: Literal["python_native", "ray"] = flag(
        "python_native",
        "where the workers are; python_native: processes of this machine, with shared memory and pipes to the learner; ray: on the machines of a Ray cluster, see docs/cluster.md (needs: pip install -e '.[ray]')",
        of_this_command=True,
        effect="machine",
    )
    ray_address: Text = flag(
        "",
        "address of a Ray cluster that runs, as host:port of its head; this machine must be part of it. Empty: a private Ray on this machine, which ends with the run. insecure:<host>:<port> joins a cluster that asks for no token: everybody who reaches its ports can run programs on its machines",
        of_this_command=True,
        effect="machine",
    )
    max_worker_restarts: CountOrAuto = flag(
        10,
        "number of dead workers and inference servers, all together, that are replaced within an hour. One more death ends the run. The same failure again and again, without an unroll in between, also ends it",
        effect="machine",
    )
    worker_timeout: Annotated[float, Field(ge=0.0)] = flag(
        120.0,
        "seconds after which a worker (or inference server) that does nothing is reported with its Python stack, killed and replaced. Choose more than the slowest step of all its environments takes. While it starts, it has 5 times as long, and at least 600 s. Waiting for the learner does not count. 0: never",
        effect="machine",
    )
