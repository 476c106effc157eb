"""One session of training in its run folder: a new run, or one more session of an old one.

`train` takes what `agent.session.prepare` has found sound. It makes or takes over the folder, opens
log and sinks, lets the trainer run, and writes down how it ended. From the log's opening on, every
failure is one message in it and the exit status 1; before it, nothing has been started.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ritornello.agent.assembly import Blueprint, env_config, model_config, replay_configs
from ritornello.agent.learners.group import LearnerLost
from ritornello.agent.machine import go_to_background
from ritornello.agent.models.factory import describe_networks
from ritornello.agent.run.coordinator import SINGLE_LEARNER, Coordinator
from ritornello.agent.run.next_commands import next_command
from ritornello.agent.run.reporting import Reporting
from ritornello.agent.run.trainer import Summary, Trainer
from ritornello.agent.run.warm_start import WarmStart
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.stored.run_rewind import check_not_saved_since, take_back
from ritornello.core.errors import PlatformError
from ritornello.core.kept_settings import set_torch
from ritornello.core.project import as_typed
from ritornello.core.spec import game_name
from ritornello.core.standard_error import say
from ritornello.core.stop_signals import INTERRUPTED, Answer, StopSignals
from ritornello.flags.earlier import GONE, modern
from ritornello.flags.options import Flags
from ritornello.flags.parsing import remarks
from ritornello.wrappers.start_line import describe

# Why a session ended.
REASONS = {
    "steps": "all agent steps are done",
    "seconds": "the time is over",
    "return": "the mean return aimed at is reached",
    "interrupted": "interrupted",
}

# Beside a GPU the learner gives Python's lock away at each of many small operations, and may wait
# for so long until the thread that makes batches gives it back. With Python's own 5 ms a run had a
# sixteenth less speed there (docs/performance.md).
GPU_SWITCH_INTERVAL_S = 0.0005
PROGRAM = "main.py"  # whose flags `argv` are

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How a session ended; what went wrong has been logged."""

    status: int  # exit status
    folder: Path
    summary: Summary | None = None  # None: it failed
    failure: Exception | None = None


def train(
    blueprint: Blueprint,
    argv: Sequence[str],
    stop: StopSignals,
    checkpoint: Checkpoint | None = None,
    own_folder: RunFolder | None = None,
    start: WarmStart | None = None,
    coordinator: Coordinator | None = None,
) -> Ending:
    """Train until a limit, a wish to stop or a failure; return how it ended.

    Args:
      blueprint: flags and shapes.
      argv: the command line without the program's name, for run.json.
      stop: what the user asks for meanwhile.
      checkpoint: what to continue from, if it is of a run.
      own_folder: the run folder that the checkpoint lies in, if it lies in one.
      start: what a new run takes its weights from.
      coordinator: the other learners of the run, if there are any.

    Raises:
      ConfigError: if there can be no run folder, or another session has saved in it since the
        checkpoint was read; nothing was started then.
    """
    flags, coordinator = blueprint.flags, coordinator or SINGLE_LEARNER
    if flags.background:
        go_to_background()
    if not blueprint.place.speaks:
        return train_as_other_learner(blueprint, stop, coordinator, checkpoint, start)
    is_resumed = own_folder is not None and checkpoint is not None and not flags.new_run_folder
    folder = own_folder if own_folder is not None and is_resumed else None
    folder = folder or RunFolder.create(flags.results_dir, flags.env, name=flags.run_name)
    resumed = checkpoint if is_resumed else None
    with ExitStack() as session:
        session.enter_context(folder.lock())
        if resumed is not None:
            check_not_saved_since(resumed)
        reporting = session.enter_context(closing(Reporting(folder, flags)))

        def begin() -> None:
            if resumed is not None:
                for note in (*resumed.notes, *take_back(folder, resumed)):
                    log.info("%s", note)
            coordinator.broadcast(str(folder.path.resolve()))  # its journals are cut by now
            folder.write_flags(flags.to_json())
            folder.write_run_info([PROGRAM, *argv])
            _log_start(argv, blueprint, folder, checkpoint, start)

        return _run(
            blueprint, folder, reporting, stop, coordinator, checkpoint, start,
            begin=begin, finish=lambda summary: _finish(summary, folder, flags, stop),
        )  # fmt: skip


def train_as_other_learner(
    blueprint: Blueprint,
    stop: StopSignals,
    coordinator: Coordinator,
    checkpoint: Checkpoint | None = None,
    start: WarmStart | None = None,
) -> Ending:
    """Train as another learner than the first, which decides and writes; return how it ended.

    Args:
      blueprint: flags and shapes.
      stop: what the user asks for meanwhile.
      coordinator: the other learners.
      checkpoint: what to continue from, if it is of a run.
      start: what a new run takes its weights from.
    """
    path = Path(coordinator.broadcast(""))
    path.mkdir(parents=True, exist_ok=True)  # on another machine it is another folder
    folder, rank = RunFolder(path), blueprint.place.rank

    def finish(summary: Summary) -> int:
        log.info("this learner has ended: %s", REASONS[summary.reason])
        return summary.status

    with closing(Reporting(folder, blueprint.flags, rank)) as reporting:
        ending = _run(
            blueprint, folder, reporting, stop, coordinator, checkpoint, start,
            begin=lambda: log.info("learner %d of %d", rank, blueprint.place.world_size),
            finish=finish,
        )  # fmt: skip
        error = ending.failure
        is_first = isinstance(error, LearnerLost) and 0 in error.ranks  # it cannot say it
        if is_first and not blueprint.place.is_launched:  # or the launcher does
            say(f"learner {rank}: the run failed: {error}")
        return ending


def _run(
    blueprint: Blueprint,
    folder: RunFolder,
    reporting: Reporting,
    stop: StopSignals,
    coordinator: Coordinator,
    checkpoint: Checkpoint | None,
    start: WarmStart | None,
    *,
    begin: Callable[[], object],
    finish: Callable[[Summary], int],
) -> Ending:
    """Train with the log open: whatever fails from here on is a message in it.

    Args:
      blueprint: flags and shapes.
      folder: the run folder.
      reporting: log and sinks; belongs to the caller.
      stop: what the user asks for meanwhile.
      coordinator: the other learners.
      checkpoint: what to continue from, if it is of a run.
      start: what a new run takes its weights from.
      begin: what comes before the trainer is built.
      finish: what comes after it has ended; returns the exit status.
    """
    try:
        _set_up_torch(blueprint.flags, blueprint.choices.device)
        begin()
        if start is not None:
            checkpoint = start.first_checkpoint(blueprint)
        trainer = Trainer(
            blueprint, folder, reporting.open_sinks(), checkpoint,
            stop=stop, flush=reporting.flush, coordinator=coordinator, status=reporting.status,
        )  # fmt: skip
        summary = trainer.run()
        reporting.close_sinks()
        reporting.say("ended", reason=summary.reason)
        return Ending(finish(summary), folder.path, summary)
    except Exception as error:
        coordinator.announce_failure(error)
        is_known = isinstance(error, (PlatformError, OSError)) or not blueprint.place.speaks
        reporting.fail(error, is_known=is_known)
        return Ending(1, folder.path, failure=error)


def _finish(summary: Summary, folder: RunFolder, flags: Flags, stop: StopSignals) -> int:
    """Write down how the run ended, draw the charts, and say how to go on."""
    folder.write_summary(asdict(summary))
    status = summary.status
    if flags.charts:
        from ritornello.metrics.charts import draw_run

        log.info("drawing the charts; Ctrl-C leaves without them")
        try:
            with stop.answered_by(Answer.RAISE):
                draw_run(folder.path)
        except KeyboardInterrupt:
            log.info("the charts are not drawn; everything else is saved")
            status = INTERRUPTED
        except Exception as error:
            # The run is saved and whole; a picture of it can be drawn at any time.
            log.warning("the charts could not be drawn: %s", error)
            log.debug("traceback", exc_info=True)
    _log_end(summary, folder, flags)
    return status


def _set_up_torch(flags: Flags, device: torch.device) -> None:
    # The learner's threads compute shares of a batch side by side (agent/models/parallel.py); each
    # of their operators, and those of the scorer and the feed, runs on one thread.
    torch.set_num_threads(1)
    set_torch()  # whatever code of the user has set
    if device.type == "cuda":
        sys.setswitchinterval(GPU_SWITCH_INTERVAL_S)
    if flags.debug:
        torch.autograd.set_detect_anomaly(True)
    if flags.reproducible:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def _log_start(
    argv: Sequence[str],
    blueprint: Blueprint,
    folder: RunFolder,
    checkpoint: Checkpoint | None,
    start: WarmStart | None,
) -> None:
    flags, choices = blueprint.flags, blueprint.choices
    log.info("run folder %s", as_typed(folder.path))
    for remark in remarks(argv, flags):
        log.info("note: %s", remark)
    log.info("%s", describe(env_config(flags), restorable=flags.reproducible))
    log.info(
        "model %s; an action is %s",
        describe_networks(model_config(flags), blueprint.env_spec),
        blueprint.env_spec.actions.describe(),
    )
    log.info(
        "%s of %s, actions chosen by %s, torso in %s, learner on %s with %s",
        _counted(choices.worker_count, "worker"), _counted(choices.envs_per_worker, "environment"),
        "one server" if choices.inference == "server" else "each worker",
        "bf16" if choices.torso_dtype == torch.bfloat16 else "fp32",
        choices.device, _counted(choices.learner_threads, "thread"),
    )  # fmt: skip
    if blueprint.place.world_size > 1:
        count = blueprint.place.world_size
        log.info(
            "%d learners; each has such workers, and batches of %d unrolls of its own: %d together",
            count, flags.batch_size, count * flags.batch_size,
        )  # fmt: skip
    for reason in choices.reasons:
        log.debug("chosen: %s", reason)
    if blueprint.env_spec.task_count > 1:
        _log_games(blueprint, checkpoint, start)
    buffers = ", ".join(
        f"{c.type} {float(c.sample_ratio):g} of {c.capacity}" for c in replay_configs(flags)
    )
    log.info(
        "replay: %s; an unroll of %d steps takes %.0f kB; seed %d",
        buffers, blueprint.schema.unroll_length, blueprint.schema.nbytes / 1e3, flags.seed,
    )  # fmt: skip
    if start is not None:
        log.info(
            "a new run that starts from the weights of %s, trained for %s agent steps; counters "
            "are at zero, the optimiser is fresh; values go along in %s%s",
            start.path, f"{start.agent_steps:,}", ", ".join(start.known) or "no game",
            f", and start anew in {', '.join(start.fresh)}" if start.fresh else "",
        )  # fmt: skip
    elif checkpoint is not None:
        log.info(
            "resuming %s at %s agent steps",
            as_typed(checkpoint.path), f"{checkpoint.agent_steps:,}",
        )  # fmt: skip
        gone = sorted(modern(checkpoint.state["flags"]).keys() - Flags.model_fields.keys())
        gone += sorted(GONE & checkpoint.state["flags"].keys())
        if gone:
            log.info("flags of an earlier version are passed over: %s", ", ".join(gone))
    log.info(
        "starting workers; learning begins when replay is %.0f %% full. Ctrl-C saves and exits",
        100 * flags.training_fill_in_factor,
    )


def _log_games(
    blueprint: Blueprint, checkpoint: Checkpoint | None, start: WarmStart | None
) -> None:
    flags = blueprint.flags
    games = dict(zip(blueprint.env_spec.tasks, blueprint.environments_of_games(), strict=True))
    log.info(
        "environments: %s",
        ", ".join(f"{count} of {game_name(game)}" for game, count in games.items()),
    )
    begun = games if checkpoint is None else ()
    for game in begun if start is None else start.fresh:
        if not games[game]:
            log.warning(
                "%s has share 0 and the agent does not know it: until it is played, by a "
                "resume with other --env_shares, a test of it says nothing",
                game_name(game),
            )
    if checkpoint is None or not (flags.load_replay and checkpoint.state.get("has_replay")):
        return
    one_for_all = any(
        not config.sets_the_pace and not config.values["per_game"]
        for config in replay_configs(flags)
    )
    for game, count in games.items():
        # Measured: docs/results.md, "A replay of all that was played".
        if one_for_all and not count and not flags.value_cloning_loss_weight:
            log.warning(
                "%s is not played any more and stays in the replay: nothing holds its values, "
                "which may grow without end. Give --value_cloning_loss_weight=0.005 "
                "--policy_cloning_loss_weight=0.01",
                game_name(game),
            )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _log_end(summary: Summary, folder: RunFolder, flags: Flags) -> None:
    mean_of = "score" if len(flags.env.split(",")) > 1 else "mean return"
    mean = "none yet" if summary.mean_return is None else f"{summary.mean_return:.2f}"
    log.info(
        "%s: %s agent steps (%.0f a second), %d updates, %d games, %s %s",
        REASONS[summary.reason], f"{summary.agent_steps:,}", summary.agent_steps_per_s,
        summary.updates, summary.episodes, mean_of, mean,
    )  # fmt: skip
    if not summary.updates and summary.reason != "interrupted":
        log.error(
            "no update was made: %s agent steps are too few for the first batch "
            "(--environment_max_steps, --training_fill_in_factor, --batch_size, --r_f_steps)",
            f"{summary.agent_steps:,}",
        )
    if not folder.has_checkpoint():
        log.info("nothing was saved, because no update was made")
        return
    to_resume = f" --learner_count={flags.learner_count}" if flags.learner_count > 1 else ""
    if summary.reason == "steps":  # without more steps to do, it would be refused
        to_resume += f" \\\n  --environment_max_steps={2 * flags.environment_max_steps}"
    log.info("resume: %s%s", next_command("train_w_load", folder.path, flags), to_resume)
    log.info("test: %s", next_command("test", folder.path, flags))
