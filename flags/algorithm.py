"""The flags of the group `algorithm`."""

from __future__ import annotations

from typing import Literal

from flags.group import FlagGroup, flag
from flags.kinds import (
    AlgorithmKwargs,
    AlgorithmName,
    Bound,
    CountOrAuto,
    Fraction01,
    Weight,
)
from flags.values import AdvantageNormalisation, LossReduction, TrustRegion


class AlgorithmFlags(FlagGroup):
    """V-trace, its losses, and what corrects for old data."""

    algorithm: AlgorithmName = flag(
        "impala",
        "what makes a loss of a batch: impala, V-trace actor-critic, or <module>:<name> for one of your own (docs/your_own.md)",
    )
    algorithm_kwargs: AlgorithmKwargs = flag(
        "",
        'what an algorithm of your own has no flag for, a mapping in JSON, e.g. {"clip": 0.2}',
    )
    gamma: Fraction01 = flag(0.99, "discount per agent step")
    rho_const: Bound = flag(1.0, "V-trace: clip of rho, which decides what the value converges to")
    c_const: Bound = flag(1.0, "V-trace: clip of c, which decides how far corrections travel back")
    pg_rho_const: Bound = flag(1.0, "V-trace: clip of the importance weight in the policy gradient")
    burn_in_steps: CountOrAuto = flag(
        0,
        "with a recurrent model: first rows of replayed unrolls that only bring the stored state up to date; no loss there, no gradient into them; below --r_f_steps",
    )
    vtrace_lambda: Fraction01 = flag(0.95, "V-trace: factor of c, as lambda in TD(lambda)")
    policy_gradient_loss_weight: Weight = flag(1.0, "weight of the policy-gradient loss")
    value_loss_weight: Weight = flag(0.5, "weight of the value loss, 0.5 (target - value)^2")
    entropy_loss_weight: Weight = flag(
        0.025,
        "weight of the entropy bonus, beside advantages as --advantage_normalisation leaves them",
    )
    entropy_end_weight: Weight | None = flag(
        None,
        "weight of the entropy bonus at the end of --lr_scheduler_steps, reached in a straight line; none: it stays",
    )
    entropy_on: Literal["all", "online"] = flag(
        "all", "entropy bonus on all data, or on new data only (as LASER)"
    )
    loss_reduction: LossReduction = flag(
        "mean",
        "sum over time and batch (as IMPALA; sets the scale of lr and clip), or mean over valid steps",
    )
    advantage_normalisation: AdvantageNormalisation = flag(
        "rms",
        "divide advantages by their root mean square over the batch, those of each game by its own",
    )
    use_policy_cloning_loss: bool = flag(
        False, "CLEAR: keep the policy near the stored one, on replayed data"
    )
    policy_cloning_loss_weight: Weight = flag(0.01, "CLEAR: weight of KL(behaviour || policy)")
    use_value_cloning_loss: bool = flag(
        False, "CLEAR: keep the value near the stored one, on replayed data"
    )
    value_cloning_loss_weight: Weight = flag(0.005, "CLEAR: weight of the squared difference")
    use_kl_mask: bool = flag(
        False,
        "LASER trust region: leave out states where behaviour and policy differ too much",
    )
    kl_div_threshold: Bound = flag(0.3, "LASER: largest divergence of a trusted state, nats")
    kl_mask_kind: TrustRegion = flag(
        "implied",
        "LASER: KL(pi || implied policy) as the paper, KL(pi || mu), or KL(mu || pi)",
    )
