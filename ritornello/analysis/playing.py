"""Trained agents that play, and all that can be seen while they do: what every analysis looks at.

`load_agent` takes what `main.py --op_mode=test --load_model_url=` takes. `play` shows one game as a
person would see it, moment by moment, with what the model thought of each; `play_many` is many
games at once, fast and without pictures. Both play as test mode does (agent/testing/player.py).
Next to read: analysis/saliency.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ritornello.agent.assembly import Blueprint, env_config
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint_folder import run_of
from ritornello.agent.testing.player import Player, Step, env_seeds, game_config, make_filmed_env
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.spec import EnvSpec
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.registry import make_env_vector


@dataclass(frozen=True)
class LoadedAgent:
    """A trained model, ready to be asked, and facts about its origin."""

    model: ActorCritic  # fp32, eval mode, on the CPU
    blueprint: Blueprint  # its flags (`blueprint.flags`) and shapes
    url: str  # url as it was given
    path: Path  # of the checkpoint file or model folder that it meant then
    agent_steps: int  # agent steps of its training
    label: str  # short, for legends and file names
    folder: Path  # default folder for analyses of it
    visiting: str | None = None  # id of a game that it never saw, played instead of its own
    task: int = 0  # number of the game that it plays first

    @property
    def env_spec(self) -> EnvSpec:
        """Observations and actions of its own games."""
        return self.blueprint.env_spec

    @property
    def games(self) -> tuple[str, ...]:
        """Ids of the games that it plays, in the order of their task numbers."""
        return (self.visiting,) if self.visiting else self.env_spec.tasks

    def task_of(self, env_id: str | None) -> int:
        """Return the number of the game `env_id`; None means its first game.

        Raises:
          ConfigError: if the agent does not play that game.
        """
        if env_id is not None and env_id not in self.games:
            raise ConfigError(f"{self.url} plays {', '.join(self.games)}, not {env_id}.")
        return 0 if env_id is None else self.games.index(env_id)

    def game_config(self, task: int) -> EnvConfig:
        """Return the config of one of `games`: whole games, lost lives end nothing."""
        return game_config(self.blueprint, self.games[task])


def load_agent(url: str, overrides: Sequence[str] = ()) -> LoadedAgent:
    """Load an agent with the flags it was trained with.

    `url` is a run folder, checkpoint file or model folder. `overrides` are flags that replace its
    own, as on the command line of main.py.

    Raises:
      ConfigError: if a flag cannot be honoured.
      CheckpointError: if there is no such agent, or it is damaged, or the flags do not fit it.
    """
    session = prepare(["--op_mode=test", f"--load_model_url={url}", *overrides])
    blueprint, checkpoint = session.blueprint, session.checkpoint
    assert checkpoint is not None, "prepare loads the checkpoint of a test"
    model = blueprint.model()
    model.load_state_dict(checkpoint.state["learner"]["model"])
    model.requires_grad_(False)
    foreign = set(session.envs) - set(blueprint.env_spec.tasks)
    if foreign and len(session.envs) > 1:
        raise ConfigError(
            f"{url} plays {shown_text(blueprint.env_spec.env_id)}, got "
            f"--env={','.join(session.envs)}: expected some of these, or one other game."
        )
    first, tasks = session.envs[0], blueprint.env_spec.tasks
    path = checkpoint.path.resolve()
    run = run_of(path)
    output = checkpoint.output_folder(blueprint.flags.results_dir)
    folder = output / "analysis"
    if output != checkpoint.home:  # models of one name share it
        folder /= checkpoint.name
    return LoadedAgent(
        model.eval(),
        blueprint,
        url,
        checkpoint.path,
        checkpoint.agent_steps,
        output.name if run is None else f"{run.name}-{path.stem}",
        folder,
        min(foreign, default=None),
        tasks.index(first) if first in tasks else 0,
    )


def load_player(url: str, env: str | None = None) -> tuple[LoadedAgent, int]:
    """Load an agent to play `env`: one of its own games (None: its first), or another one.

    The actions of another game must be among the agent's. Raises the errors of `load_agent`.

    Returns:
      The agent, and the number of the game among those it plays.
    """
    agent = load_agent(url, [f"--env={env}"] if env else [])
    return agent, agent.task_of(env)


class Moment(NamedTuple):
    """One decision in one game, with the picture of it."""

    frame: np.ndarray  # [H, W, 3] uint8, as the game shows itself
    step: Step  # of one environment; its action is ignored where the game is over already


def play(
    agent: LoadedAgent,
    *,
    task: int = 0,
    seed: int = 0,
    greedy: bool = False,
    steps: int | None = None,
    actions: Sequence[int] | None = None,
) -> Iterator[Moment]:
    """Play one environment and yield every moment, rendered as the game shows itself.

    After the end of a game comes one more moment with its last picture, whose action is ignored.

    Args:
      agent: the agent that plays.
      task: number of the game among the agent's.
      seed: equal seeds give equal games.
      greedy: take the most probable action instead of a draw.
      steps: number of steps after which to stop; None: no limit.
      actions: actions that are done in place of the agent's, which still decides; the last one ends
        it.
    """
    _ = agent.env_spec.action_count  # ConfigError of actions that films cannot show
    forced: Iterable[np.ndarray | None]
    forced = itertools.repeat(None) if actions is None else (np.array([each]) for each in actions)
    with closing(make_filmed_env(agent.game_config(task), env_seeds(seed, 1))) as env:
        player = Player(agent.model, env, [task], seed=seed, greedy=greedy, keep_inputs=True)
        for action in itertools.islice(forced, steps):
            frame = np.array(env.render())
            with _one_thread():
                step = player.step(action)
            yield Moment(frame, step)


def play_many(
    agent: LoadedAgent,
    num_envs: int,
    *,
    tasks: Sequence[int] | None = None,
    seed: int = 0,
    greedy: bool = False,
    steps: int | None = None,
) -> Iterator[Step]:
    """Play environments at once on the fastest backend, without pictures.

    `tasks` has the number of the game of each environment, by default the agent's games in turn.
    The other arguments are those of `play`; without `steps` it goes on for ever.
    """
    if tasks is None:
        tasks = sorted(index % len(agent.games) for index in range(num_envs))
    config = agent.game_config(0)
    if agent.games == agent.env_spec.tasks:
        config = env_config(agent.blueprint.flags, testing=True)  # all of them
    seeds = env_seeds(seed, num_envs)
    with closing(make_env_vector(config, num_envs, seeds, tasks=tasks)) as env:
        player = Player(agent.model, env, tasks, seed=seed, greedy=greedy, keep_inputs=True)
        for _ in itertools.repeat(None) if steps is None else range(steps):
            with _one_thread():
                step = player.step()
            yield step


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread, as test mode does: beside other programs more are much slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
