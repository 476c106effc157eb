"""What the terminal shows of a run: the live panel and its plain twin, from Records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ritornello.core.durations import duration
from ritornello.metrics.record import Record
from ritornello.metrics.speed import Speed
from ritornello.metrics.text import MISSING, History, kilojoules, megabytes, percent, short, watts

PANEL_WIDTH = 100
ECHO_WIDTH = (
    2  # a terminal echoes ^C behind the panel; on a line of its own it would tear the panel
)
# Four columns of figures need so many characters, two need half of them.
FIGURES_WIDTH = 90
HIGHLIGHTS = {"mean return": "bold cyan", "score": "bold cyan", "restarts": "bold yellow"}


@dataclass(frozen=True)
class Goal:
    """What the run works towards."""

    title: str  # e.g. "PongNoFrameskip-v4"
    folder: str  # where the results go
    max_agent_steps: int
    games: tuple[str, ...] = ()  # short names, in task order, where there are several
    fill_in: float = 0.0  # share of each replay buffer that is filled before the first update


class View:
    """Turns the newest record into text. Values persist until a newer record has them."""

    def __init__(self, goal: Goal) -> None:
        """Start empty."""
        self._goal = goal
        self._record = Record()
        self._values: dict[str, float] = {}
        self._history = History(60)
        self._speed = Speed()

    def add(self, record: Record) -> None:
        """Take the newest record."""
        self._speed.add(record)
        self._record = record
        self._values.update(record.values)
        if self._headline in record.values:
            self._history.add(record.values[self._headline])

    def waits_for(self) -> str:
        """Return what the run waits for before its first update, "" from then on."""
        if "loss/policy" in self._values:
            return ""
        fills = {name: self._values[f"replay/{name}/fill"] for name in self.buffers()}
        if not any(fills.values()):
            alive = int(self._values.get("workers/alive", 0))
            return f"starting: {alive} worker{'s' * (alive != 1)}, nothing is played yet"
        so_far = ", ".join(f"{name} {percent(fill)}" for name, fill in fills.items())
        return f"filling the replay to {percent(self._goal.fill_in)}: {so_far}"

    def progress(self) -> float:
        """Return the share of the run that is done, in [0, 1]."""
        return min(1.0, self._record.agent_steps / max(1, self._goal.max_agent_steps))

    def eta(self) -> str:
        """Return the time that is left, as text; empty while it is unknown."""
        seconds = self._speed.seconds_until(self._goal.max_agent_steps)
        return "" if seconds is None else duration(seconds)

    @property
    def _headline(self) -> str:
        """The metric by which one sees whether something is learned."""
        return "episode/score_mean" if self._goal.games else "episode/return_mean"

    def buffers(self) -> list[str]:
        """Return the names of the replay buffers, in the order of their first appearance."""
        names = [name.split("/") for name in self._values if name.endswith("/fill")]
        return [parts[1] for parts in names if len(parts) == 3 and parts[0] == "replay"]

    def line(self) -> str:
        """Return everything that matters as one plain line."""
        get = self._get
        steps = f"{short(self._record.agent_steps)}/{short(self._goal.max_agent_steps)} steps"
        parts = [
            f"{duration(self._record.wall_s)} {self.progress():6.1%} {steps}",
            f"{get('throughput/agent_steps_per_s')}/s" + (f" eta {e}" if (e := self.eta()) else ""),
            f"{self._record.episodes} games {self._returns_line()}",
            f"loss pi {get('loss/policy')} v {get('loss/value')} H {get('policy/entropy')}",
            f"lag {get('lag/mean_updates')} wait {get('cache/wait_fraction', percent)}",
            " ".join(f"{b} {get(f'replay/{b}/fill', percent)}" for b in self.buffers()),
            get("system/memory_mb", megabytes),
        ]
        return " | ".join(part for part in parts if part and part != MISSING)

    def _returns_line(self) -> str:
        """Return how the games went: their mean and best, or the mean of each of several."""
        get = self._get
        if not self._goal.games:
            return f"mean {get('episode/return_mean')} best {get('episode/return_best')}"
        means = (
            f"{name} {get(f'episode/return_mean_{task}')}"
            for task, name in enumerate(self._goal.games)
        )
        return f"score {get('episode/score_mean')}: {', '.join(means)}"

    def panel(self, width: int = PANEL_WIDTH) -> RenderableType:
        """Return the live panel.

        Args:
          width: columns of the terminal. With less than 100 of them the figures stand in fewer
            columns and the frame is tighter, so that it fits a terminal of 80 by 24.
        """
        is_wide = width >= PANEL_WIDTH
        padding = (1, 2) if is_wide else (0, 1)
        outside = min(width - ECHO_WIDTH, PANEL_WIDTH)
        inside = outside - 2 - 2 * padding[1]
        body = [self._bar(), Text(), self._figures(inside)]
        if self._goal.games:
            body += [Text(), self._games()]
        if self.buffers():
            body += [Text(), self._replay()]
        return Panel(
            Group(*body),
            title=Text(f" {self._goal.title} ", "bold"),
            title_align="left",
            subtitle=Text(f" {self._goal.folder} ", "dim"),
            subtitle_align="right",
            border_style="bright_black",
            padding=padding,
            width=outside,
        )

    def _get(self, name: str, form: Callable[[float], str] | None = None) -> str:
        value = self._values.get(name)
        return MISSING if value is None else (form or short)(value)

    def _bar(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        grid.add_column(justify="right")
        bar = ProgressBar(
            total=1.0,
            completed=self.progress(),
            style="bright_black",
            complete_style="cyan",
            finished_style="green",
        )
        steps = f"{short(self._record.agent_steps)} of {short(self._goal.max_agent_steps)} steps"
        times = Text.assemble((duration(self._record.wall_s), "dim"))
        if self.eta():
            times.append(f"  {self.eta()} left")
        grid.add_row(bar, Text(f"{self.progress():.1%}  {steps}"), times)
        return grid

    def _figures(self, width: int) -> RenderableType:
        get = self._get
        evaluated = []
        if "evaluation/score" in self._values:
            evaluated = [
                ("evaluated", get("evaluation/score")),
                ("  at its best", get("evaluation/score_best")),
            ]
        columns = {
            "Throughput": [
                ("agent steps/s", get("throughput/agent_steps_per_s")),
                ("frames/s", get("throughput/frames_per_s")),
                ("updates/s", get("throughput/updates_per_s")),
                ("updates", short(self._record.updates)),
                ("replayed/new", get("replay/ratio")),
            ],
            "Returns": [
                ("mean return", get("episode/return_mean")),
                ("last games", get("episode/return_raw")),
                ("best", get("episode/return_best")),
                ("length", get("episode/length_steps")),
                ("games", short(self._record.episodes)),
                *evaluated,
            ]
            if not self._goal.games
            else [
                ("score", get("episode/score_mean")),
                ("games", short(self._record.episodes)),
                *evaluated,
            ],
            "Losses": [
                ("policy", get("loss/policy")),
                ("value", get("loss/value")),
                ("entropy", get("policy/entropy")),
                ("gradient", get("grad/norm_before_clip")),
                ("learning rate", get("optimiser/lr")),
            ],
            "Health": [
                ("policy lag", get("lag/mean_updates")),
                ("learner waits", get("cache/wait_fraction", percent)),
                ("workers wait", get("ring/wait_fraction", percent)),
                ("workers", get("workers/alive")),
                ("memory", get("system/memory_mb", megabytes)),
            ],
        }
        if self._values.get("workers/restarts"):
            columns["Health"].append(("restarts", get("workers/restarts")))
        if "system/cpu_power_w" in self._values:
            columns["Health"].append(("processor", get("system/cpu_power_w", watts)))
        if "system/joules_per_million_steps" in self._values:
            columns["Health"].append(
                ("per M steps", get("system/joules_per_million_steps", kilojoules))
            )
        per_row = 4 if width >= FIGURES_WIDTH else 2 if width >= FIGURES_WIDTH / 2 else 1
        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in range(per_row):
            grid.add_column()  # as wide as it must be; what is left over is dealt out
        titled = [_column(title, rows) for title, rows in columns.items()]
        for first in range(0, len(titled), per_row):
            grid.add_row(*titled[first : first + per_row])
        if len(self._history) < 3:
            return grid
        curve = Text.assemble(("return  ", "dim"), (self._history.sparkline(), "cyan"))
        return Group(grid, Text(), curve)

    def _games(self) -> RenderableType:
        """Return a line for each of several games."""
        table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style="bold")
        table.add_column("Game", style="dim", ratio=1)
        for heading in ("mean of last", "best", "length", "games"):
            table.add_column(heading, justify="right")
        for task, name in enumerate(self._goal.games):
            names = ("return_mean", "return_best", "length_steps", "count")
            table.add_row(name, *(self._get(f"episode/{metric}_{task}") for metric in names))
        return table

    def _replay(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style="bold")
        table.add_column("Replay", style="dim")
        table.add_column("fill", ratio=1)
        for heading in ("", "age in updates", "draws", "dropped"):
            table.add_column(heading, justify="right")
        for name in self.buffers():
            get = partial(self._of_buffer, name)
            fill = self._values[f"replay/{name}/fill"]
            bar = ProgressBar(
                total=1.0,
                completed=min(1.0, fill),
                style="bright_black",
                complete_style="blue",
                finished_style="blue",
            )
            table.add_row(
                name,
                bar,
                get("fill", percent),
                get("mean_age_updates"),
                get("draws"),
                get("dropped"),
            )
        return table

    def _of_buffer(self, buffer: str, name: str, form: Callable[[float], str] | None = None) -> str:
        return self._get(f"replay/{buffer}/{name}", form)


def _column(title: str, rows: list[tuple[str, str]]) -> Table:
    """Return a titled column of names and values."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(title, "bold not dim"))
    for name, text in rows:
        table.add_row(name, Text(text, HIGHLIGHTS.get(name, "")))
    return table
