"""Runs to compare, from wherever they lie: run folders, sequences, or small CSV files in git.

A CSV holds the curve of one run in at most `MAX_ROWS` rows under one comment line that says which
run it was, so that a table in the documents can be made again from files beside it:

    # {"label": "elite 3", "env": "PongNoFrameskip-v4", "seed": 1, "command": "python main.py ...
    agent_steps,wall_s,return_mean
    21280,8.827,-21.0
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from ritornello.agent.stored.run_folder import RunFolder, safe_name
from ritornello.analysis.options import matching, split_label
from ritornello.analysis.run_facts import (
    RunFlags,
    commit_text,
    default_flags,
    distinguishing_labels,
    label_among,
    label_by,
    machine_text,
    own_commands,
    resumes,
)
from ritornello.core.atomic_file import csv_text, write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json
from ritornello.core.project import main_command
from ritornello.flags.names import flag_of
from ritornello.metrics.charts import evenly
from ritornello.metrics.curve import BEST, RETURN, SCORE, Curve, curve_of, undisturbed_share
from ritornello.metrics.energy import EnergyBook
from ritornello.metrics.record import MAX_VALUE, Record
from ritornello.metrics.run_files import read_records
from ritornello.sequences.folder import STATE_FILE, SequenceFolder, has_ended
from ritornello.sequences.forms import checked

COLUMNS = ("agent_steps", "wall_s", "return_mean")
MAX_ROWS = 200
HIGHS = 30  # new highs that are kept at most of a curve with more points
RETURN_DIGITS = 8  # significant
MAX_TOLD = 3  # damaged runs in a message


@dataclass(frozen=True)
class About:
    """Facts about a run beside its curve; the comment line of its CSV."""

    label: str  # label of its configuration; empty until one is chosen
    env: str
    seed: int
    finished: bool  # whether it came to its own end
    best: float | None  # best single game
    command: str
    commit: str
    machine: str
    undisturbed: float | None = None  # share of its time in which nothing else ran; None: not known
    joules_per_million_steps: float | None = None  # None: its energy was not measured
    goes_on: bool = False  # from another run, whose steps are counted in its own
    averaged_games: int | None = None  # games in a mean return (--avg_buff_size); None: unknown
    apart: dict[str, Any] = field(default_factory=dict)  # flags in which its configuration's differ


_ABOUT = TypeAdapter(About)


@dataclass(frozen=True)
class Run:
    """One run: its configuration, its curve, and the place where it was read.

    All figures of a run are taken from at most MAX_ROWS points of its curve, which its CSV holds,
    so that they are the same from there.
    """

    about: About
    curve: Curve
    source: Path
    flags: dict[str, Any]  # all that there are today; empty if it came from a CSV

    @property
    def csv_name(self) -> str:
        """Name of the run's CSV: `<label>_<env>_seed<k>.csv`.

        A label of which letters or its end are left out has a hash, for there may be others alike.
        """
        about, name = self.about, safe_name(self.about.label)
        if len(name) == 100 or set(filter(str.isalnum, about.label)) - set(name):
            name += f"_{hashlib.blake2b(about.label.encode(), digest_size=4).hexdigest()}"
        return f"{name}_{safe_name(about.env)}_seed{about.seed}.csv"


def last_games(runs: Sequence[Run]) -> str:
    """Return the number of games in a mean return of these runs, such as `100 games`."""
    counts = {run.about.averaged_games for run in runs}
    if None in counts:
        return "games"
    return f"{' or '.join(f'{count}' for count in sorted(filter(None, counts)))} games"


def find_runs(places: Sequence[str], by: str = "label") -> tuple[list[Run], list[str]]:
    """Read the runs in some places, each labelled.

    Args:
      places: each a run folder, the folder of a sequence, a CSV, a folder with any of these below
        it, or a pattern of such (`results/a*`); `label=place` gives its runs this label.
      by: "label": the given label, or the group in the sequence, or the flags that tell the run
        from others. Otherwise names of flags, with commas between: these flags alone.

    Returns:
      (runs, notes): notes name the runs left out because they are damaged, or because no game was
      finished.

    Raises:
      ConfigError: if a place holds no run, no run has a finished game, or two runs are the same
        seed of the same configuration.
    """
    runs: list[Run] = []
    notes: list[str] = []
    for place in places:
        label, pattern = split_label(place)
        known = len(notes)
        found = [run for path in matching(pattern) for run in read_runs(path, notes.append)]
        if not found and len(notes) == known:
            raise ConfigError(
                f"{pattern!r} holds no run. Expected a run folder (with metrics.jsonl), the folder "
                "of a sequence, a CSV that `analysis compare --output` wrote, or a folder or "
                "pattern of such."
            )
        for run in found:
            if len(run.curve.agent_steps):
                runs.append(run if label is None else relabelled(run, label))
            else:
                notes.append(f"{run.source}: no game was finished.")
    if not runs:
        told = " ".join(notes[:MAX_TOLD])
        raise ConfigError(f"nothing to compare: no run has finished a game. {told}")
    runs = _labelled(runs, by)
    _check_distinct(runs)
    return runs, notes


def write_csv(run: Run, folder: Path) -> Path:
    """Write the curve of a run to `folder`; return the file."""
    about = f"# {json.dumps(asdict(run.about), ensure_ascii=False)}\n"
    rows = [(int(steps), wall_s, mean) for steps, wall_s, mean in _points_of(run.curve).tolist()]
    write_text(folder / run.csv_name, about + csv_text(COLUMNS, rows))
    return folder / run.csv_name


def read_runs(path: Path, leave_out: Callable[[str], object] | None = None) -> Iterator[Run]:
    """Yield every run in or below `path`, also one that has not finished a game.

    Other files are passed over, and so are links to folders below `path`. `leave_out` is called
    with the reason for each run that is passed over because it is damaged; without it, the first
    one raises.

    Raises:
      ConfigError: if the files of a run cannot be read.
    """
    try:
        for games in _below(path):
            try:
                yield from list(games)
            except ConfigError as error:
                if leave_out is None:
                    raise
                leave_out(str(error))
    except OSError as error:
        raise ConfigError(
            f"{error.filename or path} cannot be read: {error.strerror or error}. Leave it out, or "
            "give yourself the right to read it."
        ) from error


def _below(path: Path) -> Iterator[Iterator[Run]]:
    """Yield each run in or below a path, as an iterator over its games that reads when asked."""
    folder = RunFolder(path)
    if path.is_file() and path.suffix == ".csv":
        yield _read_csv(path)
    elif (path / STATE_FILE).is_file():
        sequence = SequenceFolder.open(path)
        for state in sequence.runs:
            # The game is told apart by env: a grid over games must not make a group of each.
            label = re.sub(r" ?\benv=\S+", "", state.group).strip() or sequence.name
            folders, finished = sequence.run_folders(state), state.status == "done"
            if folders:  # else it has not been begun
                yield _of_folders(folders, label, finished, sequence.command(state))
    elif folder.metrics_file.is_file():
        yield _of_folders([folder], "", has_ended(folder), None)
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            # A link may lead back up, or to a run that is met in its own place as well.
            if not (child.is_symlink() and child.is_dir()):
                yield from _below(child)


def _read_csv(path: Path) -> Iterator[Run]:
    """Yield the run of a CSV; nothing if the file is a table of another kind."""
    # A table of another kind need not be UTF-8; of ours, whatever is not is refused below.
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    lines = text.removesuffix("\n").split("\n")  # a label may hold what ends a line in Unicode
    if len(lines) < 2 or not lines[0].startswith("# {") or lines[1] != ",".join(COLUMNS):
        return
    try:
        about = _ABOUT.validate_json(
            json.dumps(parse_json(lines[0][2:], "line 1"), allow_nan=False), strict=True
        )
        points = np.array([list(map(float, row)) for row in csv.reader(lines[2:])], np.float64)
        if not about.label or not (np.abs(points) <= MAX_VALUE).all():
            raise ValueError("its label is empty, or a number in it is not finite or too large")
        yield Run(about, _curve(points.reshape(len(points), len(COLUMNS)), about.best), path, {})
    except (ConfigError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"{path} is damaged ({error}). Expected a comment line with {{label, env, seed, "
            f"...}}, then {','.join(COLUMNS)}; write it again with `analysis compare --output`."
        ) from error


def _of_folders(
    folders: Sequence[RunFolder], label: str, finished: bool, command: str | None
) -> Iterator[Run]:
    """Yield a run, once for each game that it plays; by default its `command` is its own."""
    folder = folders[-1]
    records = [record for each in folders for record in read_records(each.path)]
    try:
        saved = folder.read_flags()
        flags = checked(RunFlags, saved, "flags.json")
        sessions = folder.sessions() or [{}]
        commits = dict.fromkeys(commit_text(session.get("source", {})) for session in sessions)
        games = flags.env.split(",")
        about = About(
            label=label_among(label, len(games)) if label else "",
            env=flags.env,
            seed=flags.seed,
            finished=finished,
            best=None,
            command=" && ".join(own_commands(sessions)) if command is None else command,
            commit=", then ".join(commits),
            machine=machine_text(sessions[0].get("machine", {})),
            undisturbed=undisturbed_share(records),
            joules_per_million_steps=EnergyBook(records).joules_per_million_steps,
            averaged_games=flags.avg_buff_size,
            # From a model folder a run begins at 0.
            goes_on=resumes(folders[0].sessions()) and any(x.updates for x in records[:1]),
        )
    except (ConfigError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{folder.path} has metrics.jsonl, but its flags.json or run.json cannot be read "
            f"({error!r}). Leave the folder out, or restore the file."
        ) from error
    every_flag = {**default_flags(), **saved}
    shares = flags.env_shares or [1.0] * len(games)
    for task, (game, share) in enumerate(zip(games, shares, strict=True)):
        steps_of = _steps_of(task, share / sum(shares))
        if not share and len(set(map(steps_of, records))) < 2:
            continue  # the agent knows this game and did not play it here
        means, best = [RETURN, SCORE], BEST
        if len(games) > 1:
            means, best = [f"{RETURN}_{task}"], f"{BEST}_{task}"
        found = curve_of(records, means, best, steps_of)
        curve = _curve(_points_of(found), found.best)
        yield Run(
            replace(about, env=game, best=curve.best), _thinned(curve), folder.path, every_flag
        )


def _steps_of(task: int, share: float) -> Callable[[Record], float]:
    """Return a function that counts the steps of one game; older versions wrote only the sum."""
    name = f"episode/agent_steps_{task}"
    return lambda record: record.values.get(name, record.agent_steps * share)


def _points_of(curve: Curve) -> np.ndarray:
    """Return [n, 3] agent steps, seconds and mean return."""
    return np.stack([curve.agent_steps, curve.wall_s, curve.mean_return], axis=1)


def _rounded(points: np.ndarray) -> np.ndarray:
    """Round `[n, 3]` points as they are written: whole steps, ms, RETURN_DIGITS of return."""
    returns = [float(f"{value:.{RETURN_DIGITS}g}") for value in points[:, 2]]
    return np.stack([points[:, 0].round(), points[:, 1].round(3), returns], axis=1)


def _curve(points: np.ndarray, best: float | None) -> Curve:
    """Make a curve of `[n, 3]` points, rounded; steps and time strictly increase after it."""
    points = _rounded(points)
    kept: list[np.ndarray] = []
    for point in points:
        if not kept or (point[0] > kept[-1][0] and point[1] > kept[-1][1]):
            kept.append(point)
    columns = np.array(kept, np.float64).reshape(-1, len(COLUMNS)).T
    return Curve(columns[0], columns[1], columns[2], best)


def _thinned(curve: Curve) -> Curve:
    """Return at most MAX_ROWS points of a curve: some at equal distances, and new highs.

    A score is first reached at a new high, which is kept with its neighbours: without them it would
    add to the area what it had not.
    """
    count = len(curve.agent_steps)
    if count <= MAX_ROWS:
        return curve
    kept, highest = set[int](), -np.inf
    for group in np.array_split(np.arange(count), HIGHS):
        high = int(group[curve.mean_return[group].argmax()])
        if curve.mean_return[high] > highest:
            highest = curve.mean_return[high]
            kept |= {high - 1, high, high + 1} & set(range(count))
    kept |= set(evenly(count, MAX_ROWS - len(kept)).tolist())
    points = _points_of(curve)[sorted(kept)]
    return Curve(points[:, 0], points[:, 1], points[:, 2], curve.best)


def relabelled(run: Run, label: str) -> Run:
    """Return the run as one of the configuration `label`."""
    return replace(run, about=replace(run.about, label=label))


def _labelled(runs: Sequence[Run], by: str) -> list[Run]:
    """Label runs by the values of some flags; for "label", those without a label by differences."""
    if by == "label":
        unnamed = [run for run in runs if not run.about.label]
        labels = iter(distinguishing_labels([(run.about.env, run.flags) for run in unnamed]))
        return [run if run.about.label else relabelled(run, next(labels)) for run in runs]
    names = [flag_of(name.strip()) for name in by.split(",")]
    for run in runs:
        missing = [name for name in names if name not in run.flags]
        if missing:
            raise ConfigError(
                f"--by={by}: {run.source} has no flag {missing[0]!r}. Give names that "
                f"`{main_command()} --help=all` lists; runs read from CSV files have only a label."
            )
    return [relabelled(run, label_by(names, run.flags)) for run in runs]


def _check_distinct(runs: Sequence[Run]) -> None:
    """Refuse two runs that would be counted as two seeds, or would share a file."""
    seen: dict[str, Run] = {}
    for run in runs:
        other = seen.setdefault(run.csv_name, run)
        if other is run:
            continue
        if other.about.label != run.about.label:
            raise ConfigError(
                f"{other.about.label!r} and {run.about.label!r} would both be written to "
                f"{run.csv_name}: give shorter labels, --runs='name=folder,other name=folder'."
            )
        raise ConfigError(
            f"{other.source} and {run.source} are both seed {run.about.seed} of "
            f"{run.about.label!r} in {run.about.env}, so they are not two independent runs. "
            "Leave one out, or tell them apart: --runs='name=folder,other name=folder'."
        )
