"""`--replay_parameters`: text -> configs -> buffers.

The parameter is a list with one object per buffer, in JSON or as a flow of YAML, or its short form:

    [{"type": "queue", "capacity": 16, "sample_ratio": 0.5},
     {"type": "elite", "capacity": 1000, "sample_ratio": 0.5, "dist_function": "ln_norm"}]
    queue:16:0.5,elite:1000:0.5:dist_function=ln_norm

What an object may hold follows from the kinds (replay/registry.py). In a run of several games
`split_by_task` (replay/several_games.py) divides buffers into one per game.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.nearest_names import american, did_you_mean
from ritornello.core.plain_data import check_plain, parse_json, shown
from ritornello.core.plain_yaml import parse_yaml
from ritornello.replay.buffer import Buffer
from ritornello.replay.keys import ELITE_INSERTION, OF_RINGS, RATIO_TOLERANCE, REQUIRED
from ritornello.replay.registry import (
    KINDS,
    all_keys,
    is_own,
    keys_of,
    sampler_of,
)
from ritornello.replay.removers import Oldest, Remover, Reservoir
from ritornello.replay.sampler import Sampler
from ritornello.replay.scoring import common_stride

SamplerClass: TypeAlias = type[Sampler]  # in BufferConfig, `type` is a field

MAX_BUFFERS = 100
MAX_TEXT = 100_000  # characters of the parameter
LEAST_FILL_IN, FIRST_UNROLLS, LONGEST_FILL_IN = 0.05, 3, 0.1  # see `automatic_fill_in`


@dataclass(frozen=True)
class BufferConfig:
    """One buffer, checked and complete. Keys that do not matter to its type have their defaults."""

    type: str  # a kind, see `sampler_of`
    capacity: int  # unrolls
    sample_ratio: Fraction  # share of each batch
    values: Mapping[str, Any]  # values of all other keys of its kind (`keys_of`)
    task: int | None = None  # the only game whose unrolls it takes; None: all

    @property
    def sampler(self) -> SamplerClass:
        """The class of its sampler."""
        return sampler_of(self.type)

    @property
    def sets_the_pace(self) -> bool:
        """Whether it makes the workers wait while it is full, instead of dropping an unroll."""
        return self.sampler.sets_the_pace()

    @property
    def drops_oldest(self) -> bool:
        """Whether a full one makes room by age, so that it holds the newest unrolls."""
        return not self.sampler.takes_turns and not (
            self.values.get("reservoir") or self.values.get("insert_strategy")
        )


def parse_replay_parameters(value: str | Sequence[Mapping[str, Any]]) -> tuple[BufferConfig, ...]:
    """Read and check `--replay_parameters`, given as the text of the flag or as the list itself.

    Returns:
      A config per buffer; the ratios are exact, and their sum is 1.

    Raises:
      ConfigError: at the first thing that is wrong; the message says where and what is possible.
    """
    objects = _literal(value) if isinstance(value, str) else value
    if isinstance(objects, Mapping) or not isinstance(objects, Sequence) or not objects:
        raise ConfigError(
            f"replay_parameters is {shown(objects)}, expected a list with an object for each "
            'buffer, e.g. [{"type": "queue", "capacity": 16, "sample_ratio": 1}].'
        )
    if len(objects) > MAX_BUFFERS:
        raise ConfigError(
            f"replay_parameters lists {len(objects):,} buffers, expected at most {MAX_BUFFERS}."
        )
    given = [_buffer_config(position, one) for position, one in enumerate(objects, start=1)]
    total = Fraction(sum(config.sample_ratio for config in given))
    if abs(total - 1) > RATIO_TOLERANCE:
        shares = ", ".join(f"{config.type} {float(config.sample_ratio):g}" for config in given)
        raise ConfigError(
            f"sample_ratio of replay buffers sums to {float(total):g}, must be 1: {shares}."
        )
    configs = tuple(replace(config, sample_ratio=config.sample_ratio / total) for config in given)
    common_stride(make_buffers(configs, fill_in_factor=0))  # building them checks the rest
    return configs


def types_of_modules(value: Any) -> list[str]:
    """Return the types in `--replay_parameters` that name a module: `module:name`.

    A `value` that cannot be parsed names none.
    """
    try:
        objects = _literal(value) if isinstance(value, str) else value
    except ConfigError:
        return []
    if isinstance(objects, Mapping) or not isinstance(objects, Sequence):
        return []
    types = [given.get("type") for given in objects if isinstance(given, Mapping)]
    return [kind for kind in types if isinstance(kind, str) and ":" in kind]


def most_unrolls_held(
    configs: Sequence[BufferConfig], discarding_strategy: str, batch_size: int
) -> int:
    """Return how many different unrolls all buffers together can hold.

    `configs` are the result of `parse_replay_parameters` or `split_by_task`; `discarding_strategy`
    is what a full queue does with a new unroll.

    An unroll that lies in several buffers is stored once. Buffers that drop their oldest hold the
    newest unrolls, so those of the smaller one are among those of the larger one; other buffers may
    share nothing. Two batches of `batch_size` unrolls are added, because the unrolls of a batch in
    the making are held even if buffers have dropped them.
    """
    newest: dict[int | None, int] = {}  # by game: they share no unroll
    others = 0
    for config in configs:
        skips = config.sampler.consumes and discarding_strategy in ("keep_oldest", "alternating")
        if config.drops_oldest and not skips:
            newest[config.task] = max(config.capacity, newest.get(config.task, 0))
        else:
            others += config.capacity
    return sum(newest.values()) + others + 2 * batch_size


def renewal_updates(configs: Sequence[BufferConfig], batch_size: int) -> int:
    """Return after how many updates all unrolls of the circular buffer are new; 1 without one.

    This is N * K, with N batches that take turns and K uses of each unroll.
    """
    periods = [
        config.capacity / _new_per_update(config, batch_size)
        for config in configs
        if config.sampler.takes_turns
    ]
    return max(1, ceil(max(periods, default=1)))


def new_unrolls_per_update(configs: Sequence[BufferConfig], batch_size: int) -> float:
    """Return the mean number of new unrolls per update; 0 if no buffer sets the pace.

    If several buffers set the pace, this is the need of the one that needs most.
    """
    setters = [config for config in configs if config.sets_the_pace]
    return float(max((_new_per_update(config, batch_size) for config in setters), default=0))


def _new_per_update(config: BufferConfig, batch_size: int) -> Fraction:
    uses = config.values["uses"] if config.sampler.takes_turns else 1
    return config.sample_ratio * batch_size / uses


def normal_form(configs: Sequence[BufferConfig]) -> list[dict[str, Any]]:
    """Return the configs as plain JSON types, with every key that matters; parses to the same."""
    return [
        {
            "type": config.type,
            "capacity": config.capacity,
            "sample_ratio": float(config.sample_ratio),
            **{name: config.values[name] for name in _keys_in_force(config.sampler, config.values)},
        }
        for config in configs
    ]


def automatic_fill_in(configs: Sequence[BufferConfig], *, environments: int, unrolls: int) -> float:
    """Return the share of its capacity that each buffer must hold before anything is drawn from it.

    This is LEAST_FILL_IN, or more, until the largest buffer holds FIRST_UNROLLS unrolls of each of
    the `environments`, but at most LONGEST_FILL_IN of the `unrolls` of the whole run. The very
    first unrolls all show the same moment of the game, and no unroll holds the states from which
    their values are bootstrapped. Nothing corrects the values of these states, so that values which
    are learned from the first unrolls alone diverge (docs/results.md, "Many environments"). Of a
    circular buffer only a full one is drawn from.
    """
    largest = max((config.capacity for config in configs if not config.sets_the_pace), default=0)
    if not largest:
        return 1.0 if any(config.sampler.takes_turns for config in configs) else LEAST_FILL_IN
    needed = min(FIRST_UNROLLS * environments, int(LONGEST_FILL_IN * unrolls))
    return max(LEAST_FILL_IN, min(1.0, needed / largest))


def make_buffers(configs: Sequence[BufferConfig], fill_in_factor: float) -> list[Buffer]:
    """Build the buffers, in order.

    `fill_in_factor` is the part of its capacity that a buffer must hold before anything is drawn
    from it. A queue must hold one unroll, a circular buffer must be full.
    """
    named = zip(buffer_names(configs), configs, strict=True)
    return [_make_buffer(name, config, fill_in_factor) for name, config in named]


def buffer_names(configs: Sequence[BufferConfig]) -> list[str]:
    """Return the names of the buffers, in order.

    A name is the type without its module, numbered from the second buffer of its kind on; the
    number of the game follows if the buffer is for one game.
    """
    seen: Counter[tuple[str, int | None]] = Counter()
    names = []
    for config in configs:
        kind = config.type.rpartition(":")[2]
        seen[kind, config.task] += 1
        count = seen[kind, config.task]
        kind = kind if count == 1 else f"{kind}_{count}"
        names.append(kind if config.task is None else f"{kind}_{config.task}")
    return names


# type:capacity:sample_ratio, and then :key=value for each further key.
_SHORT = re.compile(r"(?:[A-Za-z_][\w.]*:)?[A-Za-z_]\w*:\d[\w.+]*:[\d.][\w.+-]*(?::\w+=[^:,]+)*")


def _literal(text: str) -> Any:
    """Return the list that a text means: JSON, a flow of YAML, or the short form."""
    if len(text) > MAX_TEXT:
        raise ConfigError(f"replay_parameters has {len(text):,} characters: {shown(text)}.")
    parts = [part.strip() for part in text.split(",")]
    if all(map(_SHORT.fullmatch, parts)):
        return [_from_short(part) for part in parts]
    try:
        return parse_json(text, "replay_parameters")
    except ConfigError:
        pass  # YAML takes more, and says what is wrong
    try:
        found = parse_yaml(text, "replay_parameters")
    except ConfigError as error:
        raise ConfigError(f"{error} {_FORMS}") from error
    if isinstance(found, str):
        raise ConfigError(f"replay_parameters is {shown(text)}. {_FORMS}")
    return found


_FORMS = (
    "Write queue:16:0.5,elite:2000:0.5 (type:capacity:sample_ratio, then :key=value), or a list "
    "such as [{type: queue, capacity: 16, sample_ratio: 1}], in single quotes on a command line. "
    "A file with flags is given as --flags_file."
)


def _from_short(part: str) -> dict[str, Any]:
    """Return the object of one buffer in the short form, e.g. elite:2000:0.5:score_stride=4."""
    words = part.split(":")
    more = [word.split("=", 1) for word in words if "=" in word]
    *kind, capacity, ratio = words[: len(words) - len(more)]
    pairs = [("type", ":".join(kind)), ("capacity", capacity), ("sample_ratio", ratio)]
    pairs += [(key, parse_yaml(text, f"{key} of replay_parameters")) for key, text in more]
    given: dict[str, Any] = {}
    for key, value in pairs:
        if key in given:
            raise ConfigError(f"replay_parameters has {shown(part)}, which gives {key!r} twice.")
        given[key] = value
    return given


def _buffer_config(position: int, given: Any) -> BufferConfig:
    """Return the config of one object; its ratio is as given, not yet divided by the sum."""
    where = f"replay buffer {position}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {shown(given)}, expected an object with a type.")
    check_plain(dict(given), where)
    # The type before all: which keys there are depends on the kinds that are registered.
    kind = _type(where, given["type"]) if "type" in given else ""
    keys = keys_of(kind) if kind else REQUIRED
    for name in (name for name in given if name not in keys):
        known = all_keys()
        if name not in known:
            hint = did_you_mean(str(name), keys if kind else known)
            hint = hint or f"known are {', '.join(known)}."
            raise ConfigError(f"{where} has an unknown key {shown(name)}: {hint}")
    if missing := [name for name in REQUIRED if name not in given]:
        raise ConfigError(f"{where} lacks {', '.join(missing)}: {shown(dict(given))}.")
    fields: dict[str, Any] = {}
    for name, value in {**given, "type": kind}.items():
        if name not in keys:
            raise ConfigError(
                f"{where} is of type {kind}, which has no {name}. Its keys are {', '.join(keys)}."
            )
        try:
            fields[name] = keys[name].read(value)
        except Exception as error:  # a kind of one's own has readers of its own
            failed = "" if isinstance(error, ValueError) else f" Its reader raised {error!r:.300}."
            raise ConfigError(
                f"{name} of {where} is {shown(value)}, expected {keys[name].values}.{failed}"
            ) from error
    if fields.get("insert_strategy") and fields.get("reservoir"):
        raise ConfigError(f"{where} has both insert_strategy and reservoir; it can drop by one.")
    return BufferConfig(kind, fields["capacity"], fields["sample_ratio"], _values(kind, fields))


def _type(where: str, value: Any) -> str:
    if isinstance(value, str) and is_own(value):
        return value
    names = {american(name): name for name in KINDS}
    name = american(value.lower()) if isinstance(value, str) else ""
    if name not in names:
        raise ConfigError(
            f"type of {where} is {shown(value)}, expected {', '.join(KINDS)}, or "
            "<module>:<name> for a kind of your own (docs/replay.md). "
            f"{did_you_mean(name, names)}".rstrip()
        )
    return names[name]


def _values(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each key of a kind, so that equal buffers have equal configs.

    A key that does not matter has its default.
    """
    sampler = sampler_of(kind)
    keys = {**sampler.keys, **({} if sampler.sets_the_pace() else OF_RINGS)}
    values = {name: fields.get(name, key.default) for name, key in keys.items()}
    in_force = _keys_in_force(sampler, values)
    return {name: values[name] if name in in_force else keys[name].default for name in keys}


def _keys_in_force(sampler: SamplerClass, values: Mapping[str, Any]) -> list[str]:
    """Return the keys that matter, in the order of their table."""
    if sampler.sets_the_pace():
        return list(values)
    drops_farthest = values["insert_strategy"] is not None
    compares = sampler.scores or drops_farthest
    matters = {
        "dist_function": compares,
        "p": compares and values["dist_function"] == "ln_norm",
        "insert_strategy": drops_farthest,
        "elite_batch_size": drops_farthest,
        "score_period": drops_farthest,
        "score_stride": compares,
        # Earlier versions did not write it, and runs are told apart by what is written.
        "per_game": not values["per_game"],
    }
    return [name for name in values if matters.get(name, True)]


def _make_buffer(name: str, config: BufferConfig, fill_in_factor: float) -> Buffer:
    values = config.values
    try:
        sampler = sampler_of(config.type).from_keys(values)
    except PlatformError:
        raise
    except Exception as error:
        raise ConfigError(
            f"replay buffer {name} cannot be made: {config.type} raised {error!r:.300} for "
            f"{shown(dict(values))}. Expected a sampler for all values that its keys allow."
        ) from error
    if config.sets_the_pace:
        # Whatever `fill_in_factor`: of a circular buffer only a full one is drawn from.
        least = config.capacity if sampler.takes_turns else 1
        return Buffer(name, config.capacity, sampler, Oldest(), min_size=least)
    remover: Remover = Reservoir() if values["reservoir"] else Oldest()
    if values["insert_strategy"] == ELITE_INSERTION:
        from ritornello.replay.distance import Distance
        from ritornello.replay.scored import FarthestFeatures

        distance = Distance(values["dist_function"], values["p"])
        remover = FarthestFeatures(distance, values["elite_batch_size"], values["score_period"])
    return Buffer(
        name,
        config.capacity,
        sampler,
        remover,
        # Exact, because ceil() would make 8 of 0.2 * 35 = 7.000000000000001.
        min_size=max(1, ceil(Fraction(str(fill_in_factor)) * config.capacity)),
        score_stride=values["score_stride"],
        task=config.task,
    )
