"""The flags of the group `algorithm`."""

from __future__ import annotations

from typing import Literal

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import (
    AlgorithmKwargs,
    AlgorithmName,
    Bound,
    CountOrAuto,
    Fraction01,
    Share,
    Weight,
)
from ritornello.flags.values import AdvantageNormalisation, LossReduction, TrustRegion


class AlgorithmFlags(FlagGroup, effect="learning"):
    """V-trace, its losses, and what corrects for old data."""

    algorithm: AlgorithmName = flag(
        "impala",
        "algorithm, which computes the loss of a batch: impala (V-trace actor-critic), impact (clipped steps for data that is used several times; see the group impact), or <module>:<name> for your own (docs/your_own.md)",
    )
    algorithm_kwargs: AlgorithmKwargs = flag(
        "",
        'arguments for an algorithm of your own, as a mapping in JSON, e.g. {"clip": 0.2}',
    )
    gamma: Fraction01 = flag(0.99, "discount per agent step")
    rho_const: Bound = flag(
        1.0, "V-trace: upper bound of rho; it decides the policy whose value is learned"
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
    advantage_lambda: Fraction01 | None = flag(
        None,
        "V-trace: lambda of the advantages, if it is to differ from that of the value targets; none: --vtrace_lambda",
    )
    policy_gradient_loss_weight: Weight = flag(1.0, "weight of the policy-gradient loss")
    value_loss_weight: Weight = flag(0.5, "weight of the value loss, 0.5 (target - value)^2")
    entropy_loss_weight: Weight = flag(
        0.025,
        "weight of the entropy bonus; its effect depends on --advantage_normalisation",
    )
    entropy_end_weight: Weight | None = flag(
        None,
        "weight of the entropy bonus at the end of --lr_scheduler_steps, or of --entropy_end_share of them; the weight changes linearly until then. none: it stays the same",
    )
    entropy_end_share: Share = flag(
        1.0,
        "share of --lr_scheduler_steps after which the weight of the entropy bonus is --entropy_end_weight, and stays there",
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
        "rms: divide advantages by their root mean square over the batch, separately for each game; none: leave them as they are",
    )
    use_policy_cloning_loss: bool = flag(
        False, "CLEAR: a loss on replayed data that keeps the policy near the stored one"
    )
    policy_cloning_loss_weight: Weight = flag(0.01, "CLEAR: weight of KL(behaviour || policy)")
    use_value_cloning_loss: bool = flag(
        False, "CLEAR: a loss on replayed data that keeps the value near the stored one"
    )
    value_cloning_loss_weight: Weight = flag(
        0.005, "CLEAR: weight of the squared difference of the values"
    )
    use_kl_mask: bool = flag(
        False,
        "LASER trust region: ignore states in which behaviour policy and policy differ too much",
    )
    kl_div_threshold: Bound = flag(0.3, "LASER: largest divergence of a trusted state, in nats")
    kl_mask_kind: TrustRegion = flag(
        "implied",
        "LASER: the divergence that is compared with --kl_div_threshold; implied: KL(pi || implied policy) as in the paper; kl_pi_mu: KL(pi || mu); kl_mu_pi: KL(mu || pi). pi is the policy, mu the behaviour policy",
    )
