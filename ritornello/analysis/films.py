"""Films of one agent in one game with maps over the pictures: shared by saliency and attention.

`Viewing` is the game that the options ask for, and `make_film` plays it, keeps its moments until
all are seen, and draws them. Colours are scaled once for the whole film: scaled frame by frame they
would flicker, and make a calm frame look like a tense one.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from ritornello.analysis.options import (
    add,
    agent_parser,
    at_least,
    progress,
    results_folder,
    say_written,
    until_interrupted,
)
from ritornello.analysis.playing import LoadedAgent, Moment, load_player, play
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import read_text
from ritornello.core.spec import game_name
from ritornello.metrics.film import Film
from ritornello.wrappers.registry import steps_per_s
from ritornello.wrappers.trusted_modules import check_trusted, trust_modules_of

DEFAULT_FILM_S = 20.0
ENLARGEMENT = 2  # pixels of the film per pixel of the game
# Peaks above this quantile of all peaks of a film are shown at full colour.
FULL_COLOUR_QUANTILE = 0.9
MOST_COVER = 0.8  # of a pixel by a colour; what is below stays visible
LEGEND_HEIGHT = 20  # pixels below a picture; even, as films must be
Light = tuple[float, float, float]  # of red, green and blue, each in [0, 1]
# Light of Okabe and Ito's colours, which everybody can tell apart; blue and yellow together are
# white, and neither is lost on the brown, black and green grounds of many games.
BLUE, YELLOW = (0.0, 0.64, 1.0), (1.0, 0.95, 0.28)
ORANGE, PINK, WHITE = (1.0, 0.44, 0.0), (1.0, 0.59, 0.82), (1.0, 1.0, 1.0)


class Painting(NamedTuple):
    """How the moments of a film are drawn."""

    draw: Callable[[np.ndarray, int], np.ndarray]  # frame and number of a moment -> its picture
    still: int  # number of the moment that is also drawn by itself
    settings: dict[str, Any]  # for settings.json, beside the facts of the game


class Recording(BaseModel):
    """What actions.json says of a game."""

    model_config = ConfigDict(strict=True)
    env: str
    seed: int
    action_names: list[str]
    actions: list[NonNegativeInt]

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read a file; ConfigError if it is no recording."""
        try:
            found = cls.model_validate_json(read_text(path, "the list of actions"))
        except ValidationError as error:
            raise _no_recording(path) from error
        if max(found.actions, default=0) >= len(found.action_names):
            raise _no_recording(path)
        return found

    def for_agent(self, agent: LoadedAgent) -> list[int]:
        """Return the actions in the numbers that `agent` has for them."""
        own = agent.env_spec.action_meanings
        done = [self.action_names[action] for action in self.actions]
        missing = sorted(set(done) - set(own))
        if missing:
            raise ConfigError(
                f"the recording uses {', '.join(missing)}, but {agent.url} has only "
                f"{', '.join(own)}. Record with an agent that has the same actions."
            )
        return [own.index(name) for name in done]


def _no_recording(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} is no list of actions: expected JSON with env, seed, action_names and "
        "actions, as python -m ritornello.analysis saliency writes it (actions.json)."
    )


def film_parser(command: str, about: str | None, examples: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands which make films have."""
    parser = agent_parser(command, about, examples)
    parser.add_argument("--env", metavar="GAME", help="game to play (default: the agent's first)")
    add(parser, "greedy", False, "take the most probable action instead of drawing one")
    about = "repeat the game of another film, given its actions.json, also with another agent"
    parser.add_argument("--actions", type=Path, metavar="FILE", help=about)
    add(parser, "start", 0, "step of the game at which the film begins", least=0)
    about = f"length in steps (default: {DEFAULT_FILM_S:g} s of watching)"
    parser.add_argument("--steps", type=at_least(1), metavar="N", help=about)
    return parser


@dataclass
class Viewing:
    """One agent in one game, as the options ask for it."""

    agent: LoadedAgent
    task: int
    options: argparse.Namespace
    seed: int
    steps: int  # shown
    output: Path
    frames_per_s: float
    replayed: list[int] | None  # actions to do, in the agent's numbers
    actions: list[int] = field(default_factory=list)  # done so far, from step 0

    @classmethod
    def of(cls, command: str, options: argparse.Namespace) -> Viewing:
        """Load what the options name.

        Raises:
          ConfigError: if something does not fit together.
          CheckpointError: if the agent cannot be loaded.
        """
        recorded = Recording.read(options.actions) if options.actions else None
        if options.env:
            trust_modules_of(options.env)
        elif recorded:
            check_trusted(recorded.env, str(options.actions))
        env = options.env or (recorded.env if recorded else None)
        agent, task = load_player(options.load_model_url, env)
        seed = recorded.seed if recorded else options.seed
        rate = steps_per_s(agent.game_config(task))
        steps = options.steps or max(1, round(DEFAULT_FILM_S * rate))
        replayed = recorded.for_agent(agent) if recorded else None
        if replayed is not None:
            steps = min(steps, len(replayed) - options.start)
            if steps <= 0:
                raise ConfigError(f"--start={options.start}: there are {len(replayed)} actions.")
        name = f"{agent.label}_{game_name(agent.games[task])}_seed{seed}"
        output = options.output or agent.folder / command / name
        return cls(agent, task, options, seed, steps, output, rate, replayed)

    def moments(self) -> Iterator[Moment]:
        """Play, and yield what is to be shown, with a bar of progress."""
        start = self.options.start
        moments = play(
            self.agent,
            task=self.task,
            seed=self.seed,
            greedy=self.options.greedy,
            steps=start + self.steps,
            actions=self.replayed,
        )
        shown = itertools.islice(self._recorded(moments), start, None)
        with progress() as bars:
            yield from bars.track(shown, self.steps, description="playing")

    def _recorded(self, moments: Iterator[Moment]) -> Iterator[Moment]:
        for moment in moments:
            self.actions.append(int(moment.step.action[0]))
            yield moment

    def facts(self) -> dict[str, Any]:
        """Return what was played, for settings.json."""
        return {
            "load_model_url": self.agent.url,
            "agent_steps": self.agent.agent_steps,
            "env": self.agent.games[self.task],
            "seed": self.seed,
            "greedy": self.options.greedy,
            "actions_replayed": self.replayed is not None,
            "start": self.options.start,
            "frames_per_s": self.frames_per_s,
        }


class Reel:
    """Moments in the order of the game, and the maps of each."""

    def __init__(self) -> None:
        """Start empty."""
        self._frames: list[bytes] = []  # compressed: long films are large
        self._shape: tuple[int, ...] = ()
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, moment: Moment, maps: Mapping[str, np.ndarray]) -> None:
        """Keep one moment and the maps of it (name -> array of any shape)."""
        step = moment.step
        self._shape = moment.frame.shape
        self._frames.append(zlib.compress(moment.frame.tobytes(), 1))
        row = {
            "logits": step.heads.params[0].numpy(),
            "value_estimate": np.float32(step.heads.value[0]),
            "action": int(step.action[0]),
            "reward": np.float32(step.reward[0]),
            "first": moment.first,
            "episode_return": np.float32(moment.episode_return),
        }
        self._rows.append({**maps, **row})

    def frame(self, number: int) -> np.ndarray:
        """Return a frame [H, W, 3] uint8."""
        flat = np.frombuffer(zlib.decompress(self._frames[number]), np.uint8)
        return flat.reshape(self._shape)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything but the frames, name -> [N, ...]."""
        return {name: np.stack([row[name] for row in self._rows]) for name in self._rows[0]}


def make_film(
    viewing: Viewing,
    look: Callable[[Moment], Mapping[str, np.ndarray]],
    paint: Callable[[dict[str, np.ndarray]], Painting],
) -> int:
    """Play, and write film.mp4, still.png, maps.npz, actions.json and settings.json.

    Args:
      viewing: the game.
      look: moment -> the maps of it, by name.
      paint: the arrays of all moments (see `Reel.arrays`) -> how they are drawn.

    Returns:
      The exit status of the command: Ctrl-C ends the game and keeps what was played.
    """
    reel = Reel()
    folder = results_folder(viewing.output)
    with until_interrupted(reel) as ending:
        for moment in viewing.moments():
            reel.add(moment, look(moment))
    arrays = reel.arrays()
    recording = {
        "env": viewing.agent.games[viewing.task],
        "seed": viewing.seed,
        "action_names": list(viewing.agent.env_spec.action_meanings),
        "actions": viewing.actions,
    }
    write_json(folder / "actions.json", recording)
    np.savez_compressed(folder / "maps.npz", allow_pickle=False, **arrays)
    draw, still, settings = paint(arrays)
    _draw_film(viewing, reel, draw, still)
    shown = {"frames": len(reel), "still": viewing.options.start + still}
    write_json(folder / "settings.json", {**viewing.facts(), **shown, **settings})
    say_written(folder, f"film.mp4 of {len(reel)} moments", "still.png", "maps.npz, *.json")
    return ending.status


def _draw_film(
    viewing: Viewing, reel: Reel, draw: Callable[[np.ndarray, int], np.ndarray], still: int
) -> None:
    import imageio.v3 as iio  # lazily: only pictures need it

    with Film(viewing.output / "film.mp4", viewing.frames_per_s) as film:
        for number in range(len(reel)):
            film.add(draw(reel.frame(number), number))
    iio.imwrite(viewing.output / "still.png", draw(reel.frame(still), still))


def full_colour(maps: np.ndarray) -> float:
    """Return what is shown at full colour: a high quantile of the peaks of maps [N, h, w]."""
    peaks = maps.max((1, 2))
    return float(max(np.quantile(peaks, FULL_COLOUR_QUANTILE), np.finfo(np.float32).tiny))


def tinted(frame: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return a frame with light blended over it: bright pixels have no room for added light.

    Args:
      frame: picture of the game, [H, W, 3] uint8.
      colour: the light, [H, W, 3] float32 in [0, 1]; where it is black, the frame stays as it is.
    """
    strongest = colour.max(-1, keepdims=True)
    hue = colour / strongest.clip(min=np.finfo(np.float32).tiny)
    cover = MOST_COVER * strongest
    blended: np.ndarray = (frame * (1 - cover) + 255 * hue * cover).round().astype(np.uint8)
    return blended


def with_legend(picture: np.ndarray, entries: Mapping[str, Light]) -> np.ndarray:
    """Return a picture [H, W, 3] uint8 with a line below it that says what its colours mean."""
    import cv2  # lazily: only pictures need it

    strip = np.zeros((LEGEND_HEIGHT, picture.shape[1], 3), np.uint8)
    room = strip.shape[1] // len(entries)
    for number, (text, light) in enumerate(entries.items()):
        left = number * room + 4
        strip[5:15, left : left + 10] = np.array(light) * 255
        place = (left + 15, LEGEND_HEIGHT - 6)
        cv2.putText(strip, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, (230, 230, 230), 1)
    return np.concatenate([picture, strip])
