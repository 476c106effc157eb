"""The flags of the group `machine`."""

from __future__ import annotations

from typing import Literal

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count, CountOrAuto, Positive
from ritornello.flags.values import MAX_AGENTS, Precision


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
        "learners on this machine, each a process with workers, replay and batches of its own. They make each update together, as one learner with a batch of --learner_count times --batch_size. For several machines use torchrun (docs/several_learners.md)",
        le=64,
        of_this_command=True,
        effect="learning",
    )
    learner_timeout: Positive = flag(
        60.0,
        "seconds after which the run ends because one of several learners does not answer, or has no batch while others have one. The first update has ten times as long",
        of_this_command=True,
        effect="machine",
    )
    background: bool = flag(
        False,
        "run everything, the learner included, at low priority (niceness 15 for the learner, and --worker_niceness more for workers, up to 19; on Linux the whole session has the lowest if the run has one of its own). The run is slow while other programs compute",
        of_this_command=True,
        effect="machine",
    )
    compile: bool = flag(
        False,
        "compile the learner's torso with torch.compile; needs a C++ compiler, starts slowly and then runs faster",
        effect="machine",
    )
    cuda_graph: bool = flag(
        True,
        "on a GPU, record an update once and replay it, instead of asking for each of some 400 small computations anew; an update that cannot be recorded is computed as before",
        effect="machine",
    )
    agent_count: Count = flag(
        1,
        "number of trainings on this machine at the same time, each in a process of its own, which divide its cores and its memory; multi_train.py --at_once sets it",
        le=MAX_AGENTS,
        of_this_command=True,
        effect="machine",
    )
    agent_number: CountOrAuto = flag(
        0,
        "which of them this is, from 0",
        lt=MAX_AGENTS,
        of_this_command=True,
        effect="machine",
    )
