"""What a buffer's object in `--replay_parameters` may hold: keys, and how their values are read.

Here are the keys that do not depend on who is drawn. Those that do are listed by the kinds
themselves (`Sampler.keys` in replay/sampler.py). Next to read: replay/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ritornello.replay.distance import NAMES as DISTANCES

RATIO_TOLERANCE = Fraction(1, 10**6)  # a person's 0.333333 three times is meant to be 1

ELITE_INSERTION = "elite_insertion"


@dataclass(frozen=True)
class Key:
    """One key of a buffer's object."""

    values: str  # what is allowed, in words
    default: Any  # the value where the key is left out
    meaning: str  # for the documentation
    read: Callable[[Any], Any]  # returns the value; raises ValueError for what is not allowed
    default_text: str = ""  # the default in words, where its value says too little


def whole_number(value: Any) -> int:
    """Read a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


def number(value: Any) -> float:
    """Read any number; also infinity and NaN, which most keys then refuse."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError
    return float(value)


def positive(value: Any) -> float:
    """Read a finite number above 0."""
    if not 0 < number(value) < float("inf"):
        raise ValueError
    return float(value)


def at_least_one(value: Any) -> float:
    """Read a finite number of at least 1."""
    if not 1 <= number(value) < float("inf"):
        raise ValueError
    return float(value)


def share(value: Any) -> float:
    """Read a number from 0 to 1."""
    if not 0 <= number(value) <= 1:
        raise ValueError
    return float(value)


def boolean(value: Any) -> bool:
    """Read True or False, and nothing that merely resembles them."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def one_of(*names: str) -> Callable[[Any], str]:
    """Return what reads one of these names."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return read


def _ratio(value: Any) -> Fraction:
    if not 0 < number(value) <= 1:
        raise ValueError
    # str() first: the 0.7 that was typed, not the nearest binary fraction to it.
    ratio = Fraction(str(value)).limit_denominator(RATIO_TOLERANCE.denominator)
    if not ratio:
        raise ValueError
    return ratio


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value if ":" in value else value.lower()  # the names of modules have capitals


# Of every buffer. Which types there are is known to replay/registry.py.
REQUIRED: dict[str, Key] = {
    "type": Key(
        "a kind",
        None,
        "Kind of buffer. `custom` is an older spelling: elite or attentive by its "
        "`sample_strategy`, standard without one.",
        _name,
        "required",
    ),
    "capacity": Key("whole number >= 1", None, "Unrolls held at most.", whole_number, "required"),
    "sample_ratio": Key(
        "number in (0, 1]",
        None,
        "Share of each batch. All shares sum to 1 (to within 0.000001).",
        _ratio,
        "required",
    ),
}

# Of every buffer that drops unrolls to make room, so not of those that set the pace: who is
# dropped, and how distances are measured.
OF_RINGS: dict[str, Key] = {
    "dist_function": Key(
        ", ".join(DISTANCES),
        "ln_norm",
        "What distance means. `policy_kl` is not for attentive.",
        one_of(*DISTANCES),
    ),
    "p": Key("whole number >= 1", 2, "Order of the norm of `ln_norm`.", whole_number),
    "insert_strategy": Key(
        ELITE_INSERTION,
        None,
        "A full buffer drops the farthest of `elite_batch_size` random unrolls.",
        one_of(ELITE_INSERTION),
        "drop the oldest",
    ),
    "elite_batch_size": Key(
        "whole number >= 1",
        20,
        "Unrolls that elite insertion compares, and measures again per examination.",
        whole_number,
    ),
    "score_period": Key(
        "whole number >= 1",
        1,
        "Batches between two examinations of elite insertion.",
        whole_number,
    ),
    "score_stride": Key(
        "whole number >= 1",
        1,
        "Score only every n-th row of a candidate, the last one included. The same in all buffers.",
        whole_number,
    ),
    "reservoir": Key(
        "true, false",
        False,
        "A full buffer keeps every unroll of the past with equal probability (CLEAR).",
        boolean,
    ),
    "per_game": Key(
        "true, false",
        True,
        "With several games, each that is played has a part of its own. False: all share the "
        "buffer, which then also keeps what was played of a game before its share became 0.",
        boolean,
    ),
}
