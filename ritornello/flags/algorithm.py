"""The flags of what is learned from a batch: the groups `algorithm` and `optimiser`."""

from __future__ import annotations

from typing import Literal

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import (
    AdvantageNormalisation,
    AlgorithmKwargs,
    AlgorithmName,
    Bound,
    Count,
    CountOrAuto,
    Decays,
    Epsilon,
    Fraction01,
    LossReduction,
    Optimiser,
    Rate,
    Schedule,
    ScheduleLength,
    TrustRegion,
    Weight,
)


class AlgorithmFlags(FlagGroup, effect="learning"):
    """V-trace, its losses, and what corrects for old data."""

    algorithm: AlgorithmName = flag(
        "impala",
        "algorithm, which computes the loss of a batch: impala (V-trace actor-critic), impact (clipped steps for data that is used several times), q_lambda (values of actions, no policy: docs/q_lambda.md), or <module>:<name> for your own (docs/your_own.md)",
    )
    algorithm_kwargs: AlgorithmKwargs = flag(
        "",
        'arguments of the algorithm, as a mapping in JSON. Of impala and impact: policy_cost (1), entropy_end_share (1: the share of --lr_scheduler_steps after which --entropy_end_weight is reached), advantage_lambda (lambda of the advantages, if not that of the value targets). Of impact: surrogate_clip (0.3), ratio_bar (2), target_period, value_source ("target", or "policy"): docs/impact.md. Of q_lambda: trace ("sarsa", or "peng"), trace_lambda (0.9), epsilon (1), epsilon_end (0.01), epsilon_end_share (0.05): docs/q_lambda.md. Of your own: all fields of its Config',
    )
    gamma: Fraction01 = flag(0.99, "discount per agent step")
    rho_const: Bound = flag(
        1.0, "V-trace: upper bound of rho; it decides whose value function V-trace learns"
    )
    c_const: Bound = flag(
        1.0, "V-trace: upper bound of c; it decides how far corrections reach back in time"
    )
    pg_rho_const: Bound = flag(
        1.0, "V-trace: upper bound of the importance weight in the policy gradient"
    )
    burn_in_steps: CountOrAuto = flag(
        0,
        "with a recurrent model: the number of first rows of each replayed unroll that only bring the stored state up to date. They have no loss and get no gradient. Less than --r_f_steps",
    )
    vtrace_lambda: Fraction01 = flag(0.95, "V-trace: factor of c, like lambda in TD(lambda)")
    value_loss_weight: Weight = flag(0.5, "weight of the value loss, 0.5 (target - value)^2")
    entropy_loss_weight: Weight = flag(
        0.025,
        "weight of the entropy bonus; its effect depends on --advantage_normalisation",
    )
    entropy_end_weight: Weight | None = flag(
        None,
        "weight of the entropy bonus at the end of --lr_scheduler_steps; the weight changes linearly until then. none: it stays the same",
    )
    entropy_on: Literal["all", "online"] = flag(
        "all",
        "data with an entropy bonus: all, or new data only (online, as in LASER). The bonus is averaged over the whole batch: if a quarter of it is new, online has a quarter of the strength",
    )
    loss_reduction: LossReduction = flag(
        "mean",
        "sum of the losses over time and batch (as in IMPALA; it decides which --lr and which clip fit), or their mean over valid steps",
    )
    advantage_normalisation: AdvantageNormalisation = flag(
        "rms",
        "rms: divide advantages by their root mean square over the batch, separately for each game; none: only by PopArt's sigma, if it is on",
    )
    policy_cloning_loss_weight: Weight = flag(
        0.0,
        "CLEAR: weight of KL(behaviour || policy) on replayed data, which keeps the policy near the stored one; the paper has 0.01",
    )
    value_cloning_loss_weight: Weight = flag(
        0.0,
        "CLEAR: weight of the squared difference of the values on replayed data, which keeps them near the stored ones; the paper has 0.005",
    )
    kl_div_threshold: Bound = flag(0.3, "LASER: largest divergence of a trusted state, in nats")
    kl_mask_kind: TrustRegion | Literal["none"] = flag(
        "none",
        "LASER trust region: ignore states in which this divergence of behaviour policy and policy is above --kl_div_threshold; none: ignore none; implied: KL(pi || implied policy) as in the paper; kl_pi_mu: KL(pi || mu); kl_mu_pi: KL(mu || pi). pi is the policy, mu the behaviour policy",
    )


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
