"""Everything that decides the loss of IMPACT.

The parts that all actor-critic losses share are in `ActorCriticConfig` (base.py), those of V-trace
in `VTraceConfig` (impala_config.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ritornello.agent.algorithms.impala_config import VTraceConfig
from ritornello.core.errors import ConfigError
from ritornello.flags.values import ValueSource, values_of


@dataclass(frozen=True)
class ImpactConfig(VTraceConfig):
    """Everything that decides the loss. Costs are per step; see `loss_reduction`."""

    surrogate_clip: float = 0.3  # epsilon: how far the ratio may be from 1; 0.2 to 0.4 published
    ratio_bar: float = 2.0  # rho: pi_worker / pi_target is clipped there, within the ratio
    target_period: int = 1  # updates between two copies to the target network; N * K
    value_source: str = "target"  # whose values make targets and advantages: target | policy

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        super().__post_init__()
        self._check_choice("value_source", values_of(ValueSource))
        self._check_positive("surrogate_clip", "ratio_bar")
        if not self.target_period >= 1:
            raise ConfigError(f"target_period is {self.target_period}, expected at least 1.")
