"""`Algorithm`, the base class of all: it makes a loss of a batch.

    @register_algorithm("mine")             found by --algorithm=<module>:mine
    class Mine(Algorithm):
        Config = MyConfig                       what decides the loss, a frozen dataclass
        def loss(self, model, batch, ...)       one number to be minimised

The pieces that actor-critic losses share are functions, so that nobody has to copy them: batch.py
(rows that count, one pass of the model), losses.py (targets, units, terms), vtrace.py, health.py
(metrics). Next to read: impala.py, which puts them together; agent/learning/learner.py, which
differentiates the loss.
"""

from __future__ import annotations

import copy
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from ritornello.agent.algorithms.batch import LARGEST_REWARD, Batch
from ritornello.agent.distributions import Categorical
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown
from ritornello.flags.kinds import (
    AdvantageNormalisation,
    Bound,
    CountOrAuto,
    Fraction01,
    LossReduction,
    Share,
    TrustRegion,
    Weight,
)
from ritornello.flags.parts import ALGORITHMS

# The values of these flags reach an algorithm's config by the name of its field.
FLAG_OF_FIELD: dict[str, str] = {
    "discount": "gamma",
    "value_cost": "value_loss_weight",
    "entropy_cost": "entropy_loss_weight",
    "entropy_end_cost": "entropy_end_weight",
    "entropy_online_only": "entropy_on",
    "reward_transform": "reward_clipping_method",
    "advantage_normalisation": "advantage_normalisation",
    "loss_reduction": "loss_reduction",
    "burn_in_steps": "burn_in_steps",
    "rho_bar": "rho_const",
    "c_bar": "c_const",
    "rho_pg_bar": "pg_rho_const",
    "lambda_": "vtrace_lambda",
    "policy_cloning_cost": "policy_cloning_loss_weight",
    "value_cloning_cost": "value_cloning_loss_weight",
    "trust_region": "kl_mask_kind",
    "trust_threshold": "kl_div_threshold",
    "gradient_metrics": "gradient_metrics",
}


@dataclass(frozen=True)
class LossConfig:
    """Settings of the loss of any algorithm. Costs are per step; see `loss_reduction`.

    The defaults are those of the flags (FLAG_OF_FIELD). The types say what a value may be: flags
    are checked by their own, and what `--algorithm_kwargs` gives by these (`make_config`).
    """

    discount: Fraction01 = 0.99  # gamma
    value_cost: Weight = 0.5  # times 0.5 (v - V)^2, as in IMPALA's released code
    reward_transform: str = "abs_one_sign"  # a key of REWARD_TRANSFORMS
    loss_reduction: LossReduction = "mean"  # over valid steps; published costs assume sum
    burn_in_steps: CountOrAuto = 0  # k, first rows of replayed unrolls, which warm the memory up

    @property
    def value_bound(self) -> float:
        """Return the discounted sum of the largest reward at every step; inf if it is unbounded."""
        if self.discount == 1:
            return math.inf
        return LARGEST_REWARD[self.reward_transform] / (1 - self.discount)


@dataclass(frozen=True)
class ActorCriticConfig(LossConfig):
    """Settings of the loss of any actor-critic."""

    policy_cost: Weight = 1.0
    entropy_cost: Weight = 0.025
    entropy_end_cost: Weight | None = None  # reached in a straight line; None: no change
    entropy_end_share: Share = 1.0  # share of the training after which it is reached
    entropy_online_only: bool = False  # LASER: True; CLEAR: False
    advantage_normalisation: AdvantageNormalisation = "rms"  # divide by their root mean square
    gradient_metrics: bool = False  # compare the gradients of values and policy; takes 1 to 3 %

    def entropy_cost_at(self, progress: float | Tensor) -> float | Tensor:
        """Return the entropy cost when the share `progress` of the training is done."""
        first, last = self.entropy_cost, self.entropy_end_cost
        return first if last is None else on_line(progress, first, last, self.entropy_end_share)


@dataclass(frozen=True)
class VTraceConfig(ActorCriticConfig):
    """Settings of V-trace, for all algorithms that use it."""

    rho_bar: Bound = 1.0  # clip of importance ratios in the value targets
    c_bar: Bound = 1.0  # clip of importance ratios in the trace
    rho_pg_bar: Bound = 1.0  # clip of importance ratios in the policy gradient
    lambda_: Fraction01 = 0.95  # 1: full V-trace, 0: one-step targets
    advantage_lambda: Fraction01 | None = None  # for the advantages; None: lambda_

    def __post_init__(self) -> None:
        """Raise ConfigError if traces would be clipped above the targets."""
        if self.c_bar > self.rho_bar:
            raise ConfigError(
                f"c_bar is {self.c_bar}, expected at most rho_bar ({self.rho_bar}), as V-trace "
                "assumes. Lower c_bar or raise rho_bar."
            )


@dataclass(frozen=True)
class ImpalaConfig(VTraceConfig):
    """Everything that decides the loss of IMPALA, with the values that successors use."""

    policy_cloning_cost: Weight = 0.0  # CLEAR: 0.01
    value_cloning_cost: Weight = 0.0  # CLEAR: 0.005
    trust_region: TrustRegion | Literal["none"] = "none"  # LASER: implied
    trust_threshold: Bound = 0.3  # b in nats: states at or above it are dropped


def on_line(progress: float | Tensor, first: float, last: float, share: float) -> float | Tensor:
    """Interpolate from `first`, at progress 0, to `last`, at progress `share` and from there on."""
    done = progress / share
    done = done.clamp(max=1.0) if isinstance(done, Tensor) else min(1.0, done)
    return first + (last - first) * done


class Loss(NamedTuple):
    """The loss of one batch, with its metrics."""

    total: Tensor  # 0-d, carries the gradient
    metrics: dict[str, Tensor]  # 0-d, detached; names as in metrics/metrics.csv
    # [T, B] |value target - value| as learned, NaN where no step was learned from: what replay by
    # priorities draws by. None: the algorithm has no such thing.
    errors: Tensor | None = None


def check_loss(loss: object, algorithm: Algorithm, shape: tuple[int, ...]) -> None:
    """Raise ConfigError unless that is what `Algorithm.loss` returns of a batch [T, B]: `shape`."""
    expected = "Loss(total, metrics), whose total is a 0-d tensor that depends on the weights"
    if not isinstance(loss, Loss):
        got = shown(loss)
    elif not isinstance(loss.total, Tensor) or loss.total.shape or not loss.total.requires_grad:
        got = f"a total of {shown(loss.total)}"
    elif not isinstance(loss.metrics, Mapping):
        got, expected = f"the metrics {shown(loss.metrics)}", "a dict of 0-d tensors"
    elif odd := {k: v for k, v in loss.metrics.items() if not isinstance(v, Tensor) or v.shape}:
        got = ", ".join(f"{name}={shown(value)}" for name, value in odd.items())
        expected = "0-d tensors as metrics"
    elif loss.errors is None or (isinstance(loss.errors, Tensor) and loss.errors.shape == shape):
        return
    else:
        is_tensor = isinstance(loss.errors, Tensor)
        got = f"errors of shape {list(loss.errors.shape)}" if is_tensor else shown(loss.errors)
        expected = f"errors of shape {list(shape)}, [T, B], or None"
    raise ConfigError(f"{type(algorithm).__qualname__}.loss returned {got}; expected {expected}.")


class Algorithm(ABC):
    """Makes losses of batches. Belongs to the learner's thread.

    What has been learned is in the model. An algorithm that keeps anything else returns it from
    `state_dict`: it is saved with each checkpoint, and restored where an update cannot be made.
    """

    # A frozen dataclass. Fields named in FLAG_OF_FIELD are filled from the flags, the others from
    # --algorithm_kwargs.
    Config: ClassVar[type[Any]] = ActorCriticConfig
    # Sums over the batches of all learners of a run; the learner sets it. What the loss divides by
    # and what statistics are moved by has to be summed with it, if it is a sum over the batch.
    group: ProcessGroup = SINGLE_PROCESS
    # Whether it does so; an algorithm that does not say it is refused where there are several.
    sums_over_learners: ClassVar[bool] = False
    # Whether the loss asks the policies of a pass (`Pass.pi`, `Pass.mu`) for all that depends on
    # what actions are; one that does not say so is refused where more than one of A is chosen.
    takes_any_action: ClassVar[bool] = False
    # Whether it trains a model that acts by values of actions (agent/models/action_values.py).
    acts_by_values: ClassVar[bool] = False

    # Whether the loss asks the host for nothing: it decides nothing by the numbers of a batch or
    # by `progress` (which is then a tensor), and keeps nothing in Python. A GPU may then replay it
    # (agent/learning/recorded.py). A subclass has to say it anew.
    loss_is_pure: ClassVar[bool] = False

    def __init__(self, config: Any, buffers: Sequence[str] = ()) -> None:
        """Keep the config, an instance of `Config`, and the names of the replay buffers.

        `buffers` are in the order of `Batch.source`; each of them gets metrics of its own. Without
        them there are only metrics of the whole batch.
        """
        self.config = config
        self.buffers = tuple(buffers)

    def check(self, model: ActorCritic) -> None:
        """Raise ConfigError if the algorithm cannot train this model."""
        if not self.takes_any_action and not isinstance(model.distribution, Categorical):
            raise ConfigError(
                f"algorithm {type(self).__name__} learns which one of several actions to take, and "
                "here an action is something else: expected an algorithm with "
                "takes_any_action = True (docs/your_own.md)."
            )
        burn_in = getattr(self.config, "burn_in_steps", 0)
        if burn_in and not model.state_count:
            raise ConfigError(
                f"burn_in_steps is {burn_in}, expected 0 for a model without "
                "memory: there is nothing to warm up. Use --use_lstm=True, or leave it out."
            )

    def networks(self) -> tuple[ActorCritic, ...]:
        """Return the networks that the loss runs besides the model, to be prepared like it."""
        return ()

    @abstractmethod
    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Compute the loss of one batch.

        It may move PopArt's statistics and what depends on them (`PopArt.keep`) and the algorithm's
        own state (`state_dict`), and nothing else.

        Args:
          model: the network, on the batch's device.
          batch: T steps of B unrolls.
          optimiser: optimiser of `model`; PopArt rescales its moments along with the value head.
          progress: share of the training that is done, 0 to 1; a tensor if `loss_is_pure`.
        """

    def is_pure(self) -> bool:
        """Return whether a GPU may replay the loss: as configured, it depends on tensors only."""
        own: bool = vars(type(self)).get("loss_is_pure", False)
        return own and self.group.world_size == 1

    def state_dict(self) -> dict[str, Any]:
        """Return all state besides the model, as tensors and plain types; {} if there is none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`; raise any exception if it does not fit."""
        assert not state, f"{type(self).__name__} has a state and no load_state_dict"

    def snapshot(self) -> Callable[[], None]:
        """Remember the state; return a function that restores it."""
        state = copy.deepcopy(self.state_dict())
        return (lambda: self.load_state_dict(state)) if state else (lambda: None)


Kind = TypeVar("Kind", bound=type[Algorithm])


def register_algorithm(name: str) -> Callable[[Kind], Kind]:
    """Return a decorator that makes a class an algorithm of `--algorithm=<its module>:<name>`."""

    def added(kind: Kind) -> Kind:
        ALGORITHMS.add(name, kind, kind.__module__)
        return kind

    return added


def make_config(
    kind: type[Algorithm], name: str, from_flags: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Any:
    """Return the config of an algorithm.

    Args:
      kind: class of the algorithm.
      name: name of the algorithm as the user wrote it, for messages.
      from_flags: field -> value, for every field that has a flag.
      arguments: field -> value, from `--algorithm_kwargs`.

    Raises:
      ConfigError: if an argument is no field, or has a flag, or its value is not allowed.
    """
    known = {field.name for field in fields(kind.Config)}
    own = ", ".join(field.name for field in fields(kind.Config) if field.name not in from_flags)
    for argument in arguments:
        if argument in known & from_flags.keys():
            raise ConfigError(
                f"algorithm_kwargs has {argument}: expected it as --{FLAG_OF_FIELD[argument]}."
            )
        if argument not in known:
            raise ConfigError(
                f"algorithm_kwargs has {shown(argument)}, which {name} does not know: expected "
                f"{f'one of {own}' if own else 'none: it has no arguments of its own'}."
            )
    hints = typing.get_type_hints(kind.Config, include_extras=True)
    values = {field: value for field, value in from_flags.items() if field in known}
    for argument, value in arguments.items():
        try:
            values[argument] = TypeAdapter(hints[argument]).validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ConfigError(
                f"algorithm_kwargs has {argument}={shown(value)}: "
                f"{problem[0].lower()}{problem[1:]}."
            ) from error
    return kind.Config(**values)
