"""One invocation of main.py: everything that can be wrong is found before anything is made.

`prepare` resolves flags, checkpoint, environment and machine, and checks memory; it starts no
process and makes no folder. `Session.run` then trains or tests, and returns the exit status.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.logging import RichHandler

from agent.assembly import Blueprint, build_model, env_config, replay_configs
from agent.checkpoint import Checkpoint, load
from agent.evaluator import evaluate, evaluate_all
from agent.guardian import report_run_folder
from agent.model_file import ShippedModel, check_weights, find_model_folder, load_model
from agent.run_folder import RunFolder, RunLog
from agent.trainer import INTERRUPTED, Summary, Trainer
from agent.warm_start import WarmStart, keep_actions, warm_start
from core.errors import CheckpointError, ConfigError, PlatformError
from core.spec import EnvSpec, game_name
from flag_parsing import parse
from metrics.charts import draw_run
from metrics.console import ConsoleSink, Goal
from metrics.rewind import rewind
from metrics.sinks import JsonLinesSink, Sink, Tee, TensorBoardSink, TextFilesSink
from option_flags import Flags
from transport.ring import UnrollRing
from transport.shared import check_shared_memory
from transport.weights import WeightBoard
from wrappers.env_ids import check_env_id, is_atari
from wrappers.registry import describe, make_env_spec

log = logging.getLogger(__name__)

MEMORY_RESERVE_BYTES = 1_000_000_000  # model, activations, interpreters


def prepare(argv: Sequence[str]) -> Session:
    """Resolve and check everything that `argv` asks for.

    Raises:
      ConfigError: with every problem found.
      CheckpointError: if the checkpoint is missing, damaged or does not fit.
    """
    loaded: dict[str, Checkpoint] = {}

    def stored_flags(url: str) -> Mapping[str, Any]:
        folder = find_model_folder(url)
        loaded[url] = load(url) if folder is None else load_model(folder)
        flags: dict[str, Any] = loaded[url].state["flags"]
        return flags

    flags = parse(argv, stored_flags, family_of)
    envs = tuple(flags.env.split(","))
    for env_id in envs:
        check_env_id(env_id)
    if flags.seed is None:
        flags = flags.model_copy(update={"seed": secrets.randbits(31)})
    checkpoint = loaded.get(flags.load_model_url or "")
    begins = flags.op_mode == "train" or (
        flags.op_mode == "train_w_load" and isinstance(checkpoint, ShippedModel)
    )
    if checkpoint is not None:
        saved = EnvSpec.from_dict(checkpoint.state["env_spec"])
        if flags.op_mode == "test":
            # The model is of its own games, whichever it is to play.
            flags = flags.model_copy(update={"env": saved.env_id})
        elif begins and not flags.action_set:
            flags = _with_actions_of(checkpoint, flags)
        elif not begins and max(len(envs), saved.task_count) > 1 and envs != saved.tasks:
            raise CheckpointError(
                f"{checkpoint.path} is of a run of {saved.env_id}, got --env={flags.env}: expected "
                "the same games in the same order to resume it. To start a new run in other games "
                f"from its weights: --op_mode=train --load_model_url={flags.load_model_url}"
            )
    blueprint = Blueprint.draw(flags)
    start = None
    if checkpoint is not None and begins:
        start = warm_start(checkpoint, blueprint)
    elif checkpoint is not None:
        checkpoint.check_spec(blueprint.env_spec)
        check_weights(checkpoint, build_model(flags, blueprint.env_spec))
    if flags.op_mode != "test":
        _check_memory(blueprint)
        _check_limits(flags, None if begins else checkpoint)
        blueprint.workers()  # whether there are environments for all games
    return Session(blueprint, checkpoint, list(argv), start, envs)


def family_of(env: str) -> str:
    """Return the name of the preset that an environment, or several, use anyway."""
    games = env.split(",")
    if not all(is_atari(game) for game in games):
        return "vector"
    return "atari" if len(games) == 1 else "several-games"


def _with_actions_of(checkpoint: Checkpoint, flags: Flags) -> Flags:
    """Return the flags of a new run that keeps the actions of a checkpoint, if they are others."""
    own = make_env_spec(env_config(flags))
    actions = keep_actions(checkpoint, own)
    if actions == own.action_meanings:
        return flags
    return flags.model_copy(update={"action_set": ",".join(actions)})


def _check_memory(blueprint: Blueprint) -> None:
    """Raise ConfigError if buffers or rings cannot fit into this machine's memory."""
    flags, choices, schema = blueprint.flags, blueprint.choices, blueprint.schema
    rings = choices.worker_count * UnrollRing.nbytes_needed(
        flags.shared_queue_size, choices.envs_per_worker, schema.nbytes
    )
    check_shared_memory(rings + WeightBoard.nbytes_needed(blueprint.acting_weights.nbytes))
    # Unrolls are shared by all buffers, so the largest buffer decides.
    capacity = max(config.capacity for config in replay_configs(flags))
    needed = capacity * schema.nbytes + MEMORY_RESERVE_BYTES
    available = psutil.virtual_memory().available
    if flags.use_replay_compression:
        return  # how far frames compress is not known before they are seen
    if needed > available:
        raise ConfigError(
            f"--replay_parameters needs {needed / 1e9:.1f} GB of memory "
            f"({capacity} unrolls of {schema.nbytes / 1e3:.0f} kB, and 1 GB besides), "
            f"{available / 1e9:.1f} GB are available: lower the largest capacity, "
            "or give --use_replay_compression=True."
        )


def _check_limits(flags: Flags, checkpoint: Checkpoint | None) -> None:
    if checkpoint is None:
        return  # a new run: it begins to count at zero
    done = int(checkpoint.state["tally"]["agent_steps"])
    if done >= flags.environment_max_steps:
        raise ConfigError(
            f"{checkpoint.path} has {done:,} agent steps already and --environment_max_steps is "
            f"{flags.environment_max_steps:,}: give a larger one to go on."
        )


@dataclass(frozen=True)
class Session:
    """A checked invocation, ready to run."""

    blueprint: Blueprint
    checkpoint: Checkpoint | None
    argv: list[str]
    start: WarmStart | None = None  # of a new run that starts from the checkpoint's weights
    envs: tuple[str, ...] = ()  # ids of the games to play in test mode

    def run(self) -> int:
        """Train or test; return the exit status."""
        if self.blueprint.flags.op_mode == "test":
            return self._test()
        return self._train()

    def _own_folder(self) -> RunFolder | None:
        """Return the run folder that the checkpoint lies in, if it lies in one."""
        if self.checkpoint is None or isinstance(self.checkpoint, ShippedModel):
            return None
        if self.checkpoint.path.parent.name != "checkpoints":
            return None
        return RunFolder(self.checkpoint.path.parent.parent)

    def _test(self) -> int:
        assert self.checkpoint is not None
        folder = self._own_folder()
        output = folder.path if folder else self.checkpoint.path.parent
        if isinstance(self.checkpoint, ShippedModel):
            # The folder of a shipped model is a source, perhaps not even writable.
            output = Path(self.blueprint.flags.results_dir) / output.resolve().name
        play = evaluate_all if self.blueprint.flags.test_all_checkpoints else evaluate
        try:
            play(self.blueprint, self.checkpoint, output, envs=self.envs)
        except KeyboardInterrupt:
            return INTERRUPTED
        return 0

    def _train(self) -> int:
        flags = self.blueprint.flags
        folder = None if flags.new_run_folder or self.start else self._own_folder()
        if folder is None or self.checkpoint is None:
            folder = RunFolder.create(flags.results_dir, flags.env)
        else:
            tally = self.checkpoint.state["tally"]
            rewind(folder.path, updates=tally["updates"], agent_steps=tally["agent_steps"])
        report_run_folder(folder.path)
        folder.write_flags(flags.to_json())
        folder.write_run_info([sys.argv[0], *self.argv])
        console = ConsoleSink(_goal(flags, folder))
        level = logging.INFO if flags.basic_verbose else logging.WARNING
        with RunLog(folder.log_file, level, _console_handler(console)):
            try:
                return self._train_in(folder, console)
            except PlatformError as error:
                log.error("the run failed: %s", error)
                log.debug("traceback", exc_info=True)
                return 1
            except Exception:
                log.exception("the run failed")
                return 1

    def _train_in(self, folder: RunFolder, console: ConsoleSink) -> int:
        flags = self.blueprint.flags
        _set_up_torch(flags)
        _log_start(self.blueprint, folder, self.checkpoint, self.start)
        sinks: list[Sink] = [
            JsonLinesSink(folder.metrics_file),
            TextFilesSink(folder.path, batch_size=flags.batch_size, unroll_length=flags.r_f_steps),
        ]
        if flags.basic_verbose:
            sinks.append(console)
        if flags.tensorboard:
            sinks.append(TensorBoardSink(folder.path))
        checkpoint = self.checkpoint
        if self.start is not None:
            checkpoint = self.start.first_checkpoint(self.blueprint)
        trainer = Trainer(self.blueprint, folder, Tee(sinks), checkpoint)
        summary = trainer.run()
        folder.write_summary(asdict(summary))
        if flags.charts:
            draw_run(folder.path)
        _log_end(summary, folder, "score" if len(self.envs) > 1 else "mean return")
        return INTERRUPTED if summary.reason == "interrupted" else 0


def _goal(flags: Flags, folder: RunFolder) -> Goal:
    """Return what the terminal says about the run as a whole."""
    games = tuple(game_name(env_id) for env_id in flags.env.split(","))
    if len(games) == 1:
        return Goal(flags.env, str(folder.path), flags.environment_max_steps)
    title = f"{len(games)} games"
    return Goal(title, str(folder.path), flags.environment_max_steps, games)


def _console_handler(console: ConsoleSink) -> logging.Handler:
    """Return a handler that prints above the live panel, or plain lines where there is none."""
    if not console.console.is_terminal:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        return handler
    return RichHandler(
        console=console.console, show_path=False, show_level=False, log_time_format="%H:%M:%S"
    )


def _set_up_torch(flags: Flags) -> None:
    # The learner's threads compute shares of a batch side by side (agent/models/parallel.py); each
    # of their operators, and those of the scorer and the feed, runs on one thread.
    torch.set_num_threads(1)
    if flags.debug:
        torch.autograd.set_detect_anomaly(True)
    if flags.reproducible:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def _log_start(
    blueprint: Blueprint,
    folder: RunFolder,
    checkpoint: Checkpoint | None,
    start: WarmStart | None,
) -> None:
    flags, choices = blueprint.flags, blueprint.choices
    log.info("run folder %s", folder.path)
    log.info("%s", describe(env_config(flags), restorable=flags.reproducible))
    for reason in choices.reasons:
        log.info("chosen: %s", reason)
    if blueprint.env_spec.task_count > 1:
        dealt = Counter(task for worker in blueprint.workers() for task in worker.tasks)
        games = enumerate(blueprint.env_spec.tasks)
        log.info(
            "environments: %s",
            ", ".join(f"{dealt[task]} of {game_name(game)}" for task, game in games),
        )
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
            checkpoint.path, f"{checkpoint.state['tally']['agent_steps']:,}",
        )  # fmt: skip


def _log_end(summary: Summary, folder: RunFolder, mean_of: str) -> None:
    reasons = {
        "steps": "all agent steps are done",
        "seconds": "the time is over",
        "return": "the mean return aimed at is reached",
        "interrupted": "interrupted",
    }
    mean = "none yet" if summary.mean_return is None else f"{summary.mean_return:.2f}"
    log.info(
        "%s: %s agent steps (%.0f a second), %d updates, %d games, %s %s",
        reasons[summary.reason], f"{summary.agent_steps:,}", summary.agent_steps_per_s,
        summary.updates, summary.episodes, mean_of, mean,
    )  # fmt: skip
    log.info("resume: python main.py --op_mode=train_w_load --load_model_url=%s", folder.path)
    log.info("test:   python main.py --op_mode=test --load_model_url=%s", folder.path)
