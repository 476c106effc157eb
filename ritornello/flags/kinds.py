"""The kinds of values that flags have: what is accepted, how it is read, and its bounds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ritornello.core.command_line import whole_number
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.flags.parts import ALGORITHMS, checked_model, checked_sink, find_replay_kinds
from ritornello.replay.parameters import normal_form, parse_replay_parameters
from ritornello.wrappers.env_kwargs import kwargs_text
from ritornello.wrappers.games import expand_games


def _resolution(value: Any) -> Any:
    """Accept 84,84 and [84, 84], as height,width in pixels."""
    parts = value.strip("[]() ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    parts = [part.strip() if isinstance(part, str) else part for part in parts]
    if len(parts) != 2 or not all(map(_is_number, parts)):
        raise ValueError("expected <height>,<width> in pixels, such as 84,84")
    return parts


def _whole(value: Any) -> Any:
    """Accept 1e6 for a count; pydantic checks other values."""
    with suppress(ValueError):
        return whole_number(value) if isinstance(value, str) else value
    return value


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or text that says one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _games(value: Any) -> Any:
    """Replace names of sets of games by their ids; pydantic checks what is not text."""
    return _told(expand_games)(value) if isinstance(value, str) else value


def _shares(value: Any) -> Any:
    """Accept 2,1,1 and [2, 1, 1], and one number alone."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str):
        return [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    return value


def _some_played(shares: tuple[float, ...]) -> tuple[float, ...]:
    if shares and not any(shares):
        raise ValueError("expected a positive number for one game at least, got zeros alone")
    return shares


def _share(text: str) -> str:
    """Check `<which, from 0>/<of how many>`."""
    number, slash, count = text.partition("/")
    is_share = slash and number.isdecimal() and count.isdecimal() and len(count) < 3
    if not is_share or not int(number) < int(count) <= MAX_AGENTS:
        raise ValueError(f"expected <which>/<of how many>, from 0/1 to 63/{MAX_AGENTS}")
    return text


def _replay(value: Any) -> Any:
    """Validate the list of buffers and bring it to its normal form (JSON types only)."""
    find_replay_kinds(value)
    return normal_form(parse_replay_parameters(value))


def _told(check: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a check, or a normal form, whose ConfigError pydantic reports with the flag's name."""

    def checked(value: Any) -> str:
        try:
            return check(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    return checked


def _in_range(low: float, high: float) -> AfterValidator:
    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"must be from {low:g} to {high:g}")
        return value

    return AfterValidator(check)


def _printable(text: str) -> str:
    """Refuse characters that a path, id or name never has, or a terminal or file cannot take."""
    if not text.isprintable() or len(text) > MAX_TEXT_LENGTH:
        raise ValueError(
            f"must be one line of printable text of at most {MAX_TEXT_LENGTH:,} characters, got "
            f"{shown_text(text)}"
        )
    return text


def _run_name(text: str) -> str:
    """Refuse a text that is not a plain name of a folder on every system."""
    if problem := wrong_run_name(text):
        raise ValueError(problem)
    return text


def wrong_run_name(text: str) -> str:
    """Return what the name of a run folder must be, or "" if `text` is one."""
    if RUN_NAME.fullmatch(text):
        return ""
    return (
        "must be a plain name of at most 100 letters, digits and . _ + -, beginning with a "
        "letter or a digit"
    )


def _path(text: str) -> str:
    """Refuse a path that no file system would take, before anything asks one; expand `~`."""
    if len(text) > MAX_PATH_LENGTH or any(len(part.encode()) > 255 for part in text.split("/")):
        raise ValueError(f"must be a path, of names of at most 255 bytes, got {shown_text(text)}")
    return os.path.expanduser(text)  # bash leaves the ~ of --name=~/folder as it is


MAX_AGENTS = 64  # that train on one machine at the same time
# Far beyond all that makes sense, and near enough that sums and products of them stay exact.
MAX_COUNT = 10**15
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,98}[A-Za-z0-9_+-]|[A-Za-z0-9]")
MAX_TEXT_LENGTH = 100_000  # all ids of Gymnasium, with commas
MAX_PATH_LENGTH = 4_000  # Linux takes 4,096 bytes

# One of a few words. Code that gets such a setting as plain text checks it by its `Literal`.
RewardTransform = Literal["abs_one_sign", "abs_one_clamp", "soft_asymmetric", "log"]
AdvantageNormalisation = Literal["none", "rms"]
LayerNorm = Literal["none", "features", "all"]
LossReduction = Literal["sum", "mean"]
TrustRegion = Literal["implied", "kl_pi_mu", "kl_mu_pi"]
ValueSource = Literal["target", "policy"]
Optimiser = Literal["adam", "rmsprop", "rmsprop_tf"]
Schedule = Literal["constant", "linear", "polynomial"]
Precision = Literal["bf16", "fp32"]

# The upper bound is no `le`, because that would take the place of a flag's own.
Count = Annotated[int, Field(ge=1), _in_range(1, MAX_COUNT), BeforeValidator(_whole)]
CountOrAuto = Annotated[int, Field(ge=0), _in_range(0, MAX_COUNT), BeforeValidator(_whole)]
BoolOrAuto = Annotated[bool | Literal["auto"], Field(union_mode="left_to_right")]
PixelKind = Annotated[bool | Literal["each", "rare"], Field(union_mode="left_to_right")]
Fraction01 = Annotated[float, _in_range(0.0, 1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
# Weights are float32. Beyond these a gradient that is finite and clipped to anything below 1e8 can
# make infinite ones: rate times gradient overflows, and an epsilon that rounds to 0 divides 0 by 0.
Rate = Annotated[float, Field(gt=0.0), _in_range(0.0, 1e30)]
Epsilon = Annotated[float, _in_range(1e-30, 1e30)]
Bound = Annotated[float, Field(gt=0.0)]  # may be inf: nothing is clipped
Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, AfterValidator(_printable)]
RunName = Annotated[str, AfterValidator(_run_name)]
PathText = Annotated[Text, AfterValidator(_path)]
# Brought to the form by which every process finds the part.
ModelName = Annotated[Text, AfterValidator(_told(checked_model))]
SinkName = Annotated[Text, AfterValidator(_told(checked_sink))]
AlgorithmName = Annotated[Text, AfterValidator(_told(ALGORITHMS.full_name))]
Pixels = Annotated[int, Field(ge=1, le=4096)]
Resolution = Annotated[tuple[Pixels, Pixels], BeforeValidator(_resolution)]
EnvIds = Annotated[Text, BeforeValidator(_games)]
EnvKwargs = Annotated[Text, BeforeValidator(_told(kwargs_text))]
AlgorithmKwargs = Annotated[
    Text, BeforeValidator(_told(lambda value: kwargs_text(value, "algorithm_kwargs")))
]
Shares = Annotated[tuple[Weight, ...], BeforeValidator(_shares), AfterValidator(_some_played)]
Decays = Annotated[tuple[Decay, ...], BeforeValidator(_shares), Field(max_length=2)]
ScheduleLength = Annotated[
    CountOrAuto | Annotated[str, Field(pattern=r"^[1-9][0-9]{0,14}u$")],
    Field(union_mode="left_to_right"),
]
MachineShare = Annotated[str, AfterValidator(_share)]
ReplayParameters = Annotated[list[dict[str, Any]], BeforeValidator(_replay)]
