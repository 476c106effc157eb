"""Figures of the documents and the files that they come from; checked by tests/test_figures.py.

A claim is a sentence of a document in which each figure is a `{}`, with what the files say in the
same order. A figure is right if what the file says, rounded to as many decimals, is what the
document shows. White space in a sentence stands for any, also for a line end.
"""

from __future__ import annotations

from tests.figures import agents, defaults, forgetting, gpu, levers, others, replay, speed
from tests.figures.files import Claim

CLAIMS = [
    *agents.CLAIMS,
    *defaults.CLAIMS,
    *replay.CLAIMS,
    *levers.CLAIMS,
    *speed.CLAIMS,
    *others.CLAIMS,
    *forgetting.CLAIMS,
    *gpu.CLAIMS,
]

__all__ = ["CLAIMS", "Claim"]
