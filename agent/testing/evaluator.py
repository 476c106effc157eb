"""Test mode: whole games with a frozen model, raw returns, numbers that mean something.

The report counts how many games really differ. An agent of several games plays each of them; it may
also be shown games that it was not trained on, if its actions cover theirs.
`--test_all_checkpoints` does so with every checkpoint of a run. Next to read:
agent/testing/whole_games.py, how games are played, and score_table.py, what is made of them.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from agent.assembly import Blueprint
from agent.models.base import ActorCritic
from agent.stored.checkpoint import Checkpoint, load
from agent.stored.model_file import ShippedModel, check_weights
from agent.testing.player import game_config
from agent.testing.score_table import (
    Game,
    Report,
    ScoreTable,
    alone_with_table,
    mean_human_normalised,
    policy_name,
    report_stem,
    summarise,
)
from agent.testing.whole_games import MAX_ENVS, play_games, play_shown
from core.atomic_file import write_json, write_text
from core.command_line import tell
from core.durations import duration
from core.errors import CheckpointError, EnvironmentFault
from wrappers.registry import describe

# The flags that decide which games these are, besides --env.
RULES = (
    "env_kwargs", "skipped_frames", "frames_stacked", "noop_threshold", "grayscaling_frames",
    "frame_scale_resolution", "fire_reset", "repeat_action_probability", "full_action_space",
    "action_set", "max_episode_frames",
)  # fmt: skip


def evaluate(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    output: Path,
    *,
    envs: Sequence[str] = (),
    show: Callable[[str], None] = tell,
) -> list[Report]:
    """Play `--test_episode_count` whole games of each env and report them.

    Args:
      blueprint: of the checkpoint's flags, changed by what the user says; its env is the model's.
      checkpoint: checkpoint whose model plays.
      output: folder for the CSV, JSON and video; their names say which checkpoint played what, and
        how, so that no test overwrites another.
      envs: ids of the games to play; none: those of the blueprint.
      show: function that is called with each line of progress.

    Returns:
      One report per env that had a finished game.

    Raises:
      EnvironmentFault: if an environment fails; the games that were over by then are written first.
    """
    flags = blueprint.flags
    checkpoint.check_spec(blueprint.env_spec)
    steps = checkpoint.agent_steps
    show(f"{checkpoint.path}: {steps:,} agent steps")
    envs = envs or blueprint.env_spec.tasks
    unusual = _not_its_own(blueprint, checkpoint, envs)
    stem = report_stem(checkpoint.path.stem, envs, policy_name(flags.greedy), unusual)
    model = _acting_model(blueprint, checkpoint)
    played: dict[str, list[Game]] = {}
    fault: EnvironmentFault | None = None
    try:
        for env in envs:
            show(describe(game_config(blueprint, env)))
            games = played.setdefault(env, [])

            def finished(game: Game, games: list[Game] = games) -> None:
                games.append(game)
                show(
                    f"game {len(games)}/{flags.test_episode_count}: return {game.return_raw:g}, "
                    f"{game.length_steps} steps, {game.length_frames} frames"
                )

            if flags.render and len(played) == 1:
                play_shown(blueprint, model, env, output / f"{stem}.mp4", finished, show)
            show(f"playing {env}, up to {min(MAX_ENVS, flags.test_episode_count)} games at a time")
            play_games(blueprint, model, env, flags.test_episode_count, games, finished, show)
    except (KeyboardInterrupt, EnvironmentFault) as error:
        count = sum(map(len, played.values()))
        if not count:
            raise
        fault = error if isinstance(error, EnvironmentFault) else None
        show(f"{'ended' if fault else 'interrupted'} after {count} game{'s' * (count > 1)}")
    played = {env: games for env, games in played.items() if games}
    reports = [
        replace(
            summarise(games, env, str(checkpoint.path), steps, flags.greedy),
            rules=describe(game_config(blueprint, env)),
        )
        for env, games in played.items()
    ]
    _write(output, stem, played, reports)
    for report in reports:
        for line in report.lines():
            show(line)
    mean = mean_human_normalised(reports)
    if len(reports) > 1 and mean is not None:
        known = sum(report.human_normalised is not None for report in reports)
        show(f"mean human-normalised score over {known} of the games  {100 * mean:.1f} %")
    show(f"written: {output / stem}.csv and .json")
    if fault is not None:
        raise fault
    return reports


def evaluate_all(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    output: Path,
    *,
    envs: Sequence[str] = (),
    show: Callable[[str], None] = tell,
) -> None:
    """Play games with every checkpoint beside `checkpoint`, oldest first, into a ScoreTable.

    What is in the table already is not played again, so an interrupted test, or that of a run
    that has trained on since, goes on where it was.

    Args:
      blueprint: as for `evaluate`.
      checkpoint: a checkpoint of the run; a model folder holds only this one.
      output: folder for the table.
      envs: as for `evaluate`.
      show: function that is called with each line of progress.

    Raises:
      ConfigError: if the table there is of another kind of test, or another process writes it.
    """
    with alone_with_table(output):
        _evaluate_all(blueprint, checkpoint, output, envs, show)


def _evaluate_all(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    output: Path,
    envs: Sequence[str],
    show: Callable[[str], None],
) -> None:
    flags = blueprint.flags
    policy = policy_name(flags.greedy)
    table = ScoreTable(output, flags.test_episode_count, policy)
    pairs = [
        (path, steps, env)
        for steps, path in _checkpoints_beside(checkpoint, show)
        for env in envs or blueprint.env_spec.tasks
    ]
    waiting = [pair for pair in pairs if not table.has(pair[0].stem, *pair[1:])]
    show(f"{len(pairs) - len(waiting)} of {len(pairs)} tests are in {table.games_file} already")
    began_s = time.monotonic()
    tried: Path | None = None
    model: ActorCritic | None = None
    for number, (path, _, env) in enumerate(waiting, start=1):
        if path != tried:
            tried, model = path, None
            try:
                current = checkpoint if path == checkpoint.path else load(path)
                current.check_spec(blueprint.env_spec)
                model = _acting_model(blueprint, current)
            except CheckpointError as error:  # of another network, or dropped since by a training
                show(f"left out: {error}")
                continue
            # Not as they were found: a training beside this may have a better best.pt by now.
            steps = current.agent_steps
        if model is None or table.has(path.stem, steps, env):
            continue
        games: list[Game] = []
        play_games(blueprint, model, env, flags.test_episode_count, games, games.append, show)
        table.add(path.stem, steps, env, games, policy)
        report = summarise(games, env, str(path), steps, flags.greedy)
        left_s = (time.monotonic() - began_s) / number * (len(waiting) - number)
        show(
            f"{number}/{len(waiting)} {path.stem} ({steps:,} agent steps) in {env}: mean "
            f"{report.mean:.2f}, per life {report.mean_per_life:.2f}; about {duration(left_s)} left"
        )
    show(f"written: {table.games_file} and {table.lives_file.name}")


def _checkpoints_beside(
    checkpoint: Checkpoint, show: Callable[[str], None]
) -> list[tuple[int, Path]]:
    """Return (agent steps, path) of all checkpoints in the folder of this one, in order of steps.

    A milestone and a regular checkpoint of the same moment are one model: the milestone counts.
    """
    if isinstance(checkpoint, ShippedModel):
        return [(checkpoint.agent_steps, checkpoint.path)]
    folder = checkpoint.path.parent
    found: dict[tuple[int, int], Path] = {}
    for pattern in ("step_*.pt", "update_*.pt", "best.pt"):
        for path in sorted(folder.glob(pattern)):
            try:
                other = load(path)
            except CheckpointError as error:
                show(f"left out: {error}")
                continue
            found.setdefault((other.agent_steps, other.updates), path)
    if not found:  # a single file with a name of its own
        return [(checkpoint.agent_steps, checkpoint.path)]
    return [(steps, path) for (steps, _), path in sorted(found.items())]


def _not_its_own(blueprint: Blueprint, checkpoint: Checkpoint, envs: Sequence[str]) -> str:
    """Return as text which games are played by which rules; "" if both are the model's own."""
    saved, flags = checkpoint.state["flags"], blueprint.flags.to_json()
    changed = {name: flags[name] for name in RULES if name in saved and saved[name] != flags[name]}
    if not changed and tuple(envs) == blueprint.env_spec.tasks:
        return ""
    return json.dumps([list(envs), changed], sort_keys=True)


def _acting_model(blueprint: Blueprint, checkpoint: Checkpoint) -> ActorCritic:
    """Return an acting copy of the checkpoint's model.

    Raises:
      CheckpointError: if its weights are of another network.
    """
    model, block = blueprint.acting_model()
    trained, _ = blueprint.acting_model()
    check_weights(checkpoint, trained)
    trained.load_state_dict(checkpoint.state["learner"]["model"])
    blueprint.acting_weights.pack(trained, block)
    return model


def _write(
    output: Path, stem: str, played: dict[str, list[Game]], reports: Sequence[Report]
) -> None:
    """Write <stem>.csv, a row per game, and <stem>.json, the report or the list of reports."""
    output.mkdir(parents=True, exist_ok=True)
    rows = [{"env": env, **game.row()} for env, games in played.items() for game in games]
    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(output / f"{stem}.csv", table.getvalue())  # it follows no link
    first = reports[0]
    report = asdict(first)
    if len(reports) > 1:
        report = {
            "env": ",".join(played),
            "checkpoint": first.checkpoint,
            "agent_steps": first.agent_steps,
            "policy": first.policy,
            "episodes": len(rows),
            "human_normalised": mean_human_normalised(reports),
            "games": [asdict(each) for each in reports],
        }
    write_json(output / f"{stem}.json", report)
