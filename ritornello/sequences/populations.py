"""What a sequence says of runs at the same time, and of agents that share their replay.

All groups that share are the agents of one population, and each seed has a population of its own.
They must play the same games in the same way, and they all run at once. Next to read: plan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text
from ritornello.flags.environment import EnvironmentFlags
from ritornello.flags.values import MAX_AGENTS


class MayShare(Protocol):
    """A run, planned or begun."""

    @property
    def agent(self) -> int | None:
        """Its number in its population; None: it shares nothing."""
        ...


Run = TypeVar("Run", bound=MayShare)

AGENT_SEEDS = 1_000_000  # between the seeds of two agents of a population
# What agents have in common: or the unrolls of one mean nothing to another.
COMMON_FLAGS = (*EnvironmentFlags.model_fields, "r_f_steps")
# Of flags about environments: how often each game is played, what runs it, and what is made of
# rewards, which travel as they are.
OF_EACH_AGENT = ("env_shares", "env_backend", "clip_rewards", "reward_clipping_method")

WAITS_FOR_ITS_OWN = (
    "directly or through other runs. Both share their replay, so they begin together, and one "
    "cannot wait for the other's weights. Leave one of them out of share_replay, or let all of "
    "them start from a run that shares nothing, or give load_model_url the path of weights."
)


def sharing_runs(value: Any, names: Sequence[str], where: str) -> list[str]:
    """Return the names of the runs whose groups share their replay.

    Args:
      value: what the sequence says as share_replay.
      names: the names of its runs.
      where: the file, for messages.

    Raises:
      ConfigError: if it makes no sense.
    """
    if isinstance(value, bool):
        return list(names) if value else []
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise ConfigError(
            f"{where}: share_replay is {shown(value)}, expected true, false or a list of names of "
            "runs."
        )
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ConfigError(
            f"{where}: share_replay names {shown(unknown[0])}, but the runs are "
            f"{shown_text(', '.join(names)) or 'not named'}."
        )
    return value


def runs_at_once(value: Any, agents: Mapping[str, Mapping[str, Any]], where: str) -> int:
    """Return how many runs are under way at the same time.

    Args:
      value: what the sequence says as at_once; None: it says nothing.
      agents: group -> flags, of the groups that share their replay.
      where: the file, for messages.

    Raises:
      ConfigError: if it makes no sense, or the agents do not go together.
    """
    if value is not None and not (type(value) is int and 1 <= value <= MAX_AGENTS):
        raise ConfigError(
            f"{where}: at_once is {shown(value)}, expected a number from 1 to {MAX_AGENTS}."
        )
    if not agents:
        return value or 1
    if not 2 <= len(agents) <= MAX_AGENTS:
        raise ConfigError(
            f"{where}: share_replay makes a population of {len(agents)} agents (runs x grid), "
            f"expected 2 to {MAX_AGENTS}."
        )
    if value not in (None, len(agents)):
        raise ConfigError(
            f"{where}: at_once is {value}, but the {len(agents)} agents that share their replay "
            f"run at the same time: leave it out, or write {len(agents)}."
        )
    (first, of_first), *others = agents.items()
    for name in COMMON_FLAGS:
        for group, flags in others:
            if name not in OF_EACH_AGENT and flags.get(name) != of_first.get(name):
                raise ConfigError(
                    f"{where}: agents that share their replay play the same games in the same way, "
                    f"but {name} is {shown(of_first.get(name))} in {shown(first)} and "
                    f"{shown(flags.get(name))} in {shown(group)}."
                )
    return len(agents)


def chosen_at_once(typed: int | None, given: int, runs: Sequence[MayShare]) -> int:
    """Return how many runs are under way at the same time, after what was typed.

    Args:
      typed: --at_once of multi_train.py; None: nothing was typed.
      given: what the sequence says.
      runs: its runs.

    Raises:
      ConfigError: if what was typed makes no sense here.
    """
    if typed is None:
        return given
    if not 1 <= typed <= MAX_AGENTS:
        raise ConfigError(f"--at_once={typed}: expected 1 to {MAX_AGENTS}.")
    if typed != given and any(run.agent is not None for run in runs):
        raise ConfigError(
            f"--at_once={typed}: the {given} agents of this sequence share their replay, so all of "
            "them run at the same time. Leave it out."
        )
    return typed


def agent_behind(run: Run, source: Callable[[Run], Run | None]) -> Run | None:
    """Return the agent that an agent has to wait for, directly or through other runs, if any.

    Args:
      run: a run; one that shares nothing may wait for whomever it likes.
      source: function that returns the earlier run that a run starts from, None if there is none.
    """
    found = None if run.agent is None else source(run)
    while found is not None and found.agent is None:
        found = source(found)
    return found
