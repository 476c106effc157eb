"""What do agents do? The share of each action, over seeds, games and agents.

Each agent plays whole games, one per seed; each game gives the share of every action in it, and the
mean probability that the policy gave to it. Reported is the mean over games with a 95 % bootstrap
interval: games are drawn again, not steps, because the steps of a game are not independent.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ritornello.agent.stored.hub import is_on_hub
from ritornello.analysis.figure import save
from ritornello.analysis.options import (
    add,
    agent_parser,
    progress,
    results_folder,
    say_written,
    split_label,
    until_interrupted,
)
from ritornello.analysis.playing import LoadedAgent, load_player, play_many
from ritornello.analysis.statistics import interval
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.core.spec import game_name
from ritornello.metrics.charts import COLOURS, INK, figure_text, new_figure, style
from ritornello.wrappers.trusted_modules import trust_modules_of

EXAMPLES = """  python -m ritornello.analysis actions --load_model_url=models/pong
  python -m ritornello.analysis actions --load_model_url=before=results/<run>,after=results/<other>
  python -m ritornello.analysis actions --load_model_url=results/<run of several games> --games=16

Several agents are separated by commas; label=place names one in the figure.
"""


@dataclass(frozen=True)
class Played:
    """What one agent did in G games of one kind; a game is a row."""

    agent: str
    env: str
    names: tuple[str, ...]  # A actions
    steps: np.ndarray  # [G] int64
    shares: np.ndarray  # [G, A] float64, sum to 1
    probabilities: np.ndarray  # [G, A] float64, mean of the policy, sum to 1
    entropy: np.ndarray  # [G] float64, mean of the policy's, nats
    returns: list[float]  # of the games that came to their end

    def report(self) -> dict[str, object]:
        """Return plain JSON types: means and intervals over the games."""
        both = zip(mean_of(self.shares), mean_of(self.probabilities), strict=True)
        (entropy,) = mean_of(self.entropy[:, None])
        return {
            "agent": self.agent,
            "env": self.env,
            "games": len(self.steps),
            "games_ended": len(self.returns),
            "steps": int(self.steps.sum()),
            "return_mean": float(np.mean(self.returns)) if self.returns else None,
            "entropy_nats": entropy,
            "actions": {
                name: {"share": share, "probability": probability}
                for name, (share, probability) in zip(self.names, both, strict=True)
            },
        }


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.env:
        trust_modules_of(options.env)
    agents = _load(options.load_model_url, options.env)
    first, _ = next(iter(agents.values()))
    with results_folder(options.output or first.folder / "actions") as folder:
        so_far: dict[tuple[str, int], Played] = {}
        with until_interrupted(so_far) as ending:
            for label, (agent, tasks) in agents.items():
                for task in tasks:
                    for one in watch(agent, label, task, options):
                        so_far[label, task] = one
        played = list(so_far.values())
        write_json(folder / "actions.json", {"agents": [one.report() for one in played]})
        _draw(played, folder / "actions.png")
        say_written(folder, "actions.png", "actions.json")
    return ending.status


def watch(
    agent: LoadedAgent, label: str, task: int, options: argparse.Namespace
) -> Iterator[Played]:
    """Let an agent play one game per seed, side by side; yield what it did so far at each step.

    Args:
      agent: the agent that plays.
      label: its name in the report.
      task: number of the game among those that the agent plays.
      options: the command line; `games`, `max_steps`, `seed` and `greedy` are read.
    """
    spec, count, env = agent.env_spec, options.games, agent.games[task]
    counts = np.zeros((count, spec.action_count))
    probabilities = np.zeros_like(counts)
    entropy, steps = np.zeros(count), np.zeros(count, np.int64)
    playing = np.ones(count, np.bool_)
    returns: list[float] = []
    tasks = [task] * count
    moments = play_many(
        agent, count, tasks=tasks, seed=options.seed, greedy=options.greedy, steps=options.max_steps
    )
    with progress() as bars:
        about = f"{label}: {game_name(env)}"
        for step in bars.track(moments, options.max_steps, description=about):
            log_p = step.heads.params.double().log_softmax(-1)
            p = log_p.exp()
            rows = np.flatnonzero(playing)
            counts[rows, step.action[rows]] += 1
            probabilities[rows] += p.numpy()[rows]
            entropy[rows] -= (p * log_p).sum(-1).numpy()[rows]
            steps[rows] += 1
            for end in step.episodes:
                if playing[end.env_id]:
                    playing[end.env_id] = False
                    returns.append(end.return_raw)
            shares, means = counts / steps[:, None], probabilities / steps[:, None]
            names = spec.action_meanings
            yield Played(
                label, env, names, steps.copy(), shares, means, entropy / steps, returns.copy()
            )
            if not playing.any():
                break


def mean_of(values: np.ndarray) -> list[dict[str, float | None]]:
    """Return the mean over games of each column of [G, K], with its interval, as JSON types.

    The plain mean, because shares of all actions must still sum to 1; games are drawn again as
    whole rows.
    """
    means, bounds = values.mean(0).tolist(), interval([values], np.mean)
    if bounds is None:
        return [{"mean": mean, "low": None, "high": None} for mean in means]
    lows, highs = (bound.tolist() for bound in bounds)
    found = zip(means, lows, highs, strict=True)
    return [{"mean": mean, "low": low, "high": high} for mean, low, high in found]


def _load(places: str, env: str | None) -> dict[str, tuple[LoadedAgent, list[int]]]:
    """Return label -> (agent, the numbers of the games it shall play)."""
    agents: dict[str, tuple[LoadedAgent, list[int]]] = {}
    for place in filter(None, places.split(",")):
        label, url = split_label(place, lambda url: is_on_hub(url) or Path(url).exists())
        agent, task = load_player(url, env)
        name = label or agent.label
        if name in agents:
            raise ConfigError(
                f"--load_model_url names {name!r} twice: tell them apart, as in before=A,after=B."
            )
        agents[name] = (agent, [task] if env else list(range(len(agent.games))))
    if not agents:
        raise ConfigError("--load_model_url is empty: give a run, checkpoint or model folder.")
    return agents


def _draw(played: Sequence[Played], path: Path) -> None:
    """Draw bars: a panel per game, a group per action, a colour per agent."""
    agents = list(dict.fromkeys(one.agent for one in played))
    panels: dict[str, list[Played]] = {}
    for one in played:
        panels.setdefault(one.env, []).append(one)
    most = max(len(one.names) for one in played)
    width = max(6.0, 1.6 + 0.35 * most * max(2, len(agents)))
    figure = new_figure(width, 0.6 + 2.8 * len(panels), dpi=110)
    for number, (env, here) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(len(panels), 1, number)
        # Agents of one game may differ in their actions: one may have the full set.
        names = list(dict.fromkeys(name for one in here for name in one.names))
        width = 0.8 / len(here)
        for place, one in enumerate(here):
            means = 100 * one.shares.mean(0)
            places = np.array([names.index(name) for name in one.names])
            axes.bar(
                places + (place - (len(here) - 1) / 2) * width,
                means,
                width,
                yerr=_errors(one),
                color=COLOURS[agents.index(one.agent) % len(COLOURS)],
                ecolor=INK,
                label=f"{figure_text(one.agent)} (entropy {one.entropy.mean():.2f} nats)",
            )
        style(axes, game_name(env), "", "% of steps")
        axes.set_xticks(np.arange(len(names)), [figure_text(name) for name in names])
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    save(figure, path)


def _errors(one: Played) -> np.ndarray | None:
    """Return how far the interval of each action reaches below and above it, [2, A] percent."""
    bounds = interval([one.shares], np.mean)
    if bounds is None:
        return None
    means = one.shares.mean(0)
    # Rounding may put the bound of a constant a hair beyond its mean.
    return 100 * np.array([means - bounds[0], bounds[1] - means]).clip(min=0)


def _parser() -> argparse.ArgumentParser:
    about = "runs, checkpoints or model folders, label=place,..."
    parser = agent_parser("actions", __doc__, EXAMPLES, about)
    parser.add_argument("--env", metavar="GAME", help="play only this game (default: all)")
    add(parser, "games", 8, "games of each kind, each from a seed of its own", least=1)
    add(parser, "max_steps", 3000, "end a game after this many steps", least=1)
    add(parser, "greedy", False, "take the most probable action instead of drawing one")
    return parser
