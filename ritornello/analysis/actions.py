"""What do agents do? The share of each action, over seeds, games and agents.

Each agent plays whole games, one per seed; each game gives the share of every action in it, and the
mean probability that the policy gave to it. Reported is the mean over games with a 95 % bootstrap
interval: games are drawn again, not steps, because the steps of a game are not independent.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.agent.stored.checkpoint_folder import ON_HUB
from ritornello.analysis.options import (
    add,
    agent_parser,
    places_in,
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
from ritornello.metrics.charts import COLOURS, INK, figure_text, new_figure, save, style
from ritornello.wrappers.trusted_modules import trust_modules_of

EXAMPLES = """  python -m ritornello.analysis actions --load_model_url=models/pong
  python -m ritornello.analysis actions --load_model_url=before=results/<run>,after=results/<other>
  python -m ritornello.analysis actions --load_model_url=results/<run of several games> --games=16

Several agents are separated by commas; label=place names one in the figure.
"""
MAX_STEPS = 3000  # after which a game is ended


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    about = "runs, checkpoints or model folders, label=place,..."
    parser = agent_parser("actions", __doc__, EXAMPLES, about)
    parser.add_argument("--env", metavar="GAME", help="play only this game (default: all)")
    add(parser, "games", 8, "games of each kind, each from a seed of its own", least=1)
    add(parser, "greedy", False, "take the most probable action instead of drawing one")
    options = parser.parse_args(arguments)
    if options.env:
        trust_modules_of(options.env)
    agents = _load(options.load_model_url, options.env)
    first, _ = next(iter(agents.values()))
    folder = options.output or first.folder / "actions"
    reports: list[dict[str, Any]] = []
    with results_folder(folder), until_interrupted(reports) as status:
        for label, (agent, tasks) in agents.items():
            for task in tasks:
                report = watch(agent, task, options)
                reports.append({"agent": label, **report})
    write_json(folder / "actions.json", {"agents": reports})
    _draw(reports, folder / "actions.png")
    say_written(folder, "actions.png", "actions.json")
    return status[0]


def watch(agent: LoadedAgent, task: int, options: argparse.Namespace) -> dict[str, Any]:
    """Let an agent play one game per seed, side by side; return its actions as JSON types.

    `task` is the number of the game among those that the agent plays; of `options`, `games`, `seed`
    and `greedy` are read.
    """
    games, env, names = options.games, agent.games[task], agent.env_spec.action_meanings
    is_playing = np.ones(games, np.bool_)
    steps = np.zeros(games, np.int64)
    returns: list[float] = []  # of the games that came to their end
    counts, probabilities = np.zeros((2, games, len(names)))
    entropy = np.zeros((games, 1))
    play = {"seed": options.seed, "greedy": options.greedy, "steps": MAX_STEPS}
    moments = play_many(agent, games, tasks=[task] * games, **play)
    with progress() as bars:
        for step in bars.track(moments, MAX_STEPS, description=f"playing {game_name(env)}"):
            log_p = step.heads.params.double().log_softmax(-1)
            p = log_p.exp()
            rows = np.flatnonzero(is_playing)
            steps[rows] += 1
            counts[rows, step.action[rows]] += 1
            probabilities[rows] += p.numpy()[rows]
            entropy[rows] -= (p * log_p).sum(-1, keepdim=True).numpy()[rows]
            for end in step.episodes:
                if is_playing[end.env_id]:
                    is_playing[end.env_id] = False
                    returns.append(end.return_raw)
            if not is_playing.any():
                break
    shares, meant = (mean_of(sums / steps[:, None]) for sums in (counts, probabilities))
    return {
        "env": env,
        "games": games,
        "games_ended": len(returns),
        "steps": int(steps.sum()),
        "return_mean": float(np.mean(returns)) if returns else None,
        "entropy_nats": mean_of(entropy / steps[:, None])[0],
        "actions": {
            name: {"share": share, "probability": probability}
            for name, share, probability in zip(names, shares, meant, strict=True)
        },
    }


def mean_of(values: np.ndarray) -> list[dict[str, float | None]]:
    """Return the mean over games of each column of [G, K], with its interval, as JSON types.

    It is the plain mean, because shares of all actions must still sum to 1; games are drawn again
    as whole rows.
    """
    means, bounds = values.mean(0).tolist(), interval([values], np.mean)
    if bounds is None:
        return [{"mean": mean, "low": None, "high": None} for mean in means]
    lows, highs = (bound.tolist() for bound in bounds)
    found = zip(means, lows, highs, strict=True)
    return [{"mean": mean, "low": low, "high": high} for mean, low, high in found]


def _is_there(url: str) -> bool:
    return url.startswith(ON_HUB) or Path(url).exists()


def _load(places: str, env: str | None) -> dict[str, tuple[LoadedAgent, list[int]]]:
    """Return label -> (agent, numbers of the games that it plays)."""
    agents: dict[str, tuple[LoadedAgent, list[int]]] = {}
    for place in places_in(places, _is_there):
        label, url = split_label(place, _is_there)
        agent, task = load_player(url, env)
        _ = agent.env_spec.action_count  # ConfigError of actions that cannot be counted
        name = label or agent.label
        if name in agents:
            raise ConfigError(
                f"--load_model_url names {name!r} twice: tell them apart, as in before=A,after=B."
            )
        agents[name] = (agent, [task] if env else list(range(len(agent.games))))
    if not agents:
        raise ConfigError("--load_model_url is empty: give a run, checkpoint or model folder.")
    return agents


def _draw(reports: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw bars: a panel per game, a group per action, a colour per agent."""
    agents = list(dict.fromkeys(one["agent"] for one in reports))
    envs = list(dict.fromkeys(one["env"] for one in reports))
    most = max(len(one["actions"]) for one in reports)
    width = max(6.0, 1.6 + 0.35 * most * max(2, len(agents)))
    figure = new_figure(width, 0.6 + 2.8 * len(envs), dpi=110)
    for number, env in enumerate(envs, start=1):
        axes = figure.add_subplot(len(envs), 1, number)
        here = [one for one in reports if one["env"] == env]
        # Agents of one game may differ in their actions: one may have the full set.
        names = list(dict.fromkeys(name for one in here for name in one["actions"]))
        width = 0.8 / len(here)
        for place, one in enumerate(here):
            shares = [action["share"] for action in one["actions"].values()]
            about = f"{figure_text(one['agent'])} (entropy {one['entropy_nats']['mean']:.2f} nats)"
            # A game alone has no interval: NaN draws none.
            low, mean, high = (
                100 * np.array([share[part] for share in shares], np.float64)
                for part in ("low", "mean", "high")
            )
            axes.bar(
                [
                    names.index(name) + (place - (len(here) - 1) / 2) * width
                    for name in one["actions"]
                ],
                mean,
                width,
                # Rounding may put the bound of a constant a hair beyond its mean.
                yerr=np.array([mean - low, high - mean]).clip(min=0),
                color=COLOURS[agents.index(one["agent"]) % len(COLOURS)],
                ecolor=INK,
                label=about,
            )
        style(axes, game_name(env), "", "% of steps")
        axes.set_xticks(np.arange(len(names)), [figure_text(name) for name in names])
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    save(figure, path)
