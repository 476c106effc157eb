"""One evaluation: whole games with fixed weights while training goes on, and what they scored.

The rules are those of test mode: lost lives end nothing, each environment plays a fixed share of
the games, and each has a start of its own. One half of the games is played with actions that are
drawn from the policy, the other with the most probable ones. The seeds follow from the number of
the update, so the same weights always play the same games, and other weights play others.

`Evaluation` plays, in whatever process: in the trainer's thread where a run is to be repeated
exactly, or in one of its own (`follower_main`), which agent/run/evaluating.py starts, asks, watches
and ends. That one is asked only while it rests, so nothing ever queues:

    trainer                                     follower
    weights into the board, then an Order ────► copies the weights, plays
    Row, Row, ..., Done ◄─────────────────────  tells each row when its games are over

Messages are small: each fits into the pipe at once, and neither side waits in a send. The end of
the pipe is the wish to leave.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from ritornello.agent.acting.acting_model import FlatWeights
from ritornello.agent.assembly import Blueprint, model_of_shapes
from ritornello.agent.machine import EVALUATION_SHARE, cpu_count, give_way, niceness_of_share
from ritornello.agent.stored.best_evaluated import keep
from ritornello.agent.testing.score_table import (
    Game,
    Report,
    mean_human_normalised,
    policy_name,
    summarise,
    test_facts,
)
from ritornello.agent.testing.whole_games import film_game, play_games
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.rng import child_seed
from ritornello.core.run_layout import FILMS
from ritornello.flags.presets import preset_flags
from ritornello.transport.channel import Failed, last_words
from ritornello.transport.lifeline import LifelineEnd, Phase
from ritornello.transport.weights import WeightBoard
from ritornello.wrappers.trusted_modules import trust_kwargs, trust_modules_of

# What a preset may change for evaluations. All else decides what the agent sees and can do, which
# belongs to its network.
PRESET_RULES = ("repeat_action_probability", "fire_reset", "max_episode_frames", "noop_threshold")
MAX_STEPS = 2_000_000  # of all environments together, for the games of one policy: they never end
MAX_FILM_STEPS = 108_000  # 30 minutes of Atari if no action is repeated; a longer film nobody sees
LOOK_S = 1.0  # how often a resting follower shows that it lives


@dataclass(frozen=True)
class Order:
    """What is to be evaluated. Plain and picklable."""

    updates: int  # number of updates in the weights
    agent_steps: int  # agent steps of the run when the weights were the newest
    is_filmed: bool
    best: float | None  # score that is to be beaten; None: there is none
    facts: dict[str, Any]  # facts about the model, for its folder if it is the best


@dataclass(frozen=True)
class Row:
    """What one policy scored in one game: a line of evaluations.csv without its time."""

    agent_steps: int
    updates: int
    game: str
    policy: str
    games: int
    mean: float
    standard_error: float | None  # None: of a single game there is none
    min: float
    max: float
    mean_length: float  # agent steps
    distinct_games: int
    film: str  # its name in the run folder; "" without


@dataclass(frozen=True)
class Done:
    """The end of an evaluation."""

    updates: int
    agent_steps: int
    scores: dict[str, float]  # policy -> score, see `score_of`
    is_best: bool
    seconds: float = 0.0
    problem: str = ""  # what else could not be done, in words


def evaluation_blueprint(blueprint: Blueprint) -> Blueprint:
    """Return the blueprint by whose rules evaluations are played.

    Raises:
      ConfigError: if --evaluation_preset names no preset, or one without rules of games.
    """
    name = blueprint.flags.evaluation_preset
    preset = preset_flags(name) if name else {}
    rules = {flag: value for flag, value in preset.items() if flag in PRESET_RULES}
    if name and not rules:
        raise ConfigError(
            f"--evaluation_preset={name} says nothing of how games are played; expected a preset "
            f"that sets one of {', '.join(PRESET_RULES)}, e.g. sticky."
        )
    # The cores are the trainer's, so one thread plays whatever the learner has.
    changed = {"learner_thread_count": 1, **rules}
    return replace(blueprint, flags=blueprint.flags.model_copy(update=changed))


def snapshot_layout(blueprint: Blueprint) -> FlatWeights:
    """Return the layout in which weights are handed over: all of them, as the learner has them."""
    return FlatWeights(model_of_shapes(blueprint.flags, blueprint.env_spec))


class Evaluation:
    """Plays evaluations. One thread uses it."""

    def __init__(self, blueprint: Blueprint, folder: Path) -> None:
        """Build the models.

        `blueprint` is the result of `evaluation_blueprint`; `folder` is that of the run, for films
        and the best model.
        """
        self._blueprint = blueprint
        self._folder = folder
        self._trained = blueprint.model()
        layout = FlatWeights(self._trained)
        self.block = np.zeros(layout.nbytes, np.uint8)  # the weights that play are written here
        layout.bind(self._trained, self.block)
        self._acting, self._acting_block = blueprint.acting_model()
        self._can_film = True

    def play(self, order: Order, tell: Callable[[Row], None], beat: Callable[[], None]) -> Done:
        """Play the games of one evaluation with the weights in `block`.

        `tell` is called with each row when its games are over, `beat` at each step. An exception
        from either ends the evaluation.

        Raises:
          EndlessGameError: if the games do not end.
        """
        threads = torch.get_num_threads()
        try:
            self._blueprint.acting_weights.pack(self._trained, self._acting_block)
            film, problem = self._film(order, beat) if order.is_filmed else ("", "")
            reports: dict[str, list[Report]] = {}
            for policy in ("sampled", "greedy"):
                for env in self._blueprint.env_spec.tasks:
                    games = self._play(order, env, policy == "greedy", beat)
                    report = summarise(games, env, "", order.agent_steps, policy == "greedy")
                    reports.setdefault(policy, []).append(report)
                    tell(_row(order, report, games, film))
                    film = ""
        finally:
            torch.set_num_threads(threads)
        scores = {policy: score_of(of_policy) for policy, of_policy in reports.items()}
        is_best = order.best is None or scores["sampled"] > order.best
        if is_best:
            unkept = self._keep(order, reports["sampled"], scores)
            is_best = not unkept  # else this score would be the one that later models must beat
            problem = "; ".join(filter(None, (problem, unkept)))
        return Done(order.updates, order.agent_steps, scores, is_best, problem=problem)

    def _play(self, order: Order, env: str, greedy: bool, beat: Callable[[], None]) -> list[Game]:
        blueprint = self._rules(order, policy_name(greedy))
        wanted, model = blueprint.flags.evaluation_games, self._acting
        games = play_games(blueprint, model, env, wanted, each_step=beat, max_steps=MAX_STEPS)
        return list(games)

    def _rules(self, order: Order, policy: str) -> Blueprint:
        """Return the blueprint with the seed of these games."""
        seed = child_seed(self._blueprint.flags.seed or 0, "evaluation", order.updates, policy)
        update = {"seed": seed % 2**31, "greedy": policy == "greedy"}
        return replace(self._blueprint, flags=self._blueprint.flags.model_copy(update=update))

    def _film(self, order: Order, beat: Callable[[], None]) -> tuple[str, str]:
        """Film a game of its own; return (name of the film, what went wrong)."""
        if not self._can_film:
            return "", ""
        folder = self._folder / FILMS
        name = f"update_{order.updates:08d}.mp4"
        try:
            blueprint, env = self._rules(order, "sampled"), self._blueprint.env_spec.tasks[0]
            path, most = folder / name, MAX_FILM_STEPS
            film_game(blueprint, self._acting, env, path, each_step=beat, max_steps=most)
        except (PlatformError, OSError) as error:
            self._can_film = False
            return "", f"no more films are made: {error}"
        return f"{FILMS}/{name}", ""

    def _keep(self, order: Order, reports: list[Report], scores: dict[str, float]) -> str:
        """Write the model folder of the best model; return what went wrong, "" if nothing."""
        facts = {
            **order.facts,
            "env_spec": self._blueprint.env_spec.to_dict(),
            "agent_steps": order.agent_steps,
            "updates": order.updates,
            "test": test_facts(reports),
        }
        weights, flags = self._trained.state_dict(), self._blueprint.flags.to_json()
        try:
            keep(self._folder, weights, flags, facts, scores["sampled"])
        except (ConfigError, OSError) as error:
            return f"the best model of the evaluations could not be kept: {error}"
        return ""


def score_of(reports: list[Report]) -> float:
    """Return the score by which models are ranked: the mean return, over all games.

    With several games, this is the mean human-normalised score of those for which human play is
    known; if it is known for none, the mean of the mean returns.
    """
    if len(reports) > 1:
        normalised = mean_human_normalised(reports)
        if normalised is not None:
            return normalised
    return fmean(report.mean for report in reports)


def remove_half_films(run: Path) -> None:
    """Remove unfinished films that killed processes have left in a run folder."""
    for left in (run / FILMS).glob(".update_*.mp4"):
        left.unlink(missing_ok=True)


def _row(order: Order, report: Report, games: list[Game], film: str) -> Row:
    returns = np.array([game.return_raw for game in games])
    error = float(returns.std(ddof=1) / math.sqrt(len(games))) if len(games) > 1 else None
    return Row(
        agent_steps=order.agent_steps,
        updates=order.updates,
        game=report.env,
        policy=report.policy,
        games=report.episodes,
        mean=report.mean,
        standard_error=error,
        min=report.min,
        max=report.max,
        mean_length=float(np.mean([game.length_steps for game in games])),
        distinct_games=report.distinct_games,
        film=film,
    )


def follower_main(
    blueprint: Blueprint, folder: Path, board: WeightBoard, end: Connection, lifeline: LifelineEnd
) -> None:
    """Play in a process of its own, at low priority, until the trainer has hung up.

    `blueprint` is the result of `evaluation_blueprint`, and `folder` that of the run.
    """
    ignore_interrupts()
    lifeline.hold()
    flags = blueprint.flags
    for names in (flags.env, flags.model):  # the trainer's process has checked them
        trust_modules_of(names)
    trust_kwargs(flags.env_kwargs)
    os.environ["SDL_VIDEODRIVER"] = "dummy"  # films are made, and no window is opened
    torch.set_num_threads(1)
    beat = lifeline.pulse.beat
    try:
        evaluation = Evaluation(blueprint, folder)
        give_way(niceness_of_share(EVALUATION_SHARE * cpu_count()))
        while True:
            beat(Phase.RESTING)
            if end.poll(LOOK_S):
                order: Order = end.recv()
                began_s = time.monotonic()
                beat(Phase.PLAYING)
                if board.read_if_newer(order.updates - 1, evaluation.block) != order.updates:
                    raise RuntimeError(f"the board does not hold the weights of {order.updates}")
                done = evaluation.play(order, end.send, lambda: beat(Phase.PLAYING))
                end.send(replace(done, seconds=time.monotonic() - began_s))
    except BaseException as error:
        # Mostly the trainer has hung up; but a pipe of an environment may have ended as well.
        with contextlib.suppress(OSError):
            end.send(Failed(last_words("".join(traceback.format_exception(error)))))
        sys.exit(1)
    finally:
        end.close()
