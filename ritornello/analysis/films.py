"""Films of one agent in one game with maps over the pictures: shared by saliency and attention.

`make_film` plays the game that the options ask for, keeps its moments until all are seen, and draws
them. Colours are scaled once for the whole film: scaled frame by frame they would flicker, and make
a calm frame look like a tense one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from ritornello.analysis.options import (
    add,
    agent_parser,
    at_least,
    progress,
    say_written,
    until_interrupted,
)
from ritornello.analysis.playing import LoadedAgent, Moment, load_player, play
from ritornello.core.atomic_file import writable_folder, write_json
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

Arrays = Mapping[str, np.ndarray]  # name -> an array of one moment, or [N, ...] of all moments


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
            if max(found.actions, default=0) < len(found.action_names):
                return found
        except ValidationError:
            pass
        raise ConfigError(
            f"{path} is no list of actions: expected JSON with env, seed, action_names and "
            "actions, as python -m ritornello.analysis saliency writes it (actions.json)."
        )

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


def load_viewed(options: argparse.Namespace) -> tuple[LoadedAgent, int, Recording | None]:
    """Return the agent that the options name, the number of the game, and the recorded game."""
    recording = Recording.read(options.actions) if options.actions else None
    if options.env:
        trust_modules_of(options.env)
    elif recording:
        check_trusted(recording.env, str(options.actions))
    env = options.env or (recording.env if recording else None)
    return *load_player(options.load_model_url, env), recording


def make_film(
    command: str,
    options: argparse.Namespace,
    viewed: tuple[LoadedAgent, int, Recording | None],
    look: Callable[[Moment], Arrays],
    paint: Callable[[Arrays], Painting],
) -> int:
    """Play, and write film.mp4, still.png, maps.npz, actions.json and settings.json.

    Args:
      command: name of the command.
      options: of `film_parser`.
      viewed: result of `load_viewed`.
      look: moment -> the maps of it, by name.
      paint: the arrays of all moments, by name: the maps, and what the agent did -> how they are
        drawn.

    Returns:
      The exit status of the command: Ctrl-C ends the game and keeps what was played.

    Raises:
      ConfigError: if something does not fit together.
    """
    agent, task, recording = viewed
    env, rate = agent.games[task], steps_per_s(agent.game_config(task))
    seed = recording.seed if recording else options.seed
    steps = options.steps or max(1, round(DEFAULT_FILM_S * rate))
    repeated = recording.for_agent(agent) if recording else None
    if repeated is not None:
        steps = min(steps, len(repeated) - options.start)
        if steps <= 0:
            raise ConfigError(f"--start={options.start}: there are {len(repeated)} actions.")
    name = f"{agent.label}_{game_name(env)}_seed{seed}"
    folder = writable_folder(options.output or agent.folder / command / name)
    end = options.start + steps
    moments = play(agent, task=task, seed=seed, greedy=options.greedy, steps=end, actions=repeated)
    actions: list[int] = []  # from step 0 on
    frames: list[np.ndarray] = []  # of what is shown, as are the rows
    rows: list[dict[str, Any]] = []
    with until_interrupted(rows) as status, progress() as bars:
        for moment in bars.track(moments, end, description="playing"):
            actions.append(int(moment.step.action[0]))
            if len(actions) > options.start:
                row = {**look(moment), **_row(moment)}
                frames.append(moment.frame)
                rows.append(row)
    arrays = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    names = list(agent.env_spec.action_meanings)
    recorded = {"env": env, "seed": seed, "action_names": names, "actions": actions}
    write_json(folder / "actions.json", recorded)
    np.savez_compressed(folder / "maps.npz", allow_pickle=False, **arrays)
    draw, still, settings = paint(arrays)
    _draw_film(folder, rate, frames, draw, still)
    facts = {
        "load_model_url": agent.url,
        "agent_steps": agent.agent_steps,
        "env": env,
        "seed": seed,
        "greedy": options.greedy,
        "actions_replayed": repeated is not None,
        "start": options.start,
        "frames_per_s": rate,
        "frames": len(rows),
        "still": options.start + still,
    }
    write_json(folder / "settings.json", {**facts, **settings})
    say_written(folder, f"film.mp4 of {len(rows)} moments", "still.png", "maps.npz, *.json")
    return status[0]


def _row(moment: Moment) -> dict[str, Any]:
    step = moment.step
    return {
        "logits": step.heads.params[0].numpy(),
        "value_estimate": np.float32(step.heads.value[0]),
        "action": int(step.action[0]),
        "reward": np.float32(step.reward[0]),
        "first": moment.first,
        "episode_return": np.float32(moment.episode_return),
    }


def _draw_film(
    folder: Path,
    rate: float,
    frames: list[np.ndarray],
    draw: Callable[[np.ndarray, int], np.ndarray],
    still: int,
) -> None:
    import imageio.v3 as iio  # lazily: only pictures need it

    with Film(folder / "film.mp4", rate) as film:
        for number, frame in enumerate(frames):
            film.add(draw(frame, number))
    iio.imwrite(folder / "still.png", draw(frames[still], still))


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
