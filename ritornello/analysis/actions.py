"""What do agents do? The share of each action, over seeds, games and agents.

Each agent plays whole games, one per seed; each game gives the share of every action in it, and the
mean probability that the policy gave to it. Reported is the mean over games with a 95 % bootstrap
interval: games are drawn again, not steps, because the steps of a game are not independent. Written
are actions.png, actions.csv and actions.json (with the entropy of the policy and the returns).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from ritornello.agent.stored.hub import is_on_hub
from ritornello.analysis.figure import save
from ritornello.analysis.options import (
    add_place,
    at_least,
    command_parser,
    results_folder,
    split_label,
)
from ritornello.analysis.playing import LoadedAgent, load_player, play_many
from ritornello.analysis.playing_options import until_interrupted
from ritornello.analysis.statistics import Estimate, interval
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.core.spec import game_name
from ritornello.metrics.charts import COLOURS, INK, figure_text, new_figure, style
from ritornello.wrappers.trusted_modules import trust_modules_of

EPILOG = """examples:
  python -m ritornello.analysis actions --load_model_url=models/pong
  python -m ritornello.analysis actions --load_model_url=before=results/<run>,after=results/<other>
  python -m ritornello.analysis actions --load_model_url=results/<run of several games> --games=16
  python -m ritornello.analysis actions --load_model_url=models/pong --together

--together counts an action with and without FIRE as one, for games where FIRE changes nothing.
"""
DEFAULT_GAMES = 8
DEFAULT_MAX_STEPS = 3000


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

    def together(self) -> Played:
        """Return the same with X and XFIRE as one action X; FIRE alone stays."""
        stems = [name.removesuffix("FIRE") or name for name in self.names]
        names = tuple(dict.fromkeys(stems))
        into = np.array([[stem == name for name in names] for stem in stems], np.float64)
        return Played(
            self.agent,
            self.env,
            names,
            self.steps,
            self.shares @ into,
            self.probabilities @ into,
            self.entropy,
            self.returns,
        )


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.env:
        trust_modules_of(options.env)
    agents = _load(options.load_model_url, options.env)
    first, _ = next(iter(agents.values()))
    with results_folder(options.output or first.folder / "actions") as folder:
        return _watch_all(agents, options, folder)


def _watch_all(
    agents: Mapping[str, tuple[LoadedAgent, list[int]]], options: argparse.Namespace, folder: Path
) -> int:
    """Let all agents play, and write what they did; return the exit status."""
    so_far: dict[tuple[str, int], Played] = {}
    with until_interrupted(so_far) as ending:
        for label, (agent, tasks) in agents.items():
            for task in tasks:
                for one in watch(agent, label, task, options):
                    so_far[label, task] = one
    played = [one.together() if options.together else one for one in so_far.values()]
    reports = [report(one) for one in played]
    write_json(folder / "actions.json", {"greedy": options.greedy, "agents": reports})
    _write_csv(reports, folder / "actions.csv")
    _draw(played, folder / "actions.png")
    for one in played:
        sys.stdout.write(_line(one) + "\n")
    sys.stdout.write(f"written to {folder}: actions.png, actions.csv, actions.json\n")
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
    spec, count = agent.env_spec, options.games
    counts = np.zeros((count, spec.action_count))
    probabilities = np.zeros((count, spec.action_count))
    entropy = np.zeros(count)
    steps = np.zeros(count, np.int64)
    playing = np.ones(count, np.bool_)
    returns: list[float] = []
    moments = play_many(
        agent,
        count,
        tasks=[task] * count,
        seed=options.seed,
        greedy=options.greedy,
        steps=options.max_steps,
    )
    about = f"{label}: {game_name(agent.games[task])}"
    console = Console(stderr=True)
    for step in track(moments, about, options.max_steps, console=console, transient=True):
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
        each = steps[:, None]
        yield Played(
            label,
            agent.games[task],
            spec.action_meanings,
            steps.copy(),
            counts / each,
            probabilities / each,
            entropy / steps,
            returns.copy(),
        )
        if not playing.any():
            break


def mean_of(values: np.ndarray) -> list[Estimate]:
    """Return the mean over games of each column of [G, K], with its interval.

    The plain mean, because shares of all actions must still sum to 1; games are drawn again as
    whole rows. Equal values give equal intervals; a single game gives none.
    """
    means = values.mean(0)
    bounds = interval([values], np.mean)
    if bounds is None:
        return [Estimate(float(mean)) for mean in means]
    return [Estimate(*map(float, column)) for column in zip(means, *bounds, strict=True)]


def report(played: Played) -> dict[str, object]:
    """Return plain JSON types: means and intervals over the games."""
    shares, probabilities = mean_of(played.shares), mean_of(played.probabilities)
    (entropy,) = mean_of(played.entropy[:, None])
    return {
        "agent": played.agent,
        "env": played.env,
        "games": len(played.steps),
        "games_ended": len(played.returns),
        "steps": int(played.steps.sum()),
        "return_mean": float(np.mean(played.returns)) if played.returns else None,
        "entropy_nats": _as_json(entropy),
        "actions": {
            name: {"share": _as_json(share), "probability": _as_json(probability)}
            for name, share, probability in zip(played.names, shares, probabilities, strict=True)
        },
    }


def _as_json(mean: Estimate) -> dict[str, float | None]:
    return {"mean": mean.value, "low": mean.low, "high": mean.high}


def _load(places: str, env: str | None) -> dict[str, tuple[LoadedAgent, list[int]]]:
    """Return label -> (agent, the numbers of the games it shall play)."""
    agents: dict[str, tuple[LoadedAgent, list[int]]] = {}
    for place in filter(None, places.split(",")):
        label, url = split_label(place, _is_there)
        agent, task = load_player(url, env)
        tasks = [task] if env else list(range(len(agent.games)))
        name = agent.label if label is None else label
        if name in agents:
            raise ConfigError(
                f"--load_model_url names {name!r} twice: tell them apart, as in before=A,after=B."
            )
        agents[name] = (agent, tasks)
    if not agents:
        raise ConfigError("--load_model_url is empty: give a run, checkpoint or model folder.")
    return agents


def _is_there(url: str) -> bool:
    return is_on_hub(url) or Path(url).exists()


def _line(played: Played) -> str:
    shares = ", ".join(
        f"{name} {100 * share:.1f} %"
        for name, share in zip(played.names, played.shares.mean(0), strict=True)
    )
    return f"{played.agent}, {game_name(played.env)}: {shares}"


def _write_csv(reports: Sequence[Mapping[str, object]], path: Path) -> None:
    """Write one row per agent, game and action."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["agent", "env", "action", "share", "low", "high", "probability"])
        for one in reports:
            actions = one["actions"]
            assert isinstance(actions, dict)
            for name, values in actions.items():
                share, probability = values["share"], values["probability"]
                writer.writerow(
                    [one["agent"], one["env"], name, *share.values(), probability["mean"]]
                )


def _draw(played: Sequence[Played], path: Path) -> None:
    """Draw bars: a panel per game, a group per action, a colour per agent."""
    envs = list(dict.fromkeys(one.env for one in played))
    agents = list(dict.fromkeys(one.agent for one in played))
    # Agents of one game may differ in their actions: one may have the full set.
    names_of = {
        env: list(dict.fromkeys(name for one in played if one.env == env for name in one.names))
        for env in envs
    }
    actions = max(map(len, names_of.values()))
    width = max(6.0, 1.6 + 0.35 * actions * max(2, len(agents)))
    figure = new_figure(width, 0.6 + 2.8 * len(envs), dpi=110)
    panels = figure.subplots(len(envs), 1, squeeze=False)[:, 0]
    for env, axes in zip(envs, panels, strict=True):
        here = [one for one in played if one.env == env]
        names = names_of[env]
        width = 0.8 / len(here)
        for number, one in enumerate(here):
            places = np.array([names.index(name) for name in one.names])
            shift = (number - (len(here) - 1) / 2) * width
            means = mean_of(one.shares)
            heights = np.array([100 * mean.value for mean in means])
            # Rounding may put the bound of a constant a hair beyond its mean.
            errors = [
                [max(0.0, h - 100 * (m.value if m.low is None else m.low)) for m, h in
                 zip(means, heights, strict=True)],
                [max(0.0, 100 * (m.value if m.high is None else m.high) - h) for m, h in
                 zip(means, heights, strict=True)],
            ]  # fmt: skip
            colour = COLOURS[agents.index(one.agent) % len(COLOURS)]
            label = f"{figure_text(one.agent)} (entropy {one.entropy.mean():.2f} nats)"
            axes.bar(
                places + shift, heights, width, yerr=errors, color=colour, ecolor=INK, label=label
            )
        style(axes, game_name(env), "", "% of steps")
        axes.set_xticks(np.arange(len(names)), [figure_text(name) for name in names])
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    save(figure, path)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("actions", __doc__, EPILOG)
    add_place(
        parser,
        "runs, checkpoints or model folders; label=place names the agent in the figure",
        "PLACE,...",
    )
    parser.add_argument(
        "--env", metavar="GAME", help="play only this game (default: all games of each agent)"
    )
    parser.add_argument(
        "--games", type=at_least(1), default=DEFAULT_GAMES, metavar="G",
        help="number of games that each agent plays of each kind, each from a seed of its own "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max_steps", type=at_least(1), default=DEFAULT_MAX_STEPS, metavar="N",
        help="end a game after this many steps (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first game (default: %(default)s)"
    )
    parser.add_argument(
        "--greedy", action="store_true", help="take the most probable action instead of drawing one"
    )
    parser.add_argument(
        "--together", action="store_true", help="count X and XFIRE as one action (see below)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder for the results (default: analysis/actions below the run)",
    )
    return parser
