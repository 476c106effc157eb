"""The flags of the group `machine`."""

from __future__ import annotations

from typing import Literal

from flags.group import FlagGroup, flag
from flags.kinds import CountOrAuto
from flags.values import Precision


class MachineFlags(FlagGroup):
    """Processor, precision, threads: how fast the same thing is computed."""

    device: Literal["auto", "cpu", "cuda"] = flag(
        "auto",
        "device of the learner; auto: cuda if there is a GPU, else cpu. --inference decides where actions are chosen",
    )
    precision: Precision | Literal["auto"] = flag(
        "auto",
        "number format of the networks' torsos; auto: bf16 on GPUs and processors that are faster in it, else fp32. Losses are always fp32",
    )
    learner_thread_count: CountOrAuto = flag(
        0,
        "CPU threads of the learner, each of which computes a share of every batch; 0: one for each core",
        le=1_024,
    )
    background: bool = flag(
        False,
        "run everything, the learner included, at the lowest priority (niceness 19; on Linux for the whole session if the run has one of its own). The run is slow while other programs compute, and its learner no longer has priority over its workers",
        of_this_command=True,
    )
    compile: bool = flag(
        False,
        "compile the learner's torso with torch.compile; needs a C++ compiler, starts slowly and then runs faster",
    )
