"""One invocation of main.py. All mistakes of the user are found before anything is made.

`prepare` resolves flags, checkpoint, environment and machine, and checks memory; it starts no
process and makes no folder. `Session.run` (agent/run/training.py) then trains or tests.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ritornello.agent.assembly import Blueprint, env_config, model_of_shapes
from ritornello.agent.learners.place import ALONE_HERE, Place
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.run.coordinator import SINGLE_LEARNER, Coordinator
from ritornello.agent.run.memory import check_memory
from ritornello.agent.run.training import Session
from ritornello.core.errors import CheckpointError, ConfigError, RunIsDone
from ritornello.core.plain_data import shown_text
from ritornello.core.spec import NUMBERS, EnvSpec
from ritornello.flags.earlier import modern
from ritornello.flags.names import named_values
from ritornello.flags.options import Flags, unset_schedule_steps
from ritornello.flags.parsing import parse
from ritornello.wrappers.config import BackendChoice
from ritornello.wrappers.env_ids import check_env_id, is_atari
from ritornello.wrappers.registry import choose_backend, forget_tried, make_env_spec, tried
from ritornello.wrappers.trusted_modules import module_of, without_modules

if TYPE_CHECKING:
    from ritornello.agent.stored.checkpoint import Checkpoint

LEARNER_TIMEOUT_S = 60.0  # the run ends if one of several learners does not answer for so long


def prepare(argv: Sequence[str], place: Place = ALONE_HERE) -> Session:
    """Resolve and check everything that the command line asks for; meet other learners.

    Raises:
      ConfigError: with every problem found.
      CheckpointError: if the checkpoint is missing, damaged or does not fit.
      LearnerLost: if another learner has failed meanwhile.
    """
    forget_tried()
    loaded: dict[str, Checkpoint] = {}

    def stored_flags(url: str, mode: str) -> Mapping[str, Any]:
        checkpoint = loaded[url] = _load(url)
        flags = dict(checkpoint.state["flags"])
        if _begins(checkpoint, mode):
            flags.pop("seed", None)  # a new run plays other games
        return flags

    flags = parse(argv, stored_flags, family_of)
    if place.world_size > 1 or flags.learner_count > 1:
        from ritornello.agent.run.checks import check_several

        check_several(flags, place)
    coordinator = SINGLE_LEARNER
    if place.world_size > 1:
        from ritornello.agent.learners.several import join

        coordinator = join(place, LEARNER_TIMEOUT_S)
    try:
        return _resolve(argv, flags, loaded, coordinator)
    except BaseException as error:
        coordinator.announce_failure(error)
        raise


def _resolve(
    argv: Sequence[str], flags: Flags, loaded: Mapping[str, Checkpoint], coordinator: Coordinator
) -> Session:
    envs = tuple(flags.env.split(","))
    for env_id in envs:
        check_env_id(env_id)
    checkpoint, spec = loaded.get(flags.load_model_url or ""), None
    if flags.seed is None:
        seed = int(coordinator.broadcast(str(_seed_for(flags, checkpoint))))
        flags = flags.model_copy(update={"seed": seed})
    begins = _begins(checkpoint, flags.op_mode)
    if checkpoint is not None:
        saved = EnvSpec.from_dict(checkpoint.state["env_spec"])
        are_its_games = without_modules(flags.env) == without_modules(saved.env_id)
        if flags.op_mode == "test":
            # The model is of its own games, whichever it is to play, and its weights tell how it
            # acts: a test needs no algorithm of a user's own.
            if not are_its_games and not set(envs) <= set(saved.tasks):
                spec = _spec_of_visitor(checkpoint, flags, envs)
            update = {} if are_its_games else {"env": saved.env_id}
            if module_of(flags.algorithm):
                from ritornello.agent.models.action_values import EPSILON

                by_values = EPSILON in checkpoint.state["learner"]["model"]
                update["algorithm"] = "q_lambda" if by_values else "impala"
            flags = flags.model_copy(update=update)
        elif begins and flags.action_set in ("", "all"):
            flags = _with_actions_of(checkpoint, flags)
        elif not begins and not are_its_games:
            raise CheckpointError(
                f"{checkpoint.path} is of a run of {shown_text(saved.env_id)}, got "
                f"--env={flags.env}: expected the same games in the same order to resume it. To "
                "start a new run in other games from its weights, give "
                f"--load={shlex.quote(str(flags.load_model_url))}, without --resume"
            )
        if flags.op_mode == "train_w_load" and not begins:
            flags = _with_schedule_of(checkpoint, flags, argv)
    blueprint = Blueprint.draw(flags, coordinator.place, _workers_that_fit(flags), spec)
    shapes, start = model_of_shapes(flags, blueprint.env_spec), None
    if checkpoint is not None and begins:
        from ritornello.agent.run.warm_start import warm_start

        start = warm_start(checkpoint, blueprint)
    elif checkpoint is not None:
        from ritornello.agent.stored.model_file import check_weights

        checkpoint.check_spec(blueprint.env_spec)
        check_weights(checkpoint, shapes)
        from ritornello.agent.run.checks import check_session

        checkpoint = check_session(checkpoint, blueprint)
    _check_before(blueprint, shapes, None if begins else checkpoint, envs)
    return Session(blueprint, checkpoint, list(argv), start, envs, coordinator)


def _begins(checkpoint: Checkpoint | None, mode: str) -> bool:
    """Whether a new run begins: --resume of a model, which holds no run, begins one as well."""
    is_model = checkpoint is not None and not checkpoint.can_resume
    return mode == "train" or (mode == "train_w_load" and is_model)


def _spec_of_visitor(checkpoint: Checkpoint, flags: Flags, envs: Sequence[str]) -> EnvSpec:
    """Return the spec of an agent's own games, which is to play others: `envs`.

    Its own are not made: --env_kwargs are for those that it visits, and its module may be gone.

    Raises:
      ConfigError: if an environment cannot be made, or has no such actions.
      CheckpointError: if one shows something else than the agent's.
    """
    saved = EnvSpec.from_dict(checkpoint.state["env_spec"])
    for env in envs:
        config = replace(env_config(flags), env_id=env, actions=saved.action_meanings)
        choose_backend(config)
        checkpoint.check_spec(make_env_spec(config))
    return saved


def _check_before(
    blueprint: Blueprint, shapes: ActorCritic, resumed: Checkpoint | None, envs: Sequence[str]
) -> None:
    """Raise ConfigError if a test cannot be shown, or a training has no room, limit or rules."""
    flags = blueprint.flags
    if flags.op_mode == "test" and flags.render:
        from ritornello.agent.testing.whole_games import check_can_be_shown

        check_can_be_shown(blueprint, envs[0])
    if flags.op_mode != "test":
        check_memory(blueprint, shapes)
        _check_limits(flags, resumed)
        blueprint.workers()  # raises ConfigError if a game would get no environment
        if flags.evaluation_preset:
            from ritornello.agent.testing.evaluation import evaluation_blueprint

            evaluation_blueprint(blueprint)  # and if there are no such rules


def _seed_for(flags: Flags, checkpoint: Checkpoint | None) -> int:
    """Return the seed of a session that names none: drawn, or that of an exact resume's run."""
    resumes = flags.reproducible and flags.op_mode == "train_w_load"
    if resumes and checkpoint is not None and checkpoint.state.get("serial"):
        seed = checkpoint.state["flags"].get("seed")
        if type(seed) is int and seed >= 0:
            return seed
    return secrets.randbits(31)


def _workers_that_fit(flags: Flags) -> int | None:
    """Return how many workers fit on the cluster, if the flags leave their number to it.

    Raises:
      ConfigError: if the cluster does not say.
    """
    if flags.op_mode == "test" or not flags.ray_address or flags.worker_count:
        return None
    from ritornello.agent.cluster.ray_cluster import check_ray, workers_that_fit

    check_ray()
    return workers_that_fit(flags.cluster_address, is_insecure=flags.is_insecure)


def _load(url: str) -> Checkpoint:
    """Load the checkpoint or model at `--load_model_url`: of a run, a file, a folder, the hub."""
    from ritornello.agent.stored.checkpoint_folder import ON_HUB
    from ritornello.agent.stored.model_file import find_model_folder, load_model

    if url.startswith(ON_HUB):
        from ritornello.agent.stored.hub import Repository, fetch

        repository = Repository.parse(url)
        return load_model(fetch(repository), repository.label)
    from ritornello.agent.stored.checkpoint import load

    folder = find_model_folder(url)
    try:
        return load(url) if folder is None else load_model(folder)
    except CheckpointError as error:
        if os.path.isfile(os.path.join(url, "checkpoint_data_save.pt")):
            raise CheckpointError(
                f"{url} is a run of the older elite-replay platform, whose weights cannot be "
                "taken over: train anew (docs/migration.md tells how to write its flags)."
            ) from error
        from ritornello.agent.torchbeast import is_saved_by_torchbeast

        if is_saved_by_torchbeast(Path(url)):
            raise CheckpointError(
                f"{url} is a checkpoint of TorchBeast. Make it a model folder first: "
                f"python -m ritornello.agent.torchbeast {url} models/<name> --env=<game>"
            ) from error
        raise


def family_of(env: str, env_kwargs: str = "", backend: BackendChoice = "auto") -> str:
    """Return the name of the preset that is the default for `env`: ids joined with commas."""
    games = env.split(",")
    if all(is_atari(game) for game in games):
        return "atari" if len(games) == 1 else "several-games"
    try:
        first = next(game for game in games if not is_atari(game))
        # Its spaces say it. `prepare` tries it out, and tells what is wrong beside what else is.
        spec = tried(first, env_kwargs, backend).spec
    except ConfigError:
        return "vector"
    if spec.shows_images:
        return "image"
    takes_numbers = any(part.kind == NUMBERS for part in spec.actions.parts)
    return "impact-mujoco" if takes_numbers else "vector"


def _with_actions_of(checkpoint: Checkpoint, flags: Flags) -> Flags:
    """Return the flags of a new run, with the actions of a checkpoint where they differ."""
    from ritornello.agent.run.warm_start import keep_actions

    own = make_env_spec(env_config(flags))
    actions = keep_actions(checkpoint, own)
    if actions == own.action_meanings:
        return flags
    return flags.model_copy(update={"action_set": ",".join(actions)})


def _with_schedule_of(checkpoint: Checkpoint, flags: Flags, argv: Sequence[str]) -> Flags:
    """Return the flags of a resumed run, whose schedules keep their length unless one is given.

    The length of a run follows from --environment_max_steps where no flag says it. A resume raises
    that, and the learning rate would jump.
    """
    given = flags.lr_scheduler_steps
    if given or "lr_scheduler_steps" in modern(named_values(argv)):
        return flags
    planned = checkpoint.state["flags"].get("environment_max_steps")
    if type(planned) is not int or planned < 1:
        return flags
    return flags.model_copy(update={"lr_scheduler_steps": unset_schedule_steps(planned)})


def _check_limits(flags: Flags, checkpoint: Checkpoint | None) -> None:
    if flags.live:
        from ritornello.agent.run.live_page import check_live_page

        check_live_page()
    if flags.sink:
        from ritornello.metrics.trackers import TRACKERS

        for name in TRACKERS.keys() & flags.sink.split(","):
            TRACKERS[name].check_installed()
    if checkpoint is None:
        return  # a new run: it begins to count at zero
    done = checkpoint.agent_steps
    if done >= flags.environment_max_steps:
        raise RunIsDone(
            f"{checkpoint.path} has {done:,} agent steps already and --environment_max_steps is "
            f"{flags.environment_max_steps:,}: give a larger one to go on. To train for that many "
            "more in a new run with these weights, its counters at zero, give "
            f"--load={shlex.quote(str(flags.load_model_url))}, without --resume"
        )
