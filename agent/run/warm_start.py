"""A new run from the weights of another, in the same games or in others.

Counters, optimiser and buffers start from zero. The parts of a game are matched by its name. If
both runs have the game, the new run takes over its value head, PopArt statistics and mean image,
and the weights for its task number. A new game starts with initial values. Torso, memory and policy
are shared by all games and are taken over whole, so the actions must be the same: `keep_actions`
makes the new run use the actions of the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ritornello.agent.assembly import Blueprint, model_of_shapes
from ritornello.agent.models.action_values import EPSILON
from ritornello.agent.run.checks import check_units
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.model_file import check_weights
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.spec import EnvSpec, game_name
from ritornello.flags.earlier import modern
from ritornello.wrappers.env_ids import is_atari

VALUE_HEAD = "value_head."  # its tensors have one row per game
GAME_PIXELS = "game_pixels."  # followed by the number of the game, where there are several
OWN_PIXELS = ".statistics."  # in the names where there is only one
# Flags by which a value is another number for the same play.
OF_VALUES = ("gamma", "reward_clipping_method", "skipped_frames", "episodic_life")


@dataclass(frozen=True)
class WarmStart:
    """Weights for a run that has done nothing yet, and their origin."""

    path: Path
    agent_steps: int  # agent steps that they were trained for
    weights: dict[str, Tensor]  # the state dict of the new run's model
    known: tuple[str, ...]  # games of the new run that the weights know
    fresh: tuple[str, ...]  # games that are new to them
    changed: tuple[str, ...] = ()  # flags of the old run by which its values are others

    def __str__(self) -> str:
        anew = f", and start anew in {', '.join(self.fresh)}" if self.fresh else ""
        learned = f"; they were learned with {' '.join(self.changed)}: losses are large at first"
        return (
            f"a new run that starts from the weights of {self.path}, trained for "
            f"{self.agent_steps:,} agent steps; counters are at zero, the optimiser is fresh; "
            f"values go along in {', '.join(self.known) or 'no game'}{anew}"
            f"{learned if self.known and self.changed else ''}"
        )


def keep_actions(checkpoint: Checkpoint, own: EnvSpec) -> tuple[str, ...]:
    """Return the actions of a new run that goes on from a checkpoint: those of the checkpoint.

    `own` is the spec of the new run's games, with the actions that they would have by themselves.

    Raises:
      CheckpointError: if the games have an action that the checkpoint lacks.
    """
    saved = EnvSpec.from_dict(checkpoint.state["env_spec"])
    missing = [name for name in own.action_meanings if name not in saved.action_meanings]
    if missing:
        advice = (
            # Only Atari's games can have more actions than they use, or fewer.
            "Train the first run with --action_set=all, or do without these actions: "
            f"--action_set={','.join(saved.action_meanings)}"
            if all(map(is_atari, own.tasks))
            else "Start without --load."
        )
        raise CheckpointError(
            f"{checkpoint.path} was trained with the actions {', '.join(saved.action_meanings)}, "
            f"but {own.env_id} also has {', '.join(missing)}: expected a run with all of them. "
            f"{advice}"
        )
    return saved.action_meanings


def warm_start(checkpoint: Checkpoint, blueprint: Blueprint) -> WarmStart:
    """Fit the weights of a checkpoint to the games of a new run.

    Raises:
      CheckpointError: if the weights are of another network, or for other observations or actions.
      ConfigError: if values or inputs would be in other units than those of the weights.
    """
    checkpoint.check_spec(blueprint.env_spec)
    flags, new = blueprint.flags, blueprint.env_spec
    old = EnvSpec.from_dict(checkpoint.state["env_spec"])
    check_weights(checkpoint, model_of_shapes(flags, replace(new, env_id=old.env_id)))
    check_units(checkpoint, flags)
    if checkpoint.state["flags"].get("use_popart", False) and not flags.use_popart:
        raise ConfigError(
            f"--use_popart=False, but the values of {checkpoint.path} are in the units of its "
            "PopArt statistics: expected --use_popart=True, or start without --load."
        )
    drawn = blueprint.learner().model.state_dict()
    saved = checkpoint.state["learner"]["model"]
    sources = _match_games(old.tasks, new.tasks)
    weights = carry_over(saved, drawn, sources, _with_task_columns(blueprint))
    games = list(zip(new.tasks, sources, strict=True))
    known = tuple(game for game, source in games if source is not None)
    fresh = tuple(game for game, source in games if source is None)
    then = {**flags.model_dump(), **modern(checkpoint.state["flags"])}
    changed = tuple(
        f"--{name}={shown_text(str(then[name]))}"
        for name in OF_VALUES
        if then[name] != getattr(flags, name)
    )
    return WarmStart(checkpoint.path, checkpoint.agent_steps, weights, known, fresh, changed)


def carry_over(
    saved: Mapping[str, Tensor],
    fresh: Mapping[str, Tensor],
    sources: Sequence[int | None],
    with_task_columns: frozenset[str] = frozenset(),
) -> dict[str, Tensor]:
    """Return the state dict of a model of K games, made from one of other games.

    Args:
      saved: state dict of the model of the other games.
      fresh: newly initialised state dict of the new model; the heads of new games come from it.
      sources: for each of the K games its number in `saved`, or None for a new game.
      with_task_columns: names of matrices whose last columns, one per game, see the one-hot number
        of the game. The columns of new games start at zero.
    """
    weights = {}
    for name, drawn in fresh.items():
        if name == EPSILON:  # a new run explores anew
            weights[name] = drawn.clone()
            continue
        if name.startswith(GAME_PIXELS) or _is_of_images(name, fresh):
            weights[name] = _pixels(saved, name, drawn, sources).clone()
            continue
        tensor = saved[name].to(drawn.device)
        if name in with_task_columns:
            shared = drawn.shape[1] - len(sources)
            nothing = torch.zeros_like(tensor[:, 0])
            columns = [nothing if j is None else tensor[:, shared + j] for j in sources]
            tensor = torch.cat([tensor[:, :shared], torch.stack(columns, 1)], 1)
        if name.startswith(VALUE_HEAD):
            rows = [drawn[k] if j is None else tensor[j] for k, j in enumerate(sources)]
            tensor = torch.stack(rows)
        weights[name] = tensor.clone()
    return weights


def _is_of_images(name: str, fresh: Mapping[str, Tensor]) -> bool:
    """Whether a tensor belongs to a game's images; vectors are in the units of the first layer."""
    return OWN_PIXELS in name and f"{name.rpartition('.')[0]}.batches" in fresh


def _pixels(
    saved: Mapping[str, Tensor], name: str, drawn: Tensor, sources: Sequence[int | None]
) -> Tensor:
    """Return the pixel statistic `name` of a game: as saved, or `drawn` for a new game.

    Names differ between one game and several. Where an observation has parts, each part has
    statistics of its own, under the same name.
    """
    *_, game, field = name.split(".")
    source = sources[int(game) if name.startswith(GAME_PIXELS) else 0]
    if source is None:
        return drawn
    of_one = [key for key in saved if key.endswith(f"{OWN_PIXELS}{field}")]
    known = [f"{GAME_PIXELS}{source}.{field}", name, *of_one]
    return next(saved[key] for key in known if key in saved).to(drawn.device)


def _match_games(old: Sequence[str], new: Sequence[str]) -> list[int | None]:
    """Return for each new game its number among the old ones, by id, else by short name."""
    by_name = {game_name(game): number for number, game in reversed(list(enumerate(old)))}
    by_id = {game: number for number, game in enumerate(old)}
    return [by_id.get(game, by_name.get(game_name(game))) for game in new]


def _with_task_columns(blueprint: Blueprint) -> frozenset[str]:
    """Return the names of the matrices that see the number of the game."""
    flags, spec = blueprint.flags, blueprint.env_spec
    seeing = model_of_shapes(flags, spec).state_dict()
    blind = model_of_shapes(flags.model_copy(update={"use_task_id": False}), spec).state_dict()
    return frozenset(
        name
        for name, tensor in blind.items()
        if tensor.ndim > 1 and seeing[name].shape[1] > tensor.shape[1]
    )
