"""The keys of a buffer's object in `--replay_parameters`, and how their values are read.

Here are the keys that all kinds of replay share. Each kind lists its own keys (`Sampler.keys` in
replay/sampler.py). Next to read: replay/registry.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any, NoReturn

from ritornello.core.command_line import number_in

RATIO_TOLERANCE = Fraction(1, 10**6)  # a person's 0.333333 three times is meant to be 1

ELITE_INSERTION = "elite_insertion"
DISTANCES = ("ln_norm", "cos_dist", "kl_div", "policy_kl")  # by their names in replay/distance.py


@dataclass(frozen=True)
class Key:
    """One key of a buffer's object."""

    values: str  # what is allowed, in words
    default: Any  # the value where the key is left out
    meaning: str  # for the documentation
    read: Callable[[Any], Any]  # returns the value; raises ValueError for what is not allowed
    default_text: str = ""  # the default in words, where its value says too little


def _refuse() -> NoReturn:
    raise ValueError  # parameters.py says of which key, and what is allowed


def _number(is_allowed: Callable[[float], bool]) -> Callable[[Any], float]:
    """Return a reader of the numbers for which `is_allowed` holds."""

    def read(value: Any) -> float:
        value = number_in(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not is_allowed(value):
            _refuse()
        return float(value)

    return read


positive = _number(lambda value: 0 < value < inf)  # reads a finite number above 0
at_least_one = _number(lambda value: 1 <= value < inf)  # reads a finite number of at least 1
share = _number(lambda value: 0 <= value <= 1)  # reads a number from 0 to 1
_share_above_0 = _number(lambda value: 0 < value <= 1)


def whole_number(value: Any) -> int:
    """Read a whole number of at least 1, also as 1e3."""
    value = number_in(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value % 1:
        _refuse()
    return int(value)


def boolean(value: Any) -> bool:
    """Read True or False, and nothing that merely resembles them."""
    return value if isinstance(value, bool) else _refuse()


def one_of(*names: str) -> Callable[[Any], str]:
    """Return a reader of one of these names."""
    return lambda value: str(value) if value in names else _refuse()


def _ratio(value: Any) -> Fraction:
    _share_above_0(value)
    # str() first: the 0.7 that was typed, not the nearest binary fraction to it.
    ratio = Fraction(str(value)).limit_denominator(RATIO_TOLERANCE.denominator)
    return ratio or _refuse()


def _whole(default: int, meaning: str) -> Key:
    return Key("whole number >= 1", default, meaning, whole_number)


def _switch(default: bool, meaning: str) -> Key:
    return Key("true, false", default, meaning, boolean)


# Of every buffer.
REQUIRED: dict[str, Key] = {
    "type": Key(
        "a kind",
        None,
        "Kind of buffer.",
        str,  # replay/parameters.py has checked it against the kinds
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
    "p": _whole(2, "Order of the norm of `ln_norm`."),
    "insert_strategy": Key(
        ELITE_INSERTION,
        None,
        "A full buffer drops the farthest of `elite_batch_size` random unrolls.",
        one_of(ELITE_INSERTION),
        "drop the oldest",
    ),
    "elite_batch_size": _whole(
        20, "Unrolls that elite insertion compares, and measures again per examination."
    ),
    "score_period": _whole(1, "Batches between two examinations of elite insertion."),
    "score_stride": _whole(
        1,
        "Score only every n-th row of a candidate, the last one included. The same in all buffers.",
    ),
    "reservoir": _switch(
        False, "A full buffer keeps every unroll of the past with equal probability (CLEAR)."
    ),
    "per_game": _switch(
        True,
        "With several games, each that is played has a part of its own. False: all share the "
        "buffer, which then also keeps what was played of a game before its share became 0.",
    ),
}
