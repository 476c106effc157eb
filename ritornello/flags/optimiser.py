"""The flags of the group `optimiser`."""

from __future__ import annotations

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Bound, Count, Decays, Epsilon, Rate, ScheduleLength, Weight
from ritornello.flags.values import Optimiser, Schedule


class OptimiserFlags(FlagGroup, effect="learning"):
    """How gradients become steps."""

    optimizer: Optimiser = flag(
        "adam",
        "optimiser of the network; rmsprop has epsilon outside the square root (as torch), rmsprop_tf inside it (as the IMPALA paper)",
    )
    lr: Rate = flag(2.5e-4, "initial learning rate", main=True)
    lr_schedule: Schedule = flag(
        "linear",
        "curve on which the learning rate goes from --lr to --lr_end_value, over --lr_scheduler_steps; polynomial: the square of linear",
    )
    lr_end_value: Weight = flag(1e-5, "final learning rate")
    lr_scheduler_steps: ScheduleLength = flag(
        0,
        "agent steps over which the learning rate and the lambda of replay anneal; <number>u: so many updates of the learner, each of which takes as many agent steps as there are in its new unrolls; 0: --environment_max_steps, but at least 2 500 000, so that a short run equals the beginning of a longer one. A resume keeps the length that the run began with, unless it gives one",
    )
    optimizer_eps: Epsilon | None = flag(
        None, "epsilon of the optimiser; none: 1e-5 for Adam, 0.01 for RMSprop"
    )
    optimizer_decay: Decays = flag(
        (),
        "decay of the running means: of the gradient and of its square for Adam (default 0.9,0.999), of the square for RMSprop (default 0.99)",
    )
    gradient_clip_by_norm_threshold: Bound = flag(
        0.5, "upper bound of the global gradient norm; 40 suits --loss_reduction=sum"
    )
    max_bad_updates: Count = flag(
        10,
        "number of skipped updates in a row that end the run. An update is skipped if its loss or gradient is not finite; its batch is kept in bad_updates/ of the run",
        effect="machine",
    )
