"""The terminal: a calm live panel where there is one, a plain line now and then where there is not.

Takes Records and nothing else, so it shows exactly what the files hold. It is drawn only when a
record comes, at most twice a second: it costs no thread and does not flicker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ritornello.core.command_line import counted
from ritornello.metrics.meters import Speed
from ritornello.metrics.record import Record
from ritornello.metrics.sinks import Sink
from ritornello.metrics.text import (
    MISSING,
    History,
    duration,
    kilojoules,
    megabytes,
    percent,
    short,
)

PANEL_INTERVAL_S = 0.5
LINE_INTERVAL_S = 5.0
PANEL_WIDTH = 100
ECHO_WIDTH = 2  # a terminal echoes ^C behind the panel; on a line of its own it would tear it
# Four columns of figures need so many characters, two need half of them.
FIGURES_WIDTH = 90
HIGHLIGHTS = {"mean return": "bold cyan", "score": "bold cyan", "restarts": "bold yellow"}
# Column -> rows of label, metric (or counter of the record), and form; shown once it is known.
FIGURES: dict[str, list[tuple[str, str, Callable[[float], str]]]] = {
    "Throughput": [
        ("agent steps/s", "throughput/agent_steps_per_s", short),
        ("frames/s", "throughput/frames_per_s", short),
        ("updates/s", "throughput/updates_per_s", short),
        ("updates", "updates", short),
        ("replayed/new", "replay/ratio", short),
    ],
    "Returns": [
        ("score", "episode/score_mean", short),
        ("mean return", "episode/return_mean", short),
        ("last games", "episode/return_raw", short),
        ("best", "episode/return_best", short),
        ("length", "episode/length_steps", short),
        ("games", "episodes", short),
        ("evaluated", "evaluation/score", short),
        ("  at its best", "evaluation/score_best", short),
    ],
    "Losses": [
        ("policy", "loss/policy", short),
        ("value", "loss/value", short),
        ("entropy", "policy/entropy", short),
        ("gradient", "grad/norm_before_clip", short),
        ("learning rate", "optimiser/lr", short),
    ],
    "Health": [
        ("policy lag", "lag/mean_updates", short),
        ("learner waits", "cache/wait_fraction", percent),
        ("workers wait", "ring/wait_fraction", percent),
        ("workers", "workers/alive", short),
        ("memory", "system/memory_mb", megabytes),
        ("restarts", "workers/restarts", short),
        ("processor", "system/cpu_power_w", "{:.0f} W".format),
        ("per M steps", "system/joules_per_million_steps", kilojoules),
    ],
}


@dataclass(frozen=True)
class Goal:
    """Goals of the run, for the display."""

    title: str  # e.g. "PongNoFrameskip-v4"
    folder: str  # folder of the results
    max_agent_steps: int
    games: tuple[str, ...] = ()  # short names, in task order, where there are several
    fill_in: float = 0.0  # share of each replay buffer that is filled before the first update
    training_seconds: float | None = None  # of this session, at most


class ConsoleSink(Sink):
    """Shows the run on a terminal, or as lines where stdout cannot be redrawn, as a pipe.

    Print other things through `console` while this is open, and they appear above the panel
    (`RichHandler(console=sink.console)` for logging).
    """

    def __init__(self, goal: Goal) -> None:
        """Show nothing before the first record."""
        self.console = Console(highlight=False)
        self._view = View(goal)
        self._shown_at: float | None = None
        self._pending = False
        self._live: Live | None = None
        self._closed = False
        self._began = time.monotonic()
        self._waited_for = ""  # by the last line on a pipe

    def write(self, record: Record) -> None:
        """Take a record; show it if the last one has been up long enough."""
        if self._closed:
            return
        self._view.add(record)
        self._pending = True
        interval_s = PANEL_INTERVAL_S if self.console.is_interactive else LINE_INTERVAL_S
        if self._shown_at is None or time.monotonic() - self._shown_at >= interval_s:
            self._show()

    def close(self) -> None:
        """Show the last record, leave it on the screen and give the terminal back. Idempotent."""
        self._closed = True
        try:
            if self._pending:
                self._show()
        finally:  # else the cursor of a terminal that cannot show it would stay hidden
            live, self._live = self._live, None
            if live is not None:
                live.stop()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        self._pending = False
        waits_for = self._view.waits_for()
        waits = f"{waits_for} ({self._shown_at - self._began:.0f} s)" if waits_for else ""
        if self.console.is_interactive:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False)
                self._live.start()
            shown = Text(waits) if waits else self._view.panel(self.console.width)
            self._live.update(shown, refresh=True)
            return
        kind = waits_for.split(":")[0]  # of what is waited for: each is said once
        is_new, self._waited_for = kind != self._waited_for, kind
        if is_new or not waits:
            # One line stays one line, however narrow a pipe claims to be.
            self.console.print(waits or self._view.line(), soft_wrap=True, markup=False)


class View:
    """Turns the newest record into text. Values persist until a newer record has them."""

    def __init__(self, goal: Goal) -> None:
        """Start empty."""
        self._goal = goal
        self._record = Record()
        self._values: dict[str, float] = {}
        self._history = History(60)
        self._speed = Speed(goal.max_agent_steps, goal.training_seconds)

    def add(self, record: Record) -> None:
        """Take the newest record."""
        self._speed.add(record)
        self._record = record
        self._values.update(record.values)
        if self._headline in record.values:
            self._history.add(record.values[self._headline])

    def waits_for(self) -> str:
        """Return what the run waits for before its first update; "" from then on."""
        if any(name.startswith("loss/") for name in self._values):
            return ""
        fills = {name: self._values[f"replay/{name}/fill"] for name in self.buffers()}
        if not any(fills.values()):
            alive = int(self._values.get("workers/alive", 0))
            return f"starting: {counted(alive, 'worker')}, nothing is played yet"
        so_far = ", ".join(f"{name} {percent(fill)}" for name, fill in fills.items())
        return f"filling the replay to {percent(self._goal.fill_in)}: {so_far}"

    def progress(self) -> float:
        """Return the share of the run that is done, in [0, 1]."""
        return min(1.0, self._record.agent_steps / max(1, self._goal.max_agent_steps))

    def eta(self) -> str:
        """Return the time that is left, as text; empty while it is unknown."""
        seconds = self._speed.seconds_left()
        return "" if seconds is None else duration(seconds)

    @property
    def _headline(self) -> str:
        """The metric that shows best whether something is learned."""
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
            f"{counted(self._record.episodes, 'game')} {self._returns_line()}",
            self._losses_line(),
            f"policy lag {get('lag/mean_updates')}",
            f"learner waits {get('cache/wait_fraction', percent)}",
            " ".join(f"{b} {get(f'replay/{b}/fill', percent)}" for b in self.buffers()),
            get("system/memory_mb", megabytes),
        ]
        return " | ".join(part for part in parts if part and part != MISSING)

    def _losses_line(self) -> str:
        names = {name: metric for name, metric, _ in FIGURES["Losses"][:3]}  # up to entropy
        shown = [f"{name} {self._get(m)}" for name, m in names.items() if m in self._values]
        return f"losses: {', '.join(shown)}" if shown else ""

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
        """Return the live panel for a terminal of `width` columns.

        Below 100 columns the figures stand in fewer columns and the frame is tighter, so that the
        panel fits a terminal of 80 by 24.
        """
        padding = (1, 2) if width >= PANEL_WIDTH else (0, 1)
        outside = min(width - ECHO_WIDTH, PANEL_WIDTH)
        body = [self._bar(), Text(), self._figures(outside - 2 - 2 * padding[1])]
        if len(self._history) >= 3:
            curve = Text.assemble(("return  ", "dim"), (self._history.sparkline(), "cyan"))
            body += [Text(), curve]
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

    def _get(self, name: str, form: Callable[[float], str] = short) -> str:
        value = self._values.get(name)
        return MISSING if value is None else form(value)

    def _bar(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        grid.add_column(justify="right")
        steps = f"{short(self._record.agent_steps)} of {short(self._goal.max_agent_steps)} steps"
        times = Text(duration(self._record.wall_s), "dim")
        if self.eta():
            times = Text.assemble(times, f"  {self.eta()} left")
        bar = _filled(self.progress(), "cyan", "green")
        grid.add_row(bar, Text(f"{self.progress():.1%}  {steps}"), times)
        return grid

    def _figures(self, width: int) -> RenderableType:
        """Return the columns of FIGURES, as many side by side as fit."""
        known = {**self._values, "updates": self._record.updates, "episodes": self._record.episodes}
        columns = []
        for title, rows in FIGURES.items():
            table = Table.grid(padding=(0, 1), expand=True)
            table.add_column(style="dim", no_wrap=True)
            table.add_column(justify="right", no_wrap=True)
            table.add_row(Text(title, "bold not dim"))
            for label, metric, form in rows:
                if metric in known:
                    table.add_row(label, Text(form(known[metric]), HIGHLIGHTS.get(label, "")))
            columns.append(table)
        per_row = 4 if width >= FIGURES_WIDTH else 2 if width >= FIGURES_WIDTH / 2 else 1
        grid = Table.grid(padding=(0, 2), expand=True)
        for first in range(0, len(columns), per_row):  # columns are as wide as they must be
            grid.add_row(*columns[first : first + per_row])
        return grid

    def _games(self) -> RenderableType:
        table = _table("Game", "mean of last", "best", "length", "games")
        table.columns[0].ratio = 1
        for task, name in enumerate(self._goal.games):
            names = ("return_mean", "return_best", "length_steps", "count")
            table.add_row(name, *(self._get(f"episode/{metric}_{task}") for metric in names))
        return table

    def _replay(self) -> RenderableType:
        table = _table("Replay", "fill", "", "age in updates", "draws", "dropped")
        table.columns[1].ratio, table.columns[1].justify = 1, "left"
        for name in self.buffers():
            fill = self._values[f"replay/{name}/fill"]
            names = ("mean_age_updates", "draws", "dropped")
            others = (self._get(f"replay/{name}/{metric}") for metric in names)
            table.add_row(name, _filled(min(1.0, fill), "blue", "blue"), percent(fill), *others)
        return table


def _filled(share: float, colour: str, finished: str) -> ProgressBar:
    """Return a bar that is filled to a share in [0, 1]."""
    return ProgressBar(
        total=1.0,
        completed=share,
        style="bright_black",
        complete_style=colour,
        finished_style=finished,
    )


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style="bold")
    table.add_column(first, style="dim")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
