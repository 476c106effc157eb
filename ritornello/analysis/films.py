"""Films of one agent in one game with maps over the pictures: shared by saliency and attention."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import NonNegativeInt

from ritornello.agent.testing.player import Step
from ritornello.analysis.options import (
    add,
    agent_parser,
    at_least,
    progress,
    results_folder,
    say_written,
    until_interrupted,
)
from ritornello.analysis.playing import LoadedAgent, load_player, play
from ritornello.core.atomic_file import atomic_file, write_json
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.core.spec import game_name
from ritornello.metrics.film import Film
from ritornello.sequences.forms import Form, checked
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

Arrays = Mapping[str, np.ndarray]  # name -> an array of one moment, or [N, ...] of all moments


class Recording(Form):
    """Content of an actions.json of one game, as saliency and attention write it."""

    env: str
    seed: int
    action_names: list[str]
    actions: list[NonNegativeInt]

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read a file; raise ConfigError if it is no recording."""
        found = checked(cls, parse_json(read_text(path, "the actions"), str(path)), str(path))
        if max(found.actions, default=0) >= len(found.action_names):
            raise ConfigError(f"{path} has an action without a name: expected an actions.json.")
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


class Filming:
    """A film that a command makes of one game: first it is played, then it is drawn.

    This way colours can be scaled once for the whole film: scaled frame by frame they would
    flicker, and make a calm frame look like a tense one.
    """

    def __init__(self, command: str, options: argparse.Namespace) -> None:
        """Load the agent; `options` are those of `film_parser`.

        Raises:
          ConfigError: if the options do not fit together.
        """
        self._options = options
        recording = Recording.read(options.actions) if options.actions else None
        if options.env:
            trust_modules_of(options.env)
        elif recording:
            check_trusted(recording.env, str(options.actions))
        env = options.env or (recording.env if recording else None)
        self.agent, self._task = load_player(options.load_model_url, env)
        self._env = self.agent.games[self._task]
        self._rate = steps_per_s(self.agent.game_config(self._task))
        self._seed = recording.seed if recording else options.seed
        self._repeated = recording.for_agent(self.agent) if recording else None
        self._end = options.start + (options.steps or max(1, round(DEFAULT_FILM_S * self._rate)))
        if self._repeated is not None:
            self._end = min(self._end, len(self._repeated))
            if self._end <= options.start:
                raise ConfigError(
                    f"--start={options.start}: there are {len(self._repeated)} actions."
                )
        name = f"{self.agent.label}_{game_name(self._env)}_seed{self._seed}"
        self._folder = options.output or self.agent.folder / command / name
        self._frames: list[np.ndarray] = []
        self._status = 0

    def play(self, look: Callable[[Step], Arrays]) -> Arrays:
        """Play, and write actions.json and maps.npz. Ctrl-C ends the game and keeps what there is.

        `look` returns the maps of a step, by name.

        Returns:
          The arrays of all moments that are shown, by name: the maps, and the agent's decisions.
        """
        options, agent = self._options, self.agent
        moments = play(
            agent,
            task=self._task,
            seed=self._seed,
            greedy=options.greedy,
            steps=self._end,
            actions=self._repeated,
        )
        actions: list[int] = []  # from step 0 on
        rows: list[dict[str, Any]] = []  # of what is shown
        total = 0.0  # raw return of the game so far
        with (
            results_folder(self._folder),
            until_interrupted(rows) as status,
            progress() as bars,
        ):
            for frame, step in bars.track(moments, self._end, description="playing"):
                actions.append(int(step.action[0]))
                first = bool(step.inputs.first[0])
                total = float(step.reward[0]) + (0.0 if first else total)
                if len(actions) > options.start:
                    row = {
                        **look(step),
                        "logits": step.heads.params[0].numpy(),
                        "value_estimate": np.float32(step.heads.value[0]),
                        "action": actions[-1],
                        "reward": np.float32(step.reward[0]),
                        "first": first,
                        "episode_return": np.float32(total),
                    }
                    self._frames.append(frame)
                    rows.append(row)
        self._status = status[0]
        arrays = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        names = list(agent.env_spec.action_meanings)
        recorded = {"env": self._env, "seed": self._seed, "action_names": names, "actions": actions}
        write_json(self._folder / "actions.json", recorded)
        with atomic_file(self._folder / "maps.npz") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        return arrays

    def write(
        self, draw: Callable[[np.ndarray, int], np.ndarray], still: int, settings: dict[str, Any]
    ) -> int:
        """Write film.mp4, still.png and settings.json; return the exit status of the command.

        `draw` makes a picture of a frame and the number of its moment. The picture of moment
        `still` is also written by itself. `settings` are written beside the facts of the game.
        """
        import imageio.v3 as iio  # lazily: only pictures need it

        folder, frames = self._folder, self._frames
        with Film(folder / "film.mp4", self._rate) as film:
            for number, frame in enumerate(frames):
                film.add(draw(frame, number))
        with atomic_file(folder / "still.png") as file:
            iio.imwrite(file, draw(frames[still], still), extension=".png")
        facts = {
            "load_model_url": self.agent.url,
            "agent_steps": self.agent.agent_steps,
            "env": self._env,
            "seed": self._seed,
            "greedy": self._options.greedy,
            "actions_replayed": self._repeated is not None,
            "start": self._options.start,
            "frames_per_s": self._rate,
            "frames": len(frames),
            "still": self._options.start + still,
        }
        write_json(folder / "settings.json", {**facts, **settings})
        say_written(folder, f"film.mp4 of {len(frames)} moments", "still.png", "maps.npz, *.json")
        return self._status


def full_colour(maps: np.ndarray) -> float:
    """Return the value shown at full colour: a high quantile of the peaks of maps [N, h, w]."""
    peaks = maps.max((1, 2))
    return float(max(np.quantile(peaks, FULL_COLOUR_QUANTILE), np.finfo(np.float32).tiny))


def tinted(frame: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return a frame with light blended over it: bright pixels have no room for added light.

    `frame` is the picture of the game, [H, W, 3] uint8. `colour` is the light, [H, W, 3] float32 in
    [0, 1]; where it is black, the frame stays as it is.
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
