"""The flags of the group `optimiser`."""

from __future__ import annotations

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Bound, Count, CountOrAuto, Decay, Positive, Weight
from ritornello.flags.values import Optimiser, Schedule


class OptimiserFlags(FlagGroup, effect="learning"):
    """How gradients become steps."""

    optimizer: Optimiser = flag(
        "adam",
        "optimiser of the network; rmsprop has epsilon outside the square root (as torch), rmsprop_tf inside it (as the IMPALA paper)",
    )
    lr: Positive = flag(2.5e-4, "initial learning rate", main=True)
    lr_schedule: Schedule = flag(
        "linear",
        "curve on which the learning rate goes from --lr to --lr_end_value, over --lr_scheduler_steps",
    )
    lr_schedule_power: Positive = flag(2.0, "exponent of the polynomial schedule")
    lr_end_value: Weight = flag(1e-5, "final learning rate")
    lr_scheduler_steps: CountOrAuto = flag(
        0,
        "agent steps over which the learning rate and the lambda of replay anneal; 0: --environment_max_steps, but at least 2 500 000, so that a short run equals the beginning of a longer one. A resume keeps the length that the run began with, unless it gives one",
    )
    lr_scheduler_updates: CountOrAuto = flag(
        0,
        "the same length in updates of the learner, as the older platform counted it. An update takes as many agent steps as there are in its new unrolls. 0: --lr_scheduler_steps holds",
    )
    rmsprop_eps: Positive = flag(0.01, "epsilon of RMSprop")
    rmsprop_alpha: Decay = flag(0.99, "RMSprop: decay of the mean squared gradient")
    adam_eps: Positive = flag(1e-5, "epsilon of Adam")
    adam_beta1: Decay = flag(0.9, "Adam: decay of the mean gradient")
    adam_beta2: Decay = flag(0.999, "Adam: decay of the mean squared gradient")
    gradient_clip_by_norm_threshold: Bound = flag(
        0.5, "upper bound of the global gradient norm; 40 suits --loss_reduction=sum"
    )
    max_bad_updates: Count = flag(
        10,
        "number of skipped updates in a row that end the run. An update is skipped if its loss or gradient is not finite; its batch is kept in bad_updates/ of the run",
        effect="machine",
    )
