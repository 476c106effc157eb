"""What a saved state must look like, as pydantic models: the one door between files and code.

Checksums say that a file is what somebody wrote, not that this program wrote it. Behind this door
no loader meets a missing key, another type, lists of unequal length or an item that is not there;
what is wrong is one CheckpointError that names the place in the tree. Keys that are not listed are
let through, so that a version can add some.

agent/stored/replay_schema.py has the part with the contents of the buffers. What depends on the
flags of the session (whether the state fits them) is in agent/run/resume_checks.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from ritornello.core.errors import CheckpointError, PlatformError
from ritornello.core.plain_data import shown
from ritornello.core.spec import ActionSpec, EnvSpec

MAX_GAMES_LENGTH = 100_000  # characters of a list of ids: all of Gymnasium's, with commas


class Part(BaseModel):
    """A mapping in a saved state."""

    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True, protected_namespaces=())


def _one_dimension(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim != 1 or tensor.dtype != torch.uint8:
        raise ValueError(f"expected bytes, got {tensor.dtype} of {tuple(tensor.shape)}")
    return tensor


def array_of(dtype: str) -> AfterValidator:
    """Return a validator: an array of this dtype with one dimension."""

    def check(array: np.ndarray) -> np.ndarray:
        if array.dtype != dtype or array.ndim != 1:
            raise ValueError(
                f"expected {dtype} in one dimension, got {array.dtype} of {array.shape}"
            )
        return array

    return AfterValidator(check)


def _actions_of_environments(array: np.ndarray) -> np.ndarray:
    """Check last actions: one integer per environment, or a row of numbers."""
    if array.dtype not in (np.int64, np.float32) or array.ndim not in (1, 2):
        raise ValueError(
            f"expected int64 in one dimension, or rows of numbers, got {array.dtype} of "
            f"{array.shape}"
        )
    return array


Count = Annotated[int, Field(ge=0, le=2**62)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Flags01 = Annotated[np.ndarray, array_of("uint8")]
Integers = Annotated[np.ndarray, array_of("int64")]
Actions = Annotated[np.ndarray, AfterValidator(_actions_of_environments)]
Floats32 = Annotated[np.ndarray, array_of("float32")]
Bytes = Annotated[np.ndarray, array_of("uint8")]


class ActionPartState(Part):
    """`core.spec.ActionPart`."""

    kind: Literal["choice", "numbers"]
    count: Annotated[int, Field(ge=1, le=10**6)]


class ObservationPartState(Part):
    """`core.spec.ObservationPart`."""

    name: Annotated[str, Field(max_length=10_000)]
    shape: Annotated[list[Count] | tuple[Count, ...], Field(min_length=1, max_length=3)]
    dtype: Literal["uint8", "float32"]


class SpecState(Part):
    """`core.spec.EnvSpec`; JSON makes lists of its tuples."""

    env_id: Annotated[str, Field(min_length=1, max_length=MAX_GAMES_LENGTH)]
    frame_shape: Annotated[list[Count] | tuple[Count, ...], Field(min_length=1, max_length=3)]
    frame_dtype: Literal["uint8", "float32"]
    frames_stacked: Annotated[int, Field(ge=1, le=10_000)]
    action_meanings: Annotated[list[str] | tuple[str, ...], Field(min_length=1, max_length=10**6)]
    action_repeat: Annotated[int, Field(ge=1, le=10**6)]
    # Where an action is more than one choice; not in files of the first versions.
    action_parts: Annotated[
        list[ActionPartState] | tuple[ActionPartState, ...], Field(max_length=10_000)
    ] = ()

    observation_parts: Annotated[
        list[ObservationPartState] | tuple[ObservationPartState, ...], Field(max_length=1_000)
    ] = ()

    @model_validator(mode="after")
    def _check(self) -> SpecState:
        if self.action_parts and self.actions.shape != (len(self.action_meanings),):
            raise ValueError("expected a name for each number of an action")
        return self

    @property
    def actions(self) -> ActionSpec:
        """What an action is."""
        return EnvSpec.from_dict(self.model_dump()).actions


class GroupState(Part):
    """A group of parameters of an optimiser."""

    params: list[Count]


class OptimiserState(Part):
    """`torch.optim.Optimizer.state_dict()`."""

    state: dict[Count, dict[str, torch.Tensor | float | int]]
    param_groups: Annotated[list[GroupState], Field(min_length=1)]


class LearnerState(Part):
    """`agent.learning.learner.Learner`."""

    model: dict[str, torch.Tensor]
    optimiser: OptimiserState | None = None
    version: Count = 0
    algorithm: dict[str, Any] | None = None  # as its own schema says (agent/run/resume_checks.py)


class GamesState(Part):
    """`metrics.meters.EpisodeMeter`, or several in `agent.run.tally.TaskMeter`."""

    count: Count
    best: float | None = None
    best_mean: float | None
    window: list[float] | None = None
    window_games: Count | None = None  # that the window has room for
    recent: dict[str, Annotated[list[float] | tuple[float, ...], Field(max_length=2)]] | None = None
    tasks: list[GamesState] | None = None

    @model_validator(mode="after")
    def _check(self) -> GamesState:
        if (self.window is None) == (self.tasks is None):
            raise ValueError("expected a window, or tasks with one each")
        if self.tasks and any(game.tasks is not None for game in self.tasks):
            raise ValueError("expected one window for each game")
        if any(len(sums) != 2 for sums in (self.recent or {}).values()):
            raise ValueError("expected a sum and a weight for each name")
        return self


class TallyState(Part):
    """`agent.run.tally.Tally`."""

    agent_steps: Count
    updates: Count
    wall_s: Seconds = 0.0
    steps_of_games: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None
    games: GamesState | None = None

    @model_validator(mode="after")
    def _check(self) -> TallyState:
        steps, games = self.steps_of_games, self.games
        if games and steps is not None and len(steps) != len(games.tasks or [games]):
            raise ValueError("expected the steps of each game")
        return self


class EnvState(Part):
    """`wrappers.gym_vector.GymVector`, or several of them in a `TaskVector`."""

    env_id: str = ""  # not in files of the first versions
    seeds: list[Annotated[int, Field(ge=0, lt=2**63)]] | None = None
    episodes: list[Annotated[int, Field(ge=-1, lt=2**62)]] | None = None
    # One choice each, or rows of what the numbers of an action are.
    actions: list[list[Count]] | list[list[list[float]]] | None = None
    parts: Annotated[list[EnvState], Field(min_length=1)] | None = None

    @property
    def vectors(self) -> list[EnvState]:
        """The vectors of one game each."""
        return [self] if self.parts is None else self.parts

    @property
    def size(self) -> int:
        """The number of environments."""
        return sum(len(vector.seeds or ()) for vector in self.vectors)

    @model_validator(mode="after")
    def _check(self) -> EnvState:
        lists = (self.seeds, self.episodes, self.actions)
        if self.parts is not None:
            if any(part.parts is not None for part in self.parts):
                raise ValueError("expected seeds, episodes and actions in each part")
        elif None in lists or len({len(each) for each in lists if each is not None}) != 1:
            raise ValueError("expected as many seeds as episodes and lists of actions")
        return self


class ActorState(Part):
    """`agent.acting.actor.Actor`."""

    generator: Annotated[torch.Tensor, AfterValidator(_one_dimension)]
    state: torch.Tensor | None = None  # the memory [E, state_count], of a recurrent model


class RolloutState(Part):
    """`agent.acting.rollout.Rollout`."""

    env: EnvState
    actor: ActorState
    seq: Count
    first: Flags01
    last_action: Actions | None = None  # not in files of the first versions
    last_reward: Floats32 | None = None

    @model_validator(mode="after")
    def _check(self) -> RolloutState:
        arrays = (self.first, self.last_action, self.last_reward, self.actor.state)
        if any(len(array) != self.env.size for array in arrays if array is not None):
            raise ValueError(f"expected values for {self.env.size} environments")
        if self.actor.state is not None and self.actor.state.ndim != 2:
            raise ValueError("expected a memory of two dimensions")
        return self


class PoolState(Part):
    """`agent.pools.serial_pool.SerialPool`."""

    turn: Count
    rollouts: Annotated[list[RolloutState], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> PoolState:
        if self.turn >= len(self.rollouts):
            raise ValueError(f"it is the turn of worker {self.turn} of {len(self.rollouts)}")
        return self


class SerialState(Part):
    """`agent.run.experience.Serial`."""

    pool: PoolState
    waiting: list[Bytes]


class BadUpdatesState(Part):
    """`agent.learning.bad_updates.BadUpdates`."""

    count: Count
    in_a_row: Count
    first: str


EvaluationMetric = Annotated[
    str,
    Field(pattern=r"^evaluation/(return_(sampled|greedy)(_\d{1,5})?|score(_best)?|agent_steps)$"),
]


class EvaluatingState(Part):
    """`agent.run.evaluating.InTurn`."""

    looked_at: Count
    count: Count
    news: dict[EvaluationMetric, Annotated[float, Field(allow_inf_nan=False)]]
    best: Annotated[float, Field(allow_inf_nan=False)] | None = None  # not in older files


class RunState(Part):
    """The whole state of a run, as far as every file has it (`agent.run.saving.Saving`)."""

    flags: dict[str, JsonValue]
    env_spec: SpecState
    learner: LearnerState
    tally: TallyState
    replay: dict[str, Any] | None = None  # agent/stored/replay_schema.py
    serial: SerialState | None = None
    bad_updates: BadUpdatesState | None = None
    evaluation: EvaluatingState | None = None
    control: dict[str, Any] | None = None  # agent/run/control.py takes of it what it knows
    has_replay: bool = False
    replay_file: str | None = None
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _check(self) -> RunState:
        actions = self.env_spec.actions
        for rollout in self.serial.pool.rollouts if self.serial else ():
            done = [
                a for vector in rollout.env.vectors for game in vector.actions or () for a in game
            ]
            asked = [] if rollout.last_action is None else rollout.last_action.tolist()
            for taken in (done, asked):
                _check_actions(taken, actions)
        return self


def _check_actions(taken: Sequence[Any], actions: ActionSpec) -> None:
    """Raise ValueError unless these are actions, as integers or as rows of numbers."""
    if not taken:
        return
    try:
        array = np.array(taken)
    except ValueError as error:  # rows of unequal lengths
        raise ValueError(f"an action is not of {actions.describe()}") from error
    if array.shape[1:] != actions.shape or not np.isfinite(array).all():
        raise ValueError(f"an action is not of {actions.describe()}")
    for chosen, count in actions.choices_in(array):
        if (chosen < 0).any() or (chosen >= count).any() or (chosen != chosen.astype(int)).any():
            raise ValueError(f"an action is none of the {count} that there are")


def check_part(kind: type[BaseModel], state: Any, where: str = "state") -> None:
    """Raise ValueError, naming the place and what was expected there, unless `state` fits."""
    try:
        kind.model_validate(state)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(_described(first, where)) from error


@contextmanager
def restoring(what: str) -> Iterator[None]:
    """Turn any failure to take over a saved state into a CheckpointError.

    The door lets nothing through that is known to fail; this says what else does.

    Args:
      what: is restored, in words, for the message.
    """
    try:
        yield
    except (PlatformError, OSError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{what} cannot be restored: the checkpoint holds something else than this program "
            f"saves ({type(error).__name__}: {shown(str(error))})."
        ) from error


def _described(problem: ErrorDetails, where: str) -> str:
    # The names of the alternatives that pydantic has tried are no places in the tree.
    keys = [key for key in problem["loc"] if isinstance(key, int) or "[" not in key]
    place = "".join(f"[{key!r}]" if isinstance(key, (int, str)) else "" for key in keys)
    given = problem["input"]
    got = f", got {shown(given, 80)}" if isinstance(given, (str, int, float, type(None))) else ""
    return f"{where}{place}: {problem['msg'].removeprefix('Value error, ')}{got}"


def section(state: Mapping[str, Any], *keys: str) -> Any:
    """Return a part of a state that only some files have.

    Raises:
      CheckpointError: if this one has not.
    """
    part: Any = state
    for number, key in enumerate(keys, start=1):
        part = part.get(key) if isinstance(part, Mapping) else None
        if part is None:
            place = "".join(f"[{name!r}]" for name in keys[:number])
            raise CheckpointError(
                f"the checkpoint has no state{place}: there is nothing to resume."
            )
    return part
