"""The possible values of some settings, each list written once. This file does not import torch.

A flag has one of these types as its annotation. Code that gets the setting as plain text checks it
against the values of the type (`values_of`).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

RewardTransform = Literal["abs_one_sign", "abs_one_clamp", "soft_asymmetric"]
AdvantageNormalisation = Literal["none", "rms"]
LayerNorm = Literal["none", "features", "all"]
LossReduction = Literal["sum", "mean"]
TrustRegion = Literal["implied", "kl_pi_mu", "kl_mu_pi"]
ValueSource = Literal["target", "policy"]
Optimiser = Literal["adam", "rmsprop", "rmsprop_tf"]
Schedule = Literal["constant", "linear", "polynomial"]
Precision = Literal["bf16", "fp32"]

MAX_AGENTS = 64  # that train on one machine at the same time


def values_of(choice: Any) -> tuple[str, ...]:
    """Return the values of one of the types above, in their order."""
    return get_args(choice)
