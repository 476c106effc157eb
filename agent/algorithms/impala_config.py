"""Everything that decides the loss of IMPALA, with the values that its paper and successors use.

The parts that all actor-critic losses share are in `ActorCriticConfig` (base.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ritornello.agent.algorithms.base import ActorCriticConfig
from ritornello.core.errors import ConfigError
from ritornello.flags.values import TrustRegion, values_of

TRUST_REGIONS = ("none", *values_of(TrustRegion))


@dataclass(frozen=True)
class VTraceConfig(ActorCriticConfig):
    """Settings of V-trace, for all algorithms that use it."""

    rho_bar: float = 1.0  # clip of importance ratios in the value targets
    c_bar: float = 1.0  # clip of importance ratios in the trace
    rho_pg_bar: float = 1.0  # clip of importance ratios in the policy gradient
    lambda_: float = 0.95  # 1: full V-trace, 0: one-step targets
    advantage_lambda: float | None = None  # of the advantages alone; None: lambda_ as well

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        super().__post_init__()
        for name in ("lambda_", "advantage_lambda"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}, expected in [0, 1].")
        self._check_positive("rho_bar", "c_bar", "rho_pg_bar")
        if self.c_bar > self.rho_bar:
            raise ConfigError(
                f"c_bar is {self.c_bar}, expected at most rho_bar ({self.rho_bar}), as V-trace "
                "assumes. Lower c_bar or raise rho_bar."
            )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected above 0.")


@dataclass(frozen=True)
class ImpalaConfig(VTraceConfig):
    """Everything that decides the loss. Costs are per step; see `loss_reduction`."""

    policy_cloning_cost: float = 0.0  # CLEAR: 0.01
    value_cloning_cost: float = 0.0  # CLEAR: 0.005
    trust_region: str = "none"  # one of TRUST_REGIONS; LASER: implied
    trust_threshold: float = 0.3  # b in nats: states at or above it are dropped

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        super().__post_init__()
        self._check_choice("trust_region", TRUST_REGIONS)
        self._check_positive("trust_threshold")
