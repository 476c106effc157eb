"""The keys of `--replay_parameters`: the one table of what a buffer's object may hold.

docs/replay.md shows the table. Next to read: replay/kinds.py, which builds buffers from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from replay.distance import NAMES as DISTANCES
from replay.samplers import STRATEGIES

RATIO_TOLERANCE = Fraction(1, 10**6)  # a person's 0.333333 three times is meant to be 1

QUEUE, STANDARD, ATTENTIVE, ELITE, CUSTOM = "queue", "standard", "attentive", "elite", "custom"
TYPES = (QUEUE, STANDARD, ATTENTIVE, ELITE, CUSTOM)
SCORING = (ATTENTIVE, ELITE, CUSTOM)
RINGS = (STANDARD, *SCORING)

SAMPLE_STRATEGY_TYPES = {"elite_sampling": ELITE, "attentive_sampling": ATTENTIVE}
ELITE_INSERTION = "elite_insertion"


@dataclass(frozen=True)
class Key:
    """One key of a buffer's object."""

    types: tuple[str, ...]  # that know it
    values: str  # what is allowed, in words
    default: str
    meaning: str
    read: Callable[[Any], Any]  # raises ValueError for what is not allowed


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    return float(value)


def _positive(value: Any) -> float:
    if not 0 < _number(value) < float("inf"):
        raise ValueError
    return float(value)


def _at_least_one(value: Any) -> float:
    if not 1 <= _number(value) < float("inf"):
        raise ValueError
    return float(value)


def _ratio(value: Any) -> Fraction:
    if not 0 < _number(value) <= 1:
        raise ValueError
    # str() first: the 0.7 that was typed, not the nearest binary fraction to it.
    ratio = Fraction(str(value)).limit_denominator(RATIO_TOLERANCE.denominator)
    if not ratio:
        raise ValueError
    return ratio


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _strategy(value: Any) -> int:
    if isinstance(value, str) and value.startswith("strategy"):
        value = int(value.removeprefix("strategy"))
    if isinstance(value, bool) or value not in STRATEGIES:
        raise ValueError
    return int(value)


def _one_of(*names: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return read


KEYS: dict[str, Key] = {
    "type": Key(
        TYPES,
        "queue, standard, attentive, elite, custom",
        "required",
        "Kind of buffer. `custom` is an older spelling: elite or attentive by its "
        "`sample_strategy`, standard without one.",
        lambda value: _one_of(*TYPES)(value.lower() if isinstance(value, str) else value),
    ),
    "capacity": Key(TYPES, "whole number >= 1", "required", "Unrolls held at most.", _whole),
    "sample_ratio": Key(
        TYPES,
        "number in (0, 1]",
        "required",
        "Share of each batch. All shares sum to 1 (to within 0.000001).",
        _ratio,
    ),
    "sample_strategy": Key(
        SCORING,
        "elite_sampling, attentive_sampling",
        "by type; custom: uniform",
        "How candidates are ranked. Only `custom` needs it.",
        _one_of(*SAMPLE_STRATEGY_TYPES),
    ),
    "lambda_batch_multiplier": Key(
        SCORING,
        "number >= 1",
        "6; custom: 1",
        "λ₀, candidates per draw at the start of training. With 1 the draw is uniform.",
        _at_least_one,
    ),
    "alfa_annealing_factor": Key(
        SCORING,
        "number > 0",
        "1",
        "Share of the annealing length after which λ has fallen to 1.",
        _positive,
    ),
    "elite_sampling_strategy": Key(
        SCORING,
        "strategy1 … strategy4, or 1 … 4",
        "strategy3; attentive: strategy1",
        "How draws are chosen from the ranked candidates.",
        _strategy,
    ),
    "dist_function": Key(
        RINGS,
        ", ".join(DISTANCES),
        "ln_norm",
        "What distance means. `policy_kl` is not for attentive.",
        _one_of(*DISTANCES),
    ),
    "p": Key(RINGS, "whole number >= 1", "2", "Order of the norm of `ln_norm`.", _whole),
    "insert_strategy": Key(
        RINGS,
        ELITE_INSERTION,
        "drop the oldest",
        "A full buffer drops the farthest of `elite_batch_size` random unrolls.",
        _one_of(ELITE_INSERTION),
    ),
    "elite_batch_size": Key(
        RINGS,
        "whole number >= 1",
        "20",
        "Unrolls that elite insertion compares, and measures again per examination.",
        _whole,
    ),
    "score_period": Key(
        RINGS,
        "whole number >= 1",
        "1",
        "Batches between two examinations of elite insertion.",
        _whole,
    ),
    "score_stride": Key(
        RINGS,
        "whole number >= 1",
        "1",
        "Score only every n-th row of a candidate, the last one included. The same in all buffers.",
        _whole,
    ),
    "reservoir": Key(
        RINGS,
        "true, false",
        "false",
        "A full buffer keeps every unroll of the past with equal probability (CLEAR).",
        _boolean,
    ),
}
REQUIRED = tuple(name for name, key in KEYS.items() if key.default == "required")


def parameter_table() -> str:
    """Return `KEYS` as a Markdown table, for docs/replay.md."""
    lines = ["| key | for | values | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for name, key in KEYS.items():
        types = "all" if key.types == TYPES else ", ".join(key.types)
        lines.append(f"| `{name}` | {types} | {key.values} | {key.default} | {key.meaning} |")
    return "\n".join(lines)
