"""What became of a population: the agents side by side, and what each made of the others' unrolls.

For each agent one row: its score, its part of what it replayed, and how much of each other agent's
steps its trust region kept. The figure has the learning curves above, and below the share of
foreign steps that each agent trusted, over its agent steps. `multi_train.py` writes both at the end
of a sequence with `share_replay` (population.md, population.png).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ritornello.analysis.figure import MEAN_RETURN, save
from ritornello.analysis.options import command_parser, results_folder
from ritornello.core import markdown
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.metrics.charts import COLOURS, INK, figure_text, new_figure, style
from ritornello.metrics.curve import Curve, curve_of
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records
from ritornello.sequences.folder import RunState, SequenceFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, FIGURE = "population.md", "population.png"
DRAWN, TRUSTED = "share/foreign_drawn_fraction", "trusted_fraction"
COUNTS = ("taken", "passed_over", "lost", "refused")
# A record of an update at a time says little; the newest ones together say it.
LAST_RECORDS = 20

EPILOG = """examples:
  python -m ritornello.analysis population results/laser_population_<time>
  python -m ritornello.analysis population results/laser_population_<time> --output=research/results/population

The score is the mean return of the last 100 games of training. "trusted of agent 1" is the share of
the steps drawn from that agent's unrolls that --use_kl_mask keeps, over the newest records; "-"
where the run has no mask, or drew nothing of it.
"""


@dataclass(frozen=True)
class Agent:
    """What one agent of a population has written, whatever became of it."""

    state: RunState
    records: tuple[Record, ...]
    curve: Curve | None  # None: it has finished no game

    @property
    def name(self) -> str:
        """What it is called in tables and figures."""
        return f"{self.state.agent}: {self.state.group}"

    def last(self, metric: str) -> float | None:
        """Return the newest value of a metric; None if it was never recorded."""
        found = (record.values.get(metric) for record in reversed(self.records))
        return next((value for value in found if value is not None), None)

    def recent(self, metric: str) -> float | None:
        """Return the mean of a metric over the newest records that have it."""
        values = [r.values[metric] for r in self.records if metric in r.values][-LAST_RECORDS:]
        return sum(values) / len(values) if values else None


def populations(folder: SequenceFolder) -> dict[int, list[Agent]]:
    """Return seed -> the agents of its population, in the order of their numbers."""
    found: dict[int, list[Agent]] = {}
    for state in folder.runs:
        if state.agent is not None:
            made = folder.run_folders(state)
            records = [record for each in made for record in read_records(each.path)]
            agent = Agent(state, tuple(records), curve_of(records))
            found.setdefault(state.seed, []).append(agent)
    return {seed: sorted(agents, key=_number) for seed, agents in found.items()}


def page(folder: SequenceFolder, found: dict[int, list[Agent]]) -> str:
    """Return the tables as Markdown."""
    lines = [f"# The populations of {shown_text(folder.name)}"]
    for seed, agents in found.items():
        lines += ["", f"## Seed {seed}", ""]
        headings = ["agent", "status", "agent steps", "score", "best game", "of others in replay"]
        headings += [f"trusted of agent {agent.state.agent}" for agent in agents]
        headings += [f"unrolls {name.replace('_', ' ')}" for name in COUNTS]
        lines += markdown.table(headings, [_row(agent, agents) for agent in agents])
    return "\n".join(lines) + "\n"


def draw(found: dict[int, list[Agent]]) -> Figure:
    """Return the figure: a column for each seed, curves above, trust below."""
    figure = new_figure(max(6.0, 4.2 * len(found)), 6.6, dpi=110 if len(found) < 3 else 90)
    panels = figure.subplots(2, len(found), squeeze=False)
    for column, (seed, agents) in enumerate(found.items()):
        above, below = panels[:, column]
        for agent in agents:
            colour = COLOURS[_number(agent) % len(COLOURS)]
            if agent.curve is not None:
                above.plot(agent.curve.agent_steps, agent.curve.mean_return, color=colour)
                ends = (agent.curve.agent_steps[-1:], agent.curve.mean_return[-1:])
                above.plot(*ends, "o", color=colour, markersize=3)
            steps, trusted = _trust_over_time(agent, agents)
            below.plot(steps, trusted, color=colour)
        style(above, f"seed {seed}", "agent steps", MEAN_RETURN)
        style(below, "share of others' steps that it trusts", "agent steps", "fraction")
        below.set_ylim(0, 1.02)
    names = dict.fromkeys(agent.name for agents in found.values() for agent in agents)
    for name in names:
        colour = COLOURS[int(name.partition(":")[0]) % len(COLOURS)]
        panels[0, 0].plot([], [], color=colour, linewidth=2, label=figure_text(name))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    return figure


def write_population(folder: SequenceFolder, output: Path | None = None) -> bool:
    """Write PAGE and FIGURE into a folder, if the sequence has a population; return whether.

    Args:
      folder: the sequence.
      output: where to; None: into its own folder.
    """
    found = populations(folder)
    if not found:
        return False
    output = output or folder.path
    write_text(output / PAGE, page(folder, found))
    if any(agent.records for agents in found.values() for agent in agents):
        save(draw(found), output / FIGURE)
    return True


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    folder = SequenceFolder.open(options.sequence_folder)
    with results_folder(Path(options.output) if options.output else folder.path) as output:
        if not write_population(folder, output):
            raise ConfigError(
                f"{shown_text(options.sequence_folder)} has no agents that share their replay: "
                "expected the folder of a sequence with share_replay. For others: "
                "python -m ritornello.analysis compare --sequence_folder=<folder>"
            )
    sys.stdout.write(page(folder, populations(folder)))
    sys.stdout.write(f"written to {output}: {PAGE}, {FIGURE}\n")
    return 0


def _row(agent: Agent, agents: Iterable[Agent]) -> list[str]:
    curve = agent.curve
    steps = agent.records[-1].agent_steps if agent.records else 0
    cells = [agent.name, agent.state.status, f"{steps:,}"]
    cells.append("-" if curve is None else f"{curve.mean_return[-1]:,.2f}")
    cells.append("-" if curve is None or curve.best is None else f"{curve.best:,.1f}")
    cells.append(_fraction(agent.last(DRAWN)))
    others = [_number(other) for other in agents]
    cells += [_fraction(agent.recent(f"share/agent_{number}/{TRUSTED}")) for number in others]
    for name in COUNTS:
        counts = [agent.last(f"share/agent_{number}/{name}") for number in others]
        known = [count for count in counts if count is not None]
        cells.append(f"{sum(known):,.0f}" if known else "-")
    return cells


def _trust_over_time(agent: Agent, agents: Iterable[Agent]) -> tuple[list[int], list[float]]:
    """Return at which steps which mean share of the other agents' steps was trusted."""
    names = [f"share/agent_{_number(o)}/{TRUSTED}" for o in agents if o is not agent]
    steps, trusted = [], []
    for record in agent.records:
        values = [record.values[name] for name in names if name in record.values]
        if values:
            steps.append(record.agent_steps)
            trusted.append(sum(values) / len(values))
    return steps, trusted


def _fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _number(agent: Agent) -> int:
    return -1 if agent.state.agent is None else agent.state.agent


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("population", __doc__, EPILOG)
    parser.add_argument("sequence_folder", help="folder that multi_train.py made")
    parser.add_argument("--output", default="", help="folder to write into (default: its own)")
    return parser
