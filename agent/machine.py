"""What this machine offers, and the choices that follow from it when a flag says "choose"."""

from __future__ import annotations

import math
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ritornello.core.command_line import counted
from ritornello.core.errors import ConfigError
from ritornello.metrics.hardware import usable_cores
from ritornello.transport.cgroups import cpu_quota

if TYPE_CHECKING:
    from ritornello.flags.options import Flags


@dataclass(frozen=True)
class WeightFormat:
    """Format of the weights of a torso where they are computed with."""

    dtype: torch.dtype = torch.float32
    channels_last: bool = False  # kernels in NHWC order, for any network


PLAIN = WeightFormat()


@dataclass(frozen=True)
class Choices:
    """Resolved machine settings of a run."""

    device: torch.device
    torso_dtype: torch.dtype  # dtype in which the learner computes; its weights are fp32
    learner_channels_last: bool  # whether the learner keeps all kernels in NHWC order
    acting_format: WeightFormat  # format of the weights that act on the CPU
    inference: str  # worker | server: who chooses actions
    worker_count: int
    envs_per_worker: int
    learner_threads: int
    pin_workers: bool  # each worker stays on a core of its own
    reasons: tuple[str, ...]


# Workers run at a lower priority than the learner. If one learner thread loses its core, all
# learner threads wait for it; a delayed worker delays only itself. Niceness lowers the priority
# against every other program as well: at 19, beside two busy programs, each worker gets a
# seventieth of a core, and training stands still. docs/performance.md has all figures.
NICENESS = 4
LOWEST_NICENESS = 19
EVALUATION_SHARE = 1 / 20  # of a busy machine, for the process that evaluates
BACKGROUND_NICENESS = LOWEST_NICENESS - NICENESS  # of the learner, so that it keeps its lead

CPUINFO = "/proc/cpuinfo"  # where Linux describes the processor


def give_way(niceness: int = NICENESS) -> None:
    """Lower the priority of this process below the learner's (once, at its start)."""
    os.nice(niceness)


def niceness_of_share(share: float) -> int:
    """Return the niceness at which a thread gets about this share of a core beside a busy one.

    Linux weighs a process by a factor of 1.25 for each step of niceness (sched(7), CFS).
    """
    if share >= 0.5:
        return 0
    return min(LOWEST_NICENESS, round(math.log((1 - share) / share, 1.25)))


def go_to_background() -> None:
    """Let this process, and all that it starts, compute only when nothing else wants to.

    Workers, whose priority is below the learner's, then have the lowest priority there is.

    Where Linux groups processes by session to share out time (autogroups), niceness counts only
    within a group: then the priority of the whole session is lowered as well, if the session is
    this process's own. A session that others share, such as that of a terminal, is left alone.
    """
    os.nice(max(0, BACKGROUND_NICENESS - os.nice(0)))
    if os.getsid(0) == os.getpid():
        # Not Linux, built without autogroups, or not allowed to: niceness has to do.
        with suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(LOWEST_NICENESS))


def stay_on_core(index: int) -> None:
    """Keep this process, and threads that it starts, on one core, if the system can.

    `index` counts its cores, and starts again after the last one. Otherwise the kernel moves
    workers to and fro as the learner's threads wake and sleep, and each move costs them their
    caches.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = usable_cores()
        with suppress(OSError):  # a container may forbid it
            os.sched_setaffinity(0, {cores[index % len(cores)]})


def cpu_count() -> int:
    """Return how many CPU cores this process may use: those of its affinity, within its quota."""
    return max(1, min(len(usable_cores()), cpu_quota() or sys.maxsize))


def bf16_is_faster() -> bool:
    """Whether this processor is taken to multiply matrices faster in bf16 than in fp32.

    Measured is Intel's AVX-512 BF16: without AMX, as a virtual machine may show it, it is slower
    than fp32, 74 against 119 GFLOP/s on a core of Sapphire Rapids; with AMX it is five times as
    fast, 856 against 165. AMD's AVX-512 BF16 is assumed to be faster; `--precision` overrules.
    docs/performance.md has the effect on each network.
    """
    if has_amx():
        return True
    capabilities = _capabilities()
    if capabilities:
        native = bool(capabilities.get("avx512_bf16"))
    else:  # torch 2.10 has no public query
        probe = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
        native = bool(probe is not None and platform.machine() in ("x86_64", "AMD64") and probe())
    return native and not _is_intel()


def has_amx() -> bool:
    """Whether this processor has Intel's units for products of bf16 matrices."""
    return bool(_capabilities().get("amx_bf16"))


def _capabilities() -> dict[str, object]:
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return capabilities


def _is_intel() -> bool:
    with suppress(OSError), open(CPUINFO, encoding="utf-8", errors="replace") as file:
        return any(line.startswith("vendor_id") and "GenuineIntel" in line for line in file)
    return False


def choose(
    flags: Flags,
    *,
    is_image: bool,
    task_count: int = 1,
    learners_here: int = 1,
    local_rank: int = 0,
    worker_count: int | None = None,
) -> Choices:
    """Fill in every setting that was left to the program, with the reason for each.

    Args:
      flags: flags of the session.
      is_image: whether observations are images.
      task_count: number of games; environments are as many as give each game an equal number.
      learners_here: number of learners on this machine, which share its cores and GPUs.
      local_rank: number of this learner among them.
      worker_count: number of workers on a cluster, which replaces the flag; None: the flag counts.

    Raises:
      ConfigError: if the device is not there, or the settings do not go together.
    """
    inference, reproducible = flags.inference, flags.reproducible
    if inference == "server" and reproducible:
        raise ConfigError(
            "--inference=server batches whoever is ready, so its random numbers depend on timing, "
            "and --reproducible=True allows none of that: expected --inference=worker or auto"
        )
    worker_count = flags.worker_count if worker_count is None else worker_count
    envs_per_worker, learner_threads = flags.envs_per_worker, flags.learner_thread_count
    reasons: list[str] = []
    chosen_device = _device(flags.device, local_rank if learners_here > 1 else None)
    on_cpu = chosen_device.type == "cpu"
    torso_dtype = _torso_dtype(flags.precision, chosen_device, is_image, reasons)
    if inference == "auto":
        # Acting with so large a network costs a processor more than a game (docs/performance.md).
        served = flags.model == "resnet" and flags.multiprocessing_backend != "ray"
        inference = "server" if served and not on_cpu and not reproducible else "worker"
        where = "by a server, on the GPU" if inference == "server" else "in the workers, on the CPU"
        reasons.append(f"inference {where}: the faster one for this network")
    cores = max(1, cpu_count() // learners_here)
    # One for each core: only then is it clear who belongs where. A quota gives time, not cores.
    pin_workers = (
        worker_count == 0 and on_cpu and not reproducible and cpu_count() == len(usable_cores())
    )
    if reproducible:
        # The same on every machine: a run and its resume must not depend on the core count.
        worker_count = worker_count or 1
        envs_per_worker = envs_per_worker or even_envs(4, worker_count, task_count)
        learner_threads = learner_threads or 1
    if worker_count == 0:
        # On a CPU the learner shares the cores: workers wait for it through back-pressure, so one
        # worker per core keeps every core busy. With a GPU the learner needs one core to itself,
        # and so does the server.
        worker_count = max(1, cores - (0 if on_cpu else 1 + (inference == "server")))
        where = "one on each" if pin_workers else "of which the learner needs some"
        reasons.append(f"{counted(worker_count, 'worker')}: {counted(cores, 'core')}, {where}")
    if envs_per_worker == 0:
        envs_per_worker = even_envs(8, worker_count, task_count)
        reason = "one forward pass of 8 costs half of 8 of one"
        if task_count > 1:
            reason += f"; {worker_count * envs_per_worker // task_count} play each game"
        reasons.append(f"{envs_per_worker} environments per worker: {reason}")
    if learner_threads == 0:
        # Workers give way (agent/acting/worker.py), so the learner may use every core.
        learner_threads = cores if on_cpu else 1
        reasons.append(f"learner threads {learner_threads}: shares of a batch computed at once")
    return Choices(
        device=chosen_device,
        torso_dtype=torso_dtype,
        # docs/performance.md, "Number format": NHWC order pays on GPUs, in fp32 (in learning only),
        # and on AMX units.
        learner_channels_last=chosen_device.type == "cuda"
        or torso_dtype == torch.float32
        or has_amx(),
        acting_format=_acting_format(torso_dtype, chosen_device),
        inference=inference,
        worker_count=worker_count,
        envs_per_worker=envs_per_worker,
        learner_threads=learner_threads,
        pin_workers=pin_workers,
        reasons=tuple(reasons),
    )


def _torso_dtype(
    precision: str, device: torch.device, is_image: bool, reasons: list[str]
) -> torch.dtype:
    """Return the number format of the learner's torso; add a reason if it was chosen here."""
    if precision == "auto":
        on_gpu = device.type == "cuda"
        bf16_pays = torch.cuda.is_bf16_supported() if on_gpu else bf16_is_faster()
        precision = "bf16" if bf16_pays and is_image else "fp32"
        if is_image:
            reasons.append(f"precision {precision}: the faster one on this processor")
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _acting_format(torso_dtype: torch.dtype, device: torch.device) -> WeightFormat:
    """Return the format of the weights that act on the CPU."""
    # A GPU has bf16 where the processor beside it, on which workers act, may be slow at it.
    is_slow = device.type == "cuda" and not bf16_is_faster()
    dtype = torch.float32 if is_slow else torso_dtype
    return WeightFormat(dtype, has_amx() and dtype == torch.bfloat16)


def even_envs(least: int, worker_count: int, task_count: int) -> int:
    """Return how many environments per worker, `least` or more, give all games equally many."""
    candidates = range(least, least + task_count)
    return next(envs for envs in candidates if worker_count * envs % task_count == 0)


def _device(name: str, local_rank: int | None = None) -> torch.device:
    """Return the device; `local_rank` is the number of a learner that shares the GPUs."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device=cuda: torch sees no CUDA device here; use --device=cpu or auto")
    if name == "cuda" and local_rank is not None:
        return torch.device(name, local_rank % torch.cuda.device_count())
    return torch.device(name)
