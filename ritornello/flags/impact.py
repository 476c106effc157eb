"""The flags of the group `impact`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Bound, Count, Positive
from ritornello.flags.values import ValueSource


class ImpactFlags(FlagGroup, effect="learning"):
    """What only --algorithm=impact uses: its clipped ratio and its target network."""

    impact_clip: Positive = flag(
        0.3,
        "epsilon: a step that carries the ratio of policy and target further than this from 1 gains nothing",
    )
    impact_rho: Bound = flag(
        2.0,
        "rho: upper bound of behaviour policy / target policy within the ratio; it keeps the ratio small for actions that the target hardly ever takes",
    )
    impact_target_period: Annotated[Count | Literal["auto"], Field(union_mode="left_to_right")] = (
        flag(
            "auto",
            "updates between two copies of the policy to the target network; auto: N * K, until all unrolls of the circular buffer in --replay_parameters are new ones; 1 without such a buffer",
        )
    )
    impact_values: ValueSource = flag(
        "target",
        "whose values V-trace makes targets and advantages of: target, those of the target network; policy, those of the network that is trained",
    )
