"""The command line of analyses that watch one agent play: options, progress, and where files go.

Next to read: analysis/saliency.py, which is made of it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from ritornello.analysis.options import add_place, at_least, command_parser
from ritornello.analysis.playing import LoadedAgent, Moment, load_player, play
from ritornello.analysis.playing_recording import Recording
from ritornello.core.errors import ConfigError
from ritornello.core.spec import game_name
from ritornello.core.stop_signals import INTERRUPTED
from ritornello.metrics.film import GIF_MAX_KILOBYTES
from ritornello.wrappers.registry import steps_per_s
from ritornello.wrappers.trusted_modules import check_trusted, trust_modules_of

DEFAULT_FILM_S = 20.0


def viewing_parser(command: str, about: str | None, epilog: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands of this kind have."""
    parser = command_parser(command, about, epilog)
    add_place(parser)
    parser.add_argument(
        "--env",
        metavar="GAME",
        help="game to play: one of the agent's, or another that needs no other actions",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the game (default: %(default)s)"
    )
    parser.add_argument(
        "--greedy", action="store_true", help="take the most probable action instead of drawing one"
    )
    parser.add_argument(
        "--actions",
        type=Path,
        metavar="FILE",
        help="repeat the game of another film, given its actions.json, instead of playing: "
        "several agents can then be examined in the same states",
    )
    parser.add_argument(
        "--start",
        type=at_least(0, "steps"),
        default=0,
        metavar="STEP",
        help="step of the game at which the film begins (default: 0)",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--steps", type=at_least(0, "steps"), metavar="N", help="length of the film in steps"
    )
    length.add_argument(
        "--seconds",
        type=_seconds,
        default=DEFAULT_FILM_S,
        metavar="S",
        help="length of the film in seconds of watching it (default: %(default)s)",
    )
    parser.add_argument(
        "--gif",
        type=at_least(1),
        nargs="?",
        const=GIF_MAX_KILOBYTES,
        metavar="KILOBYTES",
        help="also make a GIF of the film, of at most this many kilobytes (%(const)s without a "
        "number); frames are left out until it is small enough",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder for the results (default: analysis/ below the run)",
    )
    return parser


@dataclass
class Viewing:
    """One agent in one game, as the options ask for it."""

    agent: LoadedAgent
    task: int
    seed: int
    greedy: bool
    start: int  # first step shown
    steps: int  # shown
    output: Path
    frames_per_s: float
    replayed: list[int] | None  # actions, in the agent's numbers
    actions: list[int] = field(default_factory=list)  # done so far, from step 0

    @classmethod
    def draw(cls, command: str, options: argparse.Namespace) -> Viewing:
        """Load what the options name.

        Raises:
          ConfigError: if something does not fit together.
          CheckpointError: if the agent cannot be loaded.
        """
        recording = None if options.actions is None else Recording.load(options.actions)
        if options.env:
            trust_modules_of(options.env)
        elif recording:
            check_trusted(recording.env_id, str(options.actions))
        env = options.env or (recording.env_id if recording else None)
        agent, task = load_player(options.load_model_url, env)
        seed = recording.seed if recording else options.seed
        rate = steps_per_s(agent.game_config(task))
        steps = options.steps or max(1, round(options.seconds * rate))
        replayed = recording.for_agent(agent) if recording else None
        if replayed is not None and options.start >= len(replayed):
            raise ConfigError(
                f"--start={options.start}: {options.actions} has only {len(replayed)} actions."
            )
        name = f"{agent.label}_{game_name(agent.games[task])}_seed{seed}"
        output = options.output or agent.folder / command / name
        return cls(
            agent,
            task,
            seed,
            options.greedy,
            options.start,
            steps,
            output,
            rate,
            replayed,
        )

    def moments(self, description: str) -> Iterator[Moment]:
        """Play, and yield what is to be shown, with a bar of progress."""
        moments = play(
            self.agent,
            task=self.task,
            seed=self.seed,
            greedy=self.greedy,
            steps=self.start + self.steps,
            actions=self.replayed,
        )
        recorded = self._recorded(moments)
        shown = itertools.islice(recorded, self.start, None)
        total = self.steps
        if self.replayed is not None:
            total = min(total, len(self.replayed) - self.start)
        yield from track(
            shown, description, total=total, console=Console(stderr=True), transient=True
        )

    def save_actions(self) -> None:
        """Write the actions so far, for `--actions` of another film."""
        spec = self.agent.env_spec
        recording = Recording(
            self.agent.games[self.task], self.seed, spec.action_meanings, tuple(self.actions)
        )
        recording.save(self.output / "actions.json")

    def facts(self) -> dict[str, Any]:
        """Return what was played, for a JSON of settings."""
        return {
            "load_model_url": self.agent.url,
            "agent_steps": self.agent.agent_steps,
            "env": self.agent.games[self.task],
            "seed": self.seed,
            "greedy": self.greedy,
            "actions_replayed": self.replayed is not None,
            "start": self.start,
            "frames_per_s": self.frames_per_s,
        }

    def _recorded(self, moments: Iterator[Moment]) -> Iterator[Moment]:
        for moment in moments:
            self.actions.append(moment.action)
            yield moment


@dataclass
class Ending:
    """How a command ends."""

    status: int = 0


@contextmanager
def until_interrupted(kept: Sized) -> Iterator[Ending]:
    """Let the first Ctrl-C end the body, so that what is there can be written.

    Args:
      kept: what is there so far, and shall be written.

    Yields:
      The ending of the command, whose status says afterwards whether it was interrupted.

    Raises:
      KeyboardInterrupt: if there is nothing yet.
    """
    ending = Ending()
    try:
        yield ending
    except KeyboardInterrupt:
        if not len(kept):
            raise KeyboardInterrupt("there is nothing yet to write") from None
        sys.stderr.write("interrupted: writing what is there\n")
        ending.status = INTERRUPTED


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
