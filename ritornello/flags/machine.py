"""The flags of where it is computed: the groups `workers` and `machine`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import BoolOrAuto, Count, CountOrAuto, MachineShare, Precision, Text


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
        "number of slots in shared memory per worker. A slot holds one unroll of each of its environments; the worker writes one slot while the others wait for the learner. 1: the worker waits until the learner has taken its last unrolls",
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


class MachineFlags(FlagGroup):
    """Processor, precision, threads: how fast the same thing is computed."""

    device: Literal["auto", "cpu", "cuda"] = flag(
        "auto",
        "device of the learner; auto: cuda if there is a GPU, else cpu. --inference decides where actions are chosen",
        effect="machine",
    )
    precision: Precision | Literal["auto"] = flag(
        "auto",
        "number format of the networks' torsos; auto: bf16 on GPUs and processors that are faster in it, else fp32. Losses are always fp32",
        effect="learning",
    )
    learner_thread_count: CountOrAuto = flag(
        0,
        "CPU threads of the learner, each of which computes a share of every batch; 0: one for each core. A test has one thread, unless this is given",
        le=1_024,
        effect="machine",
    )
    learner_count: Count = flag(
        1,
        "number of learner processes on this machine. They make each update together, as one learner with a batch of --learner_count times --batch_size. For several machines use torchrun (docs/several_learners.md)",
        le=64,
        of_this_command=True,
        effect="learning",
    )
    background: bool = flag(
        False,
        "run everything at low priority: niceness 15 for the learner and 19 for workers; on Linux the session, if the run has its own, gets the lowest. The run is slow while other programs compute",
        of_this_command=True,
        effect="machine",
    )
    compile: BoolOrAuto = flag(
        "auto",
        "auto: on a GPU, record updates once as CUDA graphs and replay them, where that is possible; True: also compile the torso with torch.compile, which needs a C++ compiler and starts slowly; False: neither",
        effect="machine",
    )
    machine_share: MachineShare = flag(
        "0/1",
        "k/n: this is training k, counted from 0, of n that divide the cores and the memory of this machine. multi_train.py --at_once sets it",
        of_this_command=True,
        effect="machine",
    )
