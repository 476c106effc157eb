"""Test mode: whole games with a frozen model, raw returns, numbers that mean something.

The report counts how many games really differ. An agent of several games plays each of them; it may
also be shown games that it was not trained on, if its actions cover theirs.
`--test_all_checkpoints` does so with every checkpoint of a run. Next to read:
agent/testing/whole_games.py, how games are played, and score_table.py, what is made of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ritornello.agent.assembly import Blueprint
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.model_file import check_weights
from ritornello.agent.testing.model_card import read_test
from ritornello.agent.testing.player import game_config
from ritornello.agent.testing.score_table import (
    Game,
    Report,
    mean_human_normalised,
    policy_name,
    report_stem,
    score_table,
    summarise,
)
from ritornello.agent.testing.whole_games import play_games, play_shown
from ritornello.core.atomic_file import writable_folder, write_csv, write_json
from ritornello.core.command_line import tell
from ritornello.core.errors import CheckpointError, EnvironmentFault
from ritornello.core.project import as_typed
from ritornello.flags.earlier import modern
from ritornello.metrics.text import duration, same_decimals
from ritornello.wrappers.start_line import describe

# The flags that decide which games these are, besides --env.
GAME_RULES = (
    "env_kwargs", "skipped_frames", "frames_stacked", "noop_threshold", "grayscaling_frames",
    "frame_scale_resolution", "fire_reset", "repeat_action_probability",
    "action_set", "max_episode_frames",
)  # fmt: skip

Show = Callable[[str], None]  # is called with each line of progress


def evaluate(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    output: Path,
    *,
    envs: Sequence[str] = (),
    show: Show = tell,
) -> list[Report]:
    """Play `--test_episode_count` whole games of each env and report them.

    Args:
      blueprint: made from the checkpoint's flags and what the user changed; its env is the model's.
      checkpoint: checkpoint whose model plays.
      output: folder of the CSV, JSON and video. Their names say which checkpoint played what, and
        how: a test of other games overwrites none, nor does one of fewer games by these weights.
      envs: ids of the games to play; by default those of the blueprint.
      show: is called with each line of progress. If it raises OSError or ValueError, the games go
        on in silence.

    Returns:
      One report per env that had a finished game. After an interrupt, reports cover fewer games
      than were asked for.

    Raises:
      ConfigError: if nothing can be written into `output`; no game was played then.
      EnvironmentFault: if an environment fails; the games that were over by then are written first.
      OSError: likewise, if the system refuses something; or if the games cannot be written.
    """
    flags = blueprint.flags
    show = _while_somebody_reads(show)
    checkpoint.check_spec(blueprint.env_spec)
    writable_folder(output)
    show(f"{as_typed(checkpoint.path)}: {checkpoint.agent_steps:,} agent steps")
    envs = envs or blueprint.env_spec.tasks
    unusual = _not_its_own(blueprint, checkpoint, envs)
    stem = report_stem(checkpoint.name, envs, policy_name(flags.greedy), unusual)
    if flags.seed != checkpoint.state["flags"].get("seed"):
        stem += f"_seed{flags.seed}"
    model = _acting_model(blueprint, checkpoint)
    earlier = output / f"{stem}.json"
    told = _games_told(earlier, checkpoint)
    if earlier.exists() and not told:
        (output / f"{stem}.mp4").unlink(missing_ok=True)  # the film shows other weights too
    games: dict[str, list[Game]] = {env: [] for env in envs}
    asked = len(games) * flags.test_episode_count
    film = f"{stem}_{asked}games" if asked < told else stem  # as the table will be called
    ended = _play_all(blueprint, model, games, output / f"{film}.mp4", show)
    played = {env: of_env for env, of_env in games.items() if of_env}
    if ended is not None and not played:
        raise ended
    reports = [
        replace(
            summarise(of_env, env, str(checkpoint.path), checkpoint.agent_steps, flags.greedy),
            rules=describe(game_config(blueprint, env)),
            asked=flags.test_episode_count,
        )
        for env, of_env in played.items()
    ]
    count = sum(map(len, played.values()))
    is_shorter = count < max(asked, told)
    name = f"{stem}_{count}games" if is_shorter else stem
    lines = _lines(reports)
    if ended is not None:
        how = "interrupted" if isinstance(ended, KeyboardInterrupt) else "ended"
        few = "short games are over first, so these say less than all would"
        lines.insert(0, f"{how} after {count} of {asked} games; {few}")
    try:
        # First of all: a terminal that is frozen may take no line any more.
        _write(output / name, played, _whole_report(envs, asked, reports))
        lines.append(f"written: {as_typed(output / name)}.csv and .json")
    except OSError as refused:
        text = f"the games are over, but could not be written to {output}: {refused}"
        raise OSError(text) from (ended or refused)
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # who waits no longer has the games
            for line in lines:
                show(line)
    if isinstance(ended, Exception):
        raise ended
    return reports


def _play_all(
    blueprint: Blueprint, model: ActorCritic, games: dict[str, list[Game]], video: Path, show: Show
) -> KeyboardInterrupt | EnvironmentFault | OSError | None:
    """Play the games of each env into its list; return the error that ended them early, if any.

    With --render the first game is shown: in `video` where there is no display.
    """
    flags = blueprint.flags
    try:
        for env, of_env in games.items():
            is_shown = flags.render and not any(games.values())
            playing = _games_of(blueprint, model, env, video if is_shown else None, show)
            with contextlib.closing(playing):
                for game in playing:
                    of_env.append(game)
                    show(
                        f"game {len(of_env)}/{flags.test_episode_count}: return "
                        f"{game.return_raw:g}, {game.length_steps} steps, "
                        f"{game.length_frames} frames"
                    )
    except (KeyboardInterrupt, EnvironmentFault, OSError) as error:
        return error
    return None


def _games_of(
    blueprint: Blueprint, model: ActorCritic, env: str, video: Path | None, show: Show
) -> Generator[Game, None, None]:
    """Yield the games of one env as they end; the first one is shown if there is a `video`."""
    show(describe(game_config(blueprint, env)))
    show(f"playing {env}")
    shown = play_shown(blueprint, model, env, video, show) if video else []
    yield from shown
    wanted = blueprint.flags.test_episode_count - len(shown)
    yield from play_games(blueprint, model, env, wanted, number=len(shown), show=show)


def _lines(reports: Sequence[Report]) -> list[str]:
    """Return the lines that the terminal shows after all games."""
    lines = [line for report in reports for line in report.lines()]
    mean = mean_human_normalised(reports)
    if len(reports) > 1 and mean is not None:
        known = sum(report.human_normalised is not None for report in reports)
        lines.append(f"mean human-normalised score over {known} of the games  {100 * mean:.1f} %")
    return lines


def evaluate_all(
    blueprint: Blueprint,
    checkpoint: Checkpoint,
    output: Path,
    *,
    envs: Sequence[str] = (),
    show: Show = tell,
) -> None:
    """Play games with every checkpoint beside `checkpoint`, oldest first, into a ScoreTable.

    Games in the table are not played again. So an interrupted test goes on where it was, as does
    the test of a run that has trained on since. The arguments are those of `evaluate`; `output` is
    the folder of the table. In a model folder, its one model plays.

    Raises:
      ConfigError: if the table there is of another kind of test, or another process writes it, or
        nothing can be written there.
      EnvironmentFault, OSError: if games fail; the same call goes on from there.
    """
    writable_folder(output)
    flags, show = blueprint.flags, _while_somebody_reads(show)
    envs = envs or blueprint.env_spec.tasks
    rules = _not_its_own(blueprint, checkpoint, blueprint.env_spec.tasks)
    if flags.seed != checkpoint.state["flags"].get("seed", flags.seed):
        rules += f" seed {flags.seed}"  # other games, though by the same rules
    policy = policy_name(flags.greedy, rules)
    with score_table(output, flags.test_episode_count, policy) as table:
        beside = _checkpoints_beside(checkpoint, show)
        names = {path: path.stem for _, path in beside} | {checkpoint.path: checkpoint.name}
        waiting = [
            (path, env)
            for steps, path in beside
            for env in envs
            if not table.has(names[path], steps, env)
        ]
        show(f"tests that are not in {table.games_file} yet: {len(waiting)}")
        began_s, tested = time.monotonic(), 0
        for path, of_path in itertools.groupby(waiting, lambda pair: pair[0]):
            try:
                current = checkpoint if path == checkpoint.path else load(path)
                current.check_spec(blueprint.env_spec)
                model = _acting_model(blueprint, current)
            except CheckpointError as error:  # of another network, or dropped since by a training
                show(f"left out: {error}")
                continue
            for _, env in of_path:
                # Not as they were found: a training beside this may have a better best.pt by now.
                steps = current.agent_steps
                games = list(play_games(blueprint, model, env, flags.test_episode_count, show=show))
                table.add(names[path], steps, env, games)
                report = summarise(games, env, str(path), steps, flags.greedy)
                mean, per_life = same_decimals([report.mean, report.mean_per_life], 2)
                tested += 1
                left_s = (time.monotonic() - began_s) / tested * (len(waiting) - tested)
                show(
                    f"{tested}/{len(waiting)} {names[path]} ({steps:,} agent steps) in {env}: mean "
                    f"{mean}, per life {per_life}; about "
                    f"{duration(left_s)} left"
                )
        show(f"written: {table.games_file} and {table.lives_file.name}")


def _checkpoints_beside(checkpoint: Checkpoint, show: Show) -> list[tuple[int, Path]]:
    """Return (agent steps, path) of all checkpoints in the folder of this one, in order of steps.

    A milestone and a regular checkpoint of the same moment are one model: the milestone counts.
    """
    if not checkpoint.can_resume:
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
    """Return a text with the games and rules that are not the model's own; "" if all are."""
    saved, flags = modern(checkpoint.state["flags"]), blueprint.flags.to_json()
    known = [name for name in GAME_RULES if name in saved]
    changed = {name: flags[name] for name in known if saved[name] != flags[name]}
    if not changed and tuple(envs) == blueprint.env_spec.tasks:
        return ""
    return json.dumps([list(envs), changed], sort_keys=True)


def _games_told(file: Path, checkpoint: Checkpoint) -> int:
    """Return of how many games of this checkpoint an earlier test tells in a file, 0 if of none."""
    reports = read_test(file)
    is_same = bool(reports) and reports[0].agent_steps == checkpoint.agent_steps
    return sum(report.episodes for report in reports) if is_same else 0


def _acting_model(blueprint: Blueprint, checkpoint: Checkpoint) -> ActorCritic:
    """Return an acting copy of the checkpoint's model.

    Raises:
      CheckpointError: if its weights are of another network.
    """
    model, _ = blueprint.acting_model()
    check_weights(checkpoint, model)
    model.load_state_dict(checkpoint.state["learner"]["model"])
    return model


def _while_somebody_reads(show: Show) -> Show:
    """Return a `show` that goes silent once nobody reads its lines: that must not end a game.

    A reader may have left, as `| head` does, or the terminal is closed (ValueError).
    """

    def show_if_read(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            show(line)

    return show_if_read


def _whole_report(envs: Sequence[str], asked: int, reports: Sequence[Report]) -> dict[str, object]:
    """Return the report of one game as it is; with several games, one that holds all reports."""
    first = reports[0]
    if len(envs) == 1:
        return asdict(first)
    return {
        "env": ",".join(envs),
        "checkpoint": first.checkpoint,
        "agent_steps": first.agent_steps,
        "policy": first.policy,
        "episodes": sum(report.episodes for report in reports),
        "asked": asked,
        "human_normalised": mean_human_normalised(reports),
        "games": [asdict(each) for each in reports],
    }


def _write(path: Path, played: dict[str, list[Game]], report: dict[str, object]) -> None:
    """Write <path>.csv, a row per game, and <path>.json, the report; neither follows a link."""
    rows = [{"env": env, **game.row()} for env, games in played.items() for game in games]
    # A name may have points in it, so `with_suffix` would cut it.
    write_csv(path.with_name(f"{path.name}.csv"), list(rows[0]), map(dict.values, rows))
    write_json(path.with_name(f"{path.name}.json"), report)
