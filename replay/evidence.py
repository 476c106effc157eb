"""`Evidence`: what the present model makes of unrolls, by which some are drawn or dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ritornello.core.spec import ActionSpec

Floats = NDArray[Any]  # float32 or float64


@dataclass(frozen=True)
class Evidence:
    """What is known of C candidates at their R scored rows, now (under pi) and then (under mu)."""

    features_now: Floats  # [C, R, F] float32
    params_now: Floats  # [C, R, P] float32, parameters of pi: logits, where one of A is chosen
    features_then: Floats | None  # [C, R, F] as stored; None if the schema leaves features out
    params_then: Floats  # [C, R, P] float32, parameters of mu
    queries: Floats | None  # [Q, F] float32, features of the present states; None if not needed
    actions: ActionSpec | None = None  # what an action is; None: one choice
