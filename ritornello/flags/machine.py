"""The flags of the group `machine`."""

from __future__ import annotations

from typing import Literal

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import BoolOrAuto, Count, CountOrAuto, MachineShare
from ritornello.flags.values import Precision


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
    background: bool = flag(
        False,
        "run everything, the learner included, at low priority (niceness 15 for the learner, and 19 for workers; on Linux the whole session has the lowest if the run has one of its own). The run is slow while other programs compute",
        of_this_command=True,
        effect="machine",
    )
    compile: BoolOrAuto = flag(
        "auto",
        "how updates are made faster. auto: on a GPU, an update is recorded once and replayed, instead of asking for each of some 400 small computations anew; one that cannot be recorded is computed as before. True: the torso is compiled with torch.compile besides, which needs a C++ compiler and starts slowly. False: neither",
        effect="machine",
    )
    machine_share: MachineShare = flag(
        "0/1",
        "which of how many trainings on this machine at the same time this is, from 0; they divide its cores and its memory. multi_train.py --at_once sets it",
        of_this_command=True,
        effect="machine",
    )
