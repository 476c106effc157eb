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
        "where the learner runs; auto: cuda if there is one, else cpu. See --inference for where actions are chosen",
    )
    precision: Precision | Literal["auto"] = flag(
        "auto",
        "of the networks' torsos; auto: bf16 where the processor computes it natively. Losses are always fp32",
    )
    learner_thread_count: CountOrAuto = flag(
        0,
        "CPU threads that compute shares of each batch side by side, one learner, one set of weights; 0 chooses all cores",
        le=1_024,
    )
    background: bool = flag(
        False,
        "the whole run gives way to everything else on the machine, its learner too (niceness 19, on Linux of its whole session where it has one of its own); beside other work it is slow, and its learner no longer goes before its workers",
        of_this_command=True,
    )
    compile: bool = flag(
        False,
        "torch.compile the torso of the learner (needs a C++ compiler; slow start, then faster)",
    )
