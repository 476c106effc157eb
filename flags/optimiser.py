"""The flags of the group `optimiser`."""

from __future__ import annotations

from flags.group import FlagGroup, flag
from flags.kinds import Bound, Count, CountOrAuto, Decay, Positive, Weight
from flags.values import Optimiser, Schedule


class OptimiserFlags(FlagGroup):
    """How gradients become steps."""

    optimizer: Optimiser = flag(
        "adam",
        "adam; rmsprop with epsilon outside the square root (torch) or inside it (rmsprop_tf, as the paper)",
    )
    lr: Positive = flag(2.5e-4, "initial learning rate")
    lr_schedule: Schedule = flag(
        "linear",
        "how the learning rate goes to --lr_end_value over --lr_scheduler_steps",
    )
    lr_schedule_power: Positive = flag(2.0, "exponent of the polynomial schedule")
    lr_end_value: Weight = flag(1e-5, "final learning rate")
    lr_scheduler_steps: CountOrAuto = flag(
        0,
        "agent steps over which the learning rate and the replay's lambda anneal; 0: --environment_max_steps, but at least 2 500 000, so that a short run is the beginning of a longer one",
    )
    lr_scheduler_updates: CountOrAuto = flag(
        0,
        "the same length in updates of the learner, which the older platform counted: an update takes as many agent steps as its share of new unrolls has; 0: --lr_scheduler_steps says it",
    )
    rmsprop_eps: Positive = flag(0.01, "epsilon of RMSprop")
    rmsprop_alpha: Decay = flag(0.99, "RMSprop: decay of the mean squared gradient")
    adam_eps: Positive = flag(1e-5, "epsilon of Adam")
    adam_beta1: Decay = flag(0.9, "Adam: decay of the mean gradient")
    adam_beta2: Decay = flag(0.999, "Adam: decay of the mean squared gradient")
    gradient_clip_by_norm_threshold: Bound = flag(
        0.5, "clip of the global gradient norm (40 goes with --loss_reduction=sum)"
    )
    max_bad_updates: Count = flag(
        10,
        "an update whose loss or gradient is not finite is skipped, and its batch kept in bad_updates/ of the run; this many in a row end the run",
    )
