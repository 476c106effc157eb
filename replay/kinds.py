"""The kinds of replay by name: `--replay_parameters` -> configs -> buffers.

The parameter is a JSON list with one object per buffer (a Python literal does as well), e.g.

    [{"type": "queue", "capacity": 16, "sample_ratio": 0.5},
     {"type": "elite", "capacity": 1000, "sample_ratio": 0.5, "dist_function": "ln_norm"}]

What an object may hold is in replay/keys.py. In a run of several games `split_by_task` divides each
buffer but the queues into one per game.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from core.errors import ConfigError
from core.nearest_names import did_you_mean
from core.plain_data import check_plain, shown
from replay.buffer import Buffer
from replay.distance import Distance
from replay.keys import (
    ATTENTIVE,
    CUSTOM,
    ELITE,
    ELITE_INSERTION,
    KEYS,
    QUEUE,
    RATIO_TOLERANCE,
    REQUIRED,
    SAMPLE_STRATEGY_TYPES,
    STANDARD,
)
from replay.quotas import Quotas
from replay.removers import FarthestFeatures, Oldest, Remover, Reservoir
from replay.samplers import Attentive, Elite, Fifo, Sampler, Uniform
from replay.scoring import common_stride

MAX_BUFFERS = 100
MAX_TEXT = 100_000  # characters of the parameter


@dataclass(frozen=True)
class BufferConfig:
    """One buffer, checked and complete. Keys that do not matter to its type have their defaults."""

    type: str  # queue, standard, attentive or elite; "custom" has been resolved to one of them
    capacity: int  # unrolls
    sample_ratio: Fraction  # share of each batch
    dist_function: str = "ln_norm"
    p: int = 2
    insert_strategy: str | None = None
    lambda_batch_multiplier: float = 1.0
    alfa_annealing_factor: float = 1.0
    elite_sampling_strategy: int = 3
    elite_batch_size: int = 20
    score_period: int = 1
    score_stride: int = 1
    reservoir: bool = False
    task: int | None = None  # the only game whose unrolls it takes; None: all

    @property
    def needs_evaluation(self) -> bool:
        """Whether it asks for the present model's view of stored unrolls."""
        return self.type in (ATTENTIVE, ELITE) or self.insert_strategy is not None

    @property
    def needs_stored_features(self) -> bool:
        """Whether unrolls must carry the features of the policy that made them."""
        drifts = self.type == ELITE or self.insert_strategy is not None
        return drifts and Distance(self.dist_function, self.p).needs_stored_features


def parse_replay_parameters(value: str | Sequence[Mapping[str, Any]]) -> tuple[BufferConfig, ...]:
    """Read and check `--replay_parameters`.

    Args:
      value: the text of the flag (JSON, or a Python literal), or the list itself.

    Returns:
      A config per buffer, ratios exact and of sum 1.

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
    parsed = [_buffer_config(position, given) for position, given in enumerate(objects, start=1)]
    total = Fraction(sum(config["sample_ratio"] for config in parsed))
    if abs(total - 1) > RATIO_TOLERANCE:
        shares = ", ".join(f"{c['type']} {float(c['sample_ratio']):g}" for c in parsed)
        raise ConfigError(
            f"sample_ratio of replay buffers sums to {float(total):g}, must be 1: {shares}."
        )
    configs = tuple(
        BufferConfig(**{**config, "sample_ratio": config["sample_ratio"] / total})
        for config in parsed
    )
    common_stride(make_buffers(configs, fill_in_factor=0))  # building them checks the rest
    return configs


def split_by_task(
    configs: Sequence[BufferConfig], task_shares: Sequence[float]
) -> tuple[BufferConfig, ...]:
    """Give each game its own part of every buffer but the queues.

    So short or fast games can not push the others out of replay, each game has a fixed share of
    every batch's replayed part, and candidates are compared only with others of their game: one
    network sees different games with features of different size. A queue stays one: it decides
    nothing, it hands on what was played.

    Capacity and sample_ratio are divided in proportion to the shares. The periods of elite
    insertion are stretched by the number of games, so that together the parts examine as many
    unrolls per batch as one buffer would.

    Args:
      configs: from `parse_replay_parameters`.
      task_shares: a positive number per game, in task order; only their proportions matter.

    Returns:
      The configs in their order, those of one buffer's games side by side in task order. With one
      game, `configs` as they are.

    Raises:
      ConfigError: if a share is not positive, or a buffer has not room for one unroll of each game.
    """
    count = len(task_shares)
    if not count or not all(0 < share < float("inf") for share in task_shares):
        raise ConfigError(
            f"shares of the games are {tuple(task_shares)}, expected a positive number per game."
        )
    if count == 1:
        return tuple(configs)
    weights = [Fraction(str(share)) for share in task_shares]
    shares = [weight / sum(weights) for weight in weights]
    parts: list[BufferConfig] = []
    for config in configs:
        if config.type == QUEUE:
            parts.append(config)
            continue
        if config.capacity < count:
            raise ConfigError(
                f"replay buffer {config.type} has capacity {config.capacity}, expected at least "
                f"{count}: each of the {count} games has its own part of it. Raise its capacity in "
                "--replay_parameters."
            )
        parts += [
            replace(
                config,
                capacity=capacity,
                sample_ratio=config.sample_ratio * share,
                score_period=config.score_period * count,
                task=task,
            )
            for task, (capacity, share) in enumerate(
                zip(_divide(config.capacity, shares), shares, strict=True)
            )
        ]
    return tuple(parts)


def most_unrolls_held(
    configs: Sequence[BufferConfig], discarding_strategy: str, batch_size: int
) -> int:
    """Return how many different unrolls all buffers together can hold.

    An unroll that lies in several buffers is stored once. Buffers that drop their oldest hold the
    newest unrolls, so the smaller one's are among the larger one's; the choice of a reservoir or of
    elite insertion, and of a queue that skips new unrolls, may have nothing in common with others.

    Args:
      configs: from `parse_replay_parameters` or `split_by_task`.
      discarding_strategy: what full queues do.
      batch_size: B; a batch's unrolls are held until it is made, also when buffers dropped them.
    """
    newest: dict[int | None, int] = {}  # by game: they share no unroll
    others = 0
    for config in configs:
        skips = config.type == QUEUE and discarding_strategy in ("keep_oldest", "alternating")
        if config.reservoir or config.insert_strategy is not None or skips:
            others += config.capacity
        else:
            newest[config.task] = max(config.capacity, newest.get(config.task, 0))
    return sum(newest.values()) + others + 2 * batch_size


def normal_form(configs: Sequence[BufferConfig]) -> list[dict[str, Any]]:
    """Return the configs as plain JSON types, with every key that matters; parses to the same."""
    return [
        {
            name: float(value) if isinstance(value, Fraction) else value
            for name in KEYS
            if name in _keys_in_force(config) and (value := getattr(config, name)) is not None
        }
        for config in configs
    ]


def make_buffers(configs: Sequence[BufferConfig], fill_in_factor: float) -> list[Buffer]:
    """Build the buffers, in order.

    Args:
      configs: from `parse_replay_parameters` or `split_by_task`.
      fill_in_factor: part of its capacity that a buffer must hold before anything is drawn from it
        (a queue: one unroll).
    """
    names = buffer_names(configs)
    return [
        _make_buffer(name, config, fill_in_factor)
        for name, config in zip(names, configs, strict=True)
    ]


def buffer_names(configs: Sequence[BufferConfig]) -> list[str]:
    """Return the names of the buffers, in order.

    The type, numbered from the second of its kind; after it the game, if it is for one alone.
    """
    seen: Counter[tuple[str, int | None]] = Counter()
    names = []
    for config in configs:
        seen[config.type, config.task] += 1
        count = seen[config.type, config.task]
        kind = config.type if count == 1 else f"{config.type}_{count}"
        names.append(kind if config.task is None else f"{kind}_{config.task}")
    return names


def _divide(whole: int, shares: Sequence[Fraction]) -> list[int]:
    """Return whole numbers >= 1 of sum `whole`, nearly in proportion to the shares (of sum 1)."""
    parts = Quotas(shares, whole).next()
    for place, part in enumerate(parts):
        if not part:
            parts[parts.index(max(parts))] -= 1
            parts[place] = 1
    return parts


def _literal(text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise ConfigError(f"replay_parameters has {len(text):,} characters: {shown(text)}.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in a text that is refused anyway
                return ast.literal_eval(text.strip())
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            reason, place = "it is nested too deeply or holds too long a number", shown(text)
            if isinstance(error, json.JSONDecodeError):
                near = text[max(0, error.pos - 20) :][:40]
                reason, place = (
                    f"{error.msg} at character {error.pos}",
                    f"...{shown(near)[1:-1]}...",
                )
            raise ConfigError(
                f"replay_parameters is neither JSON nor a Python literal: {reason}: {place}"
            ) from error


def _buffer_config(position: int, given: Any) -> dict[str, Any]:
    """Return the fields of a BufferConfig; its ratio is still as given."""
    where = f"replay buffer {position}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {shown(given)}, expected an object with a type.")
    check_plain(dict(given), where)
    missing = [name for name in REQUIRED if name not in given]
    for name in given:
        if name not in KEYS:
            hint = did_you_mean(str(name), KEYS) or f"known are {', '.join(KEYS)}."
            raise ConfigError(f"{where} has an unknown key {shown(name)}: {hint}")
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(missing)}: {shown(dict(given))}.")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        try:
            fields[name] = KEYS[name].read(value)
        except ValueError as error:
            raise ConfigError(
                f"{name} of {where} is {shown(value)}, expected {KEYS[name].values}."
            ) from error
    kind = fields["type"]
    for name in fields:
        if kind not in KEYS[name].types:
            known = ", ".join(n for n, key in KEYS.items() if kind in key.types)
            raise ConfigError(
                f"{where} is of type {kind}, which has no {name}. Its keys are {known}."
            )
    _resolve(where, fields)
    return fields


def _resolve(where: str, fields: dict[str, Any]) -> None:
    """Replace "custom" by what it means, check combinations, and fill in defaults by type."""
    kind, strategy = fields["type"], fields.pop("sample_strategy", None)
    meant = SAMPLE_STRATEGY_TYPES[strategy] if strategy else STANDARD if kind == CUSTOM else kind
    if kind not in (CUSTOM, meant):
        raise ConfigError(f"{where} is of type {kind}, but its sample_strategy is {strategy}.")
    if fields.get("insert_strategy") and fields.get("reservoir"):
        raise ConfigError(f"{where} has both insert_strategy and reservoir; it can drop by one.")
    fields["type"] = meant
    if meant in (ATTENTIVE, ELITE):
        fields.setdefault("lambda_batch_multiplier", 1.0 if kind == CUSTOM else 6.0)
        fields.setdefault("elite_sampling_strategy", 1 if meant == ATTENTIVE else 3)
    # What does not matter goes, so that equal buffers have equal configs.
    in_force = _keys_in_force(BufferConfig(**fields))
    for name in set(fields) - in_force:
        del fields[name]


def _keys_in_force(config: BufferConfig) -> set[str]:
    keys = set(REQUIRED)
    if config.type != QUEUE:
        keys.add("reservoir")
    if config.type in (ATTENTIVE, ELITE):
        keys |= {"lambda_batch_multiplier", "alfa_annealing_factor", "elite_sampling_strategy"}
    if config.needs_evaluation:
        keys |= {"dist_function", "score_stride"}
        if config.dist_function == "ln_norm":
            keys.add("p")
    if config.insert_strategy is not None:
        keys |= {"insert_strategy", "elite_batch_size", "score_period"}
    return keys


def _make_buffer(name: str, config: BufferConfig, fill_in_factor: float) -> Buffer:
    if config.type == QUEUE:
        return Buffer(name, config.capacity, Fifo(), Oldest(), overflow="refuse")
    distance = Distance(config.dist_function, config.p)
    sampler: Sampler = Uniform()
    if config.type in (ATTENTIVE, ELITE):
        scored = Elite if config.type == ELITE else Attentive
        sampler = scored(
            distance,
            config.lambda_batch_multiplier,
            config.alfa_annealing_factor,
            config.elite_sampling_strategy,
        )
    remover: Remover = Reservoir() if config.reservoir else Oldest()
    if config.insert_strategy == ELITE_INSERTION:
        remover = FarthestFeatures(distance, config.elite_batch_size, config.score_period)
    return Buffer(
        name,
        config.capacity,
        sampler,
        remover,
        # Exact, because ceil() would make 8 of 0.2 * 35 = 7.000000000000001.
        min_size=max(1, ceil(Fraction(str(fill_in_factor)) * config.capacity)),
        score_stride=config.score_stride,
        task=config.task,
    )
