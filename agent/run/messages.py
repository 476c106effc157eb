"""What a run says of itself when it begins and ends, and the commands that go on from it."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import torch

from ritornello.agent.assembly import (
    Blueprint,
    env_config,
    foreign_flags,
    replay_configs,
    without_effect,
)
from ritornello.agent.models.factory import describe_networks
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.command_line import counted
from ritornello.core.project import as_typed, main_command
from ritornello.core.spec import game_name
from ritornello.flags.earlier import GONE, modern
from ritornello.flags.options import Flags
from ritornello.flags.parsing import idle_rules
from ritornello.flags.parts import ALGORITHMS, NETWORKS, REPLAY
from ritornello.metrics.text import same_decimals
from ritornello.replay.parameters import types_of_modules
from ritornello.wrappers.env_ids import is_atari
from ritornello.wrappers.env_kwargs import holds_text
from ritornello.wrappers.start_line import describe
from ritornello.wrappers.trusted_modules import module_of

if TYPE_CHECKING:
    from ritornello.agent.run.trainer import Summary
    from ritornello.agent.run.training import Session
    from ritornello.agent.stored.checkpoint import Checkpoint

# Why a session ended.
REASONS = {
    "steps": "all agent steps are done",
    "seconds": "the time is over",
    "return": "the mean return aimed at is reached",
    "interrupted": "interrupted",
}

log = logging.getLogger(__name__)


def log_start(session: Session, folder: RunFolder) -> None:
    """Say what is going to be trained."""
    blueprint, checkpoint, start = session.blueprint, session.resumed, session.start
    flags, spec = blueprint.flags, blueprint.env_spec
    log.info("run folder %s", as_typed(folder.path))
    is_atari_run = any(map(is_atari, flags.env.split(",")))
    if not is_atari_run and (rules := idle_rules(flags, spec.shows_images)):
        named = ", ".join(f"--{name}" for name in rules)
        log.info("note: without effect: %s (the rules of Atari do not apply here)", named)
    if idle := without_effect(flags, session.argv):
        named = ", ".join(f"--{name}" for name in idle)
        log.warning("no effect with --algorithm=%s: %s", flags.algorithm, named)
    log.info("%s", describe(env_config(flags), restorable=flags.reproducible))
    networks = describe_networks(blueprint.model_config, spec)
    actions = spec.actions.describe()
    log.info("model %s; algorithm %s; an action is %s", networks, flags.algorithm, actions)
    _log_machine(blueprint)
    if spec.task_count > 1:
        _log_games(session)
    configs = replay_configs(flags)
    if flags.entropy_on == "online" and not any(config.sets_the_pace for config in configs):
        log.warning("no entropy bonus: --entropy_on=online, and no buffer gives new data")
    buffers = [f"{c.type} {float(c.sample_ratio):g} of {c.capacity}" for c in configs]
    log.info(
        "replay: %s; an unroll of %d steps takes %.0f kB; seed %d", ", ".join(buffers),
        blueprint.schema.unroll_length, blueprint.schema.nbytes / 1e3, flags.seed,
    )  # fmt: skip
    if start is not None:
        log.info("%s", start)
    elif checkpoint is not None:
        _log_resume(checkpoint)
    log.info(
        "starting workers; learning begins when replay is %.0f %% full. Ctrl-C saves and exits",
        100 * blueprint.fill_in_factor,
    )


def _log_machine(blueprint: Blueprint) -> None:
    choices, count = blueprint.choices, blueprint.place.world_size
    log.info(
        "%s of %s, actions chosen by %s, torso in %s, learner on %s with %s",
        counted(choices.worker_count, "worker"), counted(choices.envs_per_worker, "environment"),
        "one server" if choices.inference == "server" else "each worker",
        "bf16" if choices.torso_dtype == torch.bfloat16 else "fp32",
        choices.device, counted(choices.learner_threads, "thread"),
    )  # fmt: skip
    if count > 1:
        size = blueprint.flags.batch_size
        log.info(
            "%d learners; each has such workers, and batches of %d unrolls of its own: %d together",
            count, size, count * size,
        )  # fmt: skip
    for reason in choices.reasons:
        log.debug("chosen: %s", reason)


def _log_resume(checkpoint: Checkpoint) -> None:
    steps = f"{checkpoint.agent_steps:,}"
    log.info("resuming %s at %s agent steps", as_typed(checkpoint.path), steps)
    saved = checkpoint.state["flags"]
    gone = {*(modern(saved).keys() - Flags.model_fields.keys()), *(GONE & saved.keys())}
    if gone:
        log.info("flags of an earlier version are passed over: %s", ", ".join(sorted(gone)))


def _log_games(session: Session) -> None:
    blueprint, checkpoint, start = session.blueprint, session.resumed, session.start
    flags = blueprint.flags
    games = dict(zip(blueprint.env_spec.tasks, blueprint.environments_of_games(), strict=True))
    shown = ", ".join(f"{count} of {game_name(game)}" for game, count in games.items())
    log.info("environments: %s", shown)
    idle = [game for game, count in games.items() if not count]
    new = () if checkpoint is not None else games if start is None else start.fresh
    for game in idle:
        if game in new:
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
    has_cloning = "value_cloning_loss_weight" not in foreign_flags(flags)
    if not one_for_all or (has_cloning and flags.value_cloning_loss_weight):
        return
    advice = "--load_replay=False, or a share in --env_shares"
    if has_cloning:
        advice = "--value_cloning_loss_weight=0.005 --policy_cloning_loss_weight=0.01"
    for game in idle:
        # Measured: docs/results.md, "A replay of all that was played".
        log.warning(
            "%s is not played any more and stays in the replay: nothing holds its values, "
            "which may grow without end. Give %s",
            game_name(game),
            advice,
        )


def log_end(summary: Summary, folder: RunFolder, flags: Flags) -> None:
    """Say how a session ended, and how to go on from it."""
    mean_of = "score" if len(flags.env.split(",")) > 1 else "mean return"
    mean = "none yet" if summary.mean_return is None else same_decimals([summary.mean_return], 2)[0]
    log.info(
        "%s: %s agent steps (%.0f a second), %s, %s, %s %s",
        REASONS[summary.reason], f"{summary.agent_steps:,}", summary.agent_steps_per_s,
        counted(summary.updates, "update"), counted(summary.episodes, "game"), mean_of, mean,
    )  # fmt: skip
    if not summary.updates and summary.reason != "interrupted":
        log.error(
            "no update was made: either all were skipped, as warnings above say, or %s agent steps "
            "are too few for the first batch (--environment_max_steps, --training_seconds, "
            "--training_fill_in_factor, --batch_size, --r_f_steps)",
            f"{summary.agent_steps:,}",
        )
    if not folder.has_checkpoint():
        log.info("nothing was saved, because no update was made")
        return
    to_resume = f" --learner_count={flags.learner_count}" if flags.learner_count > 1 else ""
    to_resume += f" --sink={shlex.quote(flags.sink)}" if flags.sink else ""
    if summary.reason == "steps":  # without more steps to do, it would be refused
        more = max(2 * flags.environment_max_steps, summary.agent_steps + 1)
        to_resume += f" \\\n  --environment_max_steps={more}"
    if any(map(_is_of_a_script, flags.env.split(","))):
        log.info(
            "resume or test it in the script that registers %s: "
            'train(resume="%s"), evaluate("%s")',
            flags.env, folder.path, folder.path,
        )  # fmt: skip
        return
    values = flags.to_json()
    log.info("resume: %s%s", next_command("train_w_load", folder.path, values), to_resume)
    log.info("test: %s", next_command("test", folder.path, values))


def next_command(mode: str, folder: Path, values: Mapping[str, Any]) -> str:
    """Return the command that resumes or tests a run; `mode` is a value of --op_mode.

    `folder` is of a run or of a model, and `values` are its flags as JSON types.

    The command has several lines, because a terminal of 80 columns would break a long one where a
    shell does not continue it. The run's flags are read from a file, which may name no module and
    give no texts to environments (wrappers/trusted_modules.py): those are part of the command.
    """
    named = {"env": values["env"], NETWORKS.flag: values["model"]}
    if mode != "test":  # which learns nothing
        named[ALGORITHMS.flag] = values["algorithm"]
        named[REPLAY] = ",".join(types_of_modules(values[REPLAY]))
    again = [name for name, parts in named.items() if any(map(module_of, parts.split(",")))]
    modules = map(module_of, ",".join(named.values()).split(","))
    again += ["env_kwargs"] * holds_text(values["env_kwargs"])
    values = {**values, REPLAY: json.dumps(values[REPLAY])}
    items = [
        f"--{'test' if mode == 'test' else 'resume'}={as_typed(folder)}",
        *(f"--{name}={values[name]}" for name in again),
    ]
    return " \\\n  ".join([main_command(*modules), *map(shlex.quote, items)])


def _is_of_a_script(env_id: str) -> bool:
    """Whether the class of an environment is in the script that calls the library."""
    spec = gymnasium.registry.get(env_id)
    return spec is not None and getattr(spec.entry_point, "__module__", "") == "__main__"
