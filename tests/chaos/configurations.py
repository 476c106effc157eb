"""The trainings that faults are injected into: CartPole, small enough to be over in seconds."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

SMALL = (
    "--seed=3", "--worker_count=2", "--envs_per_worker=2", "--r_f_steps=10", "--batch_size=4",
    "--feature_out_layer_size=16", "--training_fill_in_factor=0.01", "--learner_thread_count=1",
    "--tensorboard=False", "--charts=False", "--log_interval_s=0.25",
)  # fmt: skip
NUMBERS_SHARE = 0.25  # of the trainings whose actions are real numbers
NO_END = "--environment_max_steps=100000000"
OUR_ENVIRONMENT = "tests.chaos.bad_environments:ChaosCartPole-v0"
OUR_NUMBERS = "tests.chaos.bad_environments:ChaosOfNumbers-v0"


@dataclass(frozen=True)
class Configuration:
    """How a scenario's run is made. The flags of a run are kept by its checkpoints."""

    kind: str  # workers | server | serial | replay
    save_period: int
    keep: int
    our_environment: bool = False  # that can be told to misbehave, and says which process it is in
    numbers: bool = False  # the actions are real numbers; this is an environment of ours anyway

    @property
    def reproducible(self) -> bool:
        """Whether everything runs in one thread, and each update is recorded."""
        return self.kind == "serial"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of a new run."""
        own = {
            "workers": (),
            "server": ("--inference=server",),
            "serial": ("--reproducible=True",),
            "replay": ("--save_replay=True",),
        }[self.kind]
        return (f"--env={self._ours or 'CartPole-v1'}", *SMALL, NO_END, *own, *self._saving)

    @property
    def resume_flags(self) -> tuple[str, ...]:
        """The flags that a resume gives: a module is trusted only where it was typed."""
        env = (f"--env={self._ours}",) if self._ours else ()
        return (*env, NO_END, *self._saving)

    @property
    def _ours(self) -> str | None:
        if self.numbers:
            return OUR_NUMBERS
        return OUR_ENVIRONMENT if self.our_environment else None

    @property
    def _saving(self) -> tuple[str, ...]:
        return (f"--save_model_period={self.save_period}", f"--keep_checkpoints={self.keep}")


def draw_configuration(rng: random.Random, *kinds: str, ours: bool = False) -> dict[str, Any]:
    """Draw a configuration for a plan.

    Args:
      rng: of the plan.
      *kinds: one of these; none: of those that differ most.
      ours: with environments that can be told to misbehave.
    """
    kind = rng.choice(kinds or ("workers", "workers", "serial", "replay"))
    period, keep = rng.choice((10, 20, 40)), rng.choice((2, 3, 1000))
    numbers = rng.random() < NUMBERS_SHARE
    return {"kind": kind, "period": period, "keep": keep, "ours": ours, "numbers": numbers}


def from_plan(plan: dict[str, Any]) -> Configuration:
    """Return the configuration that a plan describes."""
    return Configuration(plan["kind"], plan["period"], plan["keep"], plan["ours"], plan["numbers"])


def for_template(configuration: Configuration) -> Configuration:
    """Return the configuration with several checkpoints kept, for a run that is to be copied."""
    return replace(configuration, save_period=20, keep=4)
