"""From flags to parts: the one place that knows both the option names and the constructors.

Training, test mode and the benchmarks build their parts here, so that the same flags always mean
the same parts. Layers below take their own small config objects and never see flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from ritornello.agent.acting.acting_model import FlatWeights
from ritornello.agent.acting.config import ServerConfig, WorkerConfig
from ritornello.agent.acting.dealing import deal_tasks
from ritornello.agent.algorithms.base import FLAG_OF_FIELD, Algorithm, make_config
from ritornello.agent.learners.place import ALONE_HERE, Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.learning.optim import OptimiserConfig, learning_rate, make_optimiser
from ritornello.agent.machine import Choices, choose
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.factory import ModelConfig, make_model
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import shown
from ritornello.core.rng import child_seed
from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.flags.earlier import modern
from ritornello.flags.names import named_values
from ritornello.flags.options import Flags
from ritornello.flags.parts import ALGORITHMS, AUTO, NETWORKS
from ritornello.replay.manager import ReplayManager
from ritornello.replay.parameters import (
    BufferConfig,
    automatic_fill_in,
    buffer_names,
    make_buffers,
    parse_replay_parameters,
    renewal_updates,
)
from ritornello.replay.several_games import played_games, split_by_task
from ritornello.wrappers.config import EnvConfig
from ritornello.wrappers.env_kwargs import kwargs_of
from ritornello.wrappers.registry import choose_backend, make_env_spec
from ritornello.wrappers.user_code import describe

if TYPE_CHECKING:
    from ritornello.agent.cluster.gateway import GatewayConfig


def env_config(flags: Flags, *, testing: bool = False) -> EnvConfig:
    """Return the environment's config; in test mode a lost life never ends an episode."""
    height, width = flags.frame_scale_resolution
    return EnvConfig(
        env_id=flags.env,
        action_repeat=flags.skipped_frames,
        frames_stacked=flags.frames_stacked,
        noop_max=flags.noop_threshold,
        grayscale=flags.grayscaling_frames,
        episodic_life=flags.episodic_life and not testing,
        height=height,
        width=width,
        sticky_action_probability=flags.repeat_action_probability,
        full_action_space=flags.action_set == "all",
        actions=_actions(flags),
        fire_reset=flags.fire_reset,
        max_episode_frames=flags.max_episode_frames,
        backend=flags.env_backend,
        kwargs=flags.env_kwargs,
    )


def _actions(flags: Flags) -> tuple[str, ...]:
    """Return the names of the Atari actions of --action_set; () for those of the games, or all."""
    names = "" if flags.action_set == "all" else flags.action_set
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _unless_auto(value: bool | str, auto: bool) -> bool:
    return auto if value == "auto" else bool(value)


def model_config(flags: Flags) -> ModelConfig:
    """Return the network's config."""
    remembers = bool(flags.use_lstm) or has_own_memory(flags.model)
    return ModelConfig(
        name=flags.model,
        feature_count=flags.feature_out_layer_size,
        normalise_pixels=flags.normalise_pixels,
        layer_norm=flags.layer_norm,
        normalise_vectors=flags.normalise_vectors,
        popart_step_size=flags.popart_beta,
        use_lstm=bool(flags.use_lstm),
        lstm_size=flags.lstm_size,
        lstm_layers=int(flags.use_lstm) or 1,
        use_last_action=_unless_auto(flags.use_last_action, remembers),
        use_last_reward=_unless_auto(flags.use_last_reward, remembers),
        clamp_last_reward=flags.use_last_reward != "raw",
        use_task_id=flags.use_task_id,
        action_values=getattr(ALGORITHMS.find(flags.algorithm), "acts_by_values", False),
    )


def has_own_memory(model: str) -> bool:
    """Whether the network that --model names remembers by itself, without --use_lstm."""
    return model != AUTO and NETWORKS.find(model).has_memory


def build_model(flags: Flags, spec: EnvSpec) -> ActorCritic:
    """Return a freshly initialised model on the CPU."""
    return make_model(model_config(flags), spec, popart=flags.use_popart)


def model_of_shapes(flags: Flags, spec: EnvSpec) -> ActorCritic:
    """Return a model whose weights have shapes but no memory, so that any size can be weighed.

    A user's network that torch's device "meta" cannot build is built with memory.
    """
    try:
        with torch.device("meta"):
            return build_model(flags, spec)
    except Exception:  # what is wrong with the network itself is told by the next line
        return build_model(flags, spec)


def make_algorithm(flags: Flags, buffers: Sequence[str] = ()) -> Algorithm:
    """Return the algorithm of --algorithm with its config; `buffers` names the replay buffers.

    Raises:
      ConfigError: if there is no such algorithm, it cannot be made, or a value is not allowed.
    """
    kind = ALGORITHMS.find(flags.algorithm)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ConfigError(
            f"algorithm {flags.algorithm} is {shown(kind)}, expected a class that is an Algorithm "
            "(agent/algorithms/base.py)."
        )
    values = {field: getattr(flags, flag) for field, flag in FLAG_OF_FIELD.items()}
    values["entropy_online_only"] = flags.entropy_on == "online"
    arguments = kwargs_of(flags.algorithm_kwargs)
    if "target_period" not in arguments:
        values["target_period"] = renewal_updates(replay_configs(flags), flags.batch_size)
    try:
        return kind(make_config(kind, flags.algorithm, values, arguments), buffers)
    except PlatformError:
        raise
    except Exception as error:
        raise ConfigError(
            f"algorithm {flags.algorithm} cannot be made: {describe(error, hints=False)}. Expected "
            "a Config that is a dataclass, with a default for each field that is no flag's, and "
            "__init__(config, buffers)."
        ) from error


def foreign_flags(flags: Flags) -> set[str]:
    """Return the flags of losses that the algorithm does not have."""
    own = {field.name for field in fields(ALGORITHMS.find(flags.algorithm).Config)}
    return {flag for field, flag in FLAG_OF_FIELD.items() if field not in own}


def without_effect(flags: Flags, argv: Sequence[str]) -> list[str]:
    """Return those of `foreign_flags` that switch something on.

    Flags that are on by default count only if they are typed in `argv`.
    """
    foreign = foreign_flags(flags)
    typed, off = modern(named_values(argv)), (None, 0, "none")
    return [
        name
        for name, field in Flags.model_fields.items()
        if name in foreign
        and (name in typed or field.default in off)
        and getattr(flags, name) not in off
    ]


def optimiser_config(flags: Flags) -> OptimiserConfig:
    """Return the optimiser's and the schedule's config."""
    is_adam = flags.optimizer == "adam"
    decay = flags.optimizer_decay or ((0.9, 0.999) if is_adam else (0.99,))
    if len(decay) != (2 if is_adam else 1):
        raise ConfigError(
            f"--optimizer_decay has {len(decay)} numbers, expected 2 for adam and 1 for rmsprop."
        )
    return OptimiserConfig(
        name=flags.optimizer,
        lr=flags.lr,
        lr_end=flags.lr_end_value,
        schedule=flags.lr_schedule,
        epsilon=flags.optimizer_eps or (1e-5 if is_adam else 0.01),
        **({"beta1": decay[0], "beta2": decay[1]} if is_adam else {"alpha": decay[0]}),
    )


def _gradients_due(flags: Flags) -> Callable[[], bool] | None:
    """Return a function that says at which updates the gradient of each layer is measured."""
    if not flags.gradient_metrics:
        return None
    from ritornello.agent.learning.layer_gradients import every

    # A reproducible run writes a record at each update, and no clock may decide anything in it.
    return (lambda: True) if flags.reproducible else every(flags.log_interval_s)


def replay_configs(flags: Flags) -> tuple[BufferConfig, ...]:
    """Return the buffers' configs as they were asked for, whatever the number of games."""
    return parse_replay_parameters(flags.replay_parameters)


def buffer_configs(flags: Flags, spec: EnvSpec) -> tuple[BufferConfig, ...]:
    """Return the config of every buffer that is built: a part for each game."""
    return split_by_task(replay_configs(flags), task_shares(flags, spec))


def task_shares(flags: Flags, spec: EnvSpec) -> tuple[float, ...]:
    """Return the weight of each game, in task order: of environments and of replay."""
    return flags.env_shares or (1.0,) * spec.task_count


def _seat(flags: Flags, place: Place) -> int:
    """Return the number of a learner among all of this machine's, of all agents."""
    return flags.agent_number * place.local_world_size + place.local_rank


@dataclass(frozen=True)
class Blueprint:
    """The shapes and configs that all parts of a run share, resolved once at start."""

    flags: Flags
    choices: Choices
    env_spec: EnvSpec
    schema: UnrollSchema
    acting_weights: FlatWeights
    model_config: ModelConfig  # known without the algorithm, which an evaluating process lacks
    place: Place = ALONE_HERE  # which of several learners this is

    @classmethod
    def draw(
        cls,
        flags: Flags,
        place: Place = ALONE_HERE,
        worker_count: int | None = None,
        spec: EnvSpec | None = None,
    ) -> Blueprint:
        """Resolve flags against the environment and the machine. Starts nothing.

        `worker_count` is the number of workers on a cluster, if the flag does not give it. `spec`
        is what the environment shows, where that is known and none is to be made.

        Raises:
          ConfigError: if the flags cannot be honoured here.
        """
        assert flags.seed is not None, "ritornello.agent.session.prepare draws a seed first"
        if flags.op_mode != "test":  # made again later; here only to refuse
            make_algorithm(flags), optimiser_config(flags)
            if flags.multiprocessing_backend == "ray":
                from ritornello.agent.cluster.ray_cluster import check_ray

                check_ray()
        if spec is None:
            config = env_config(flags)
            choose_backend(config, restorable=flags.reproducible and flags.op_mode != "test")
            spec = make_env_spec(config)
        choices = choose(
            flags,
            is_image=spec.is_image,
            task_count=spec.task_count,
            learners_here=place.local_world_size * flags.agent_count,
            local_rank=_seat(flags, place),
            worker_count=worker_count,
        )
        model = model_of_shapes(flags, spec)
        if flags.op_mode != "test":
            make_algorithm(flags).check(model)
        buffers = make_buffers(buffer_configs(flags, spec), fill_in_factor=0)
        features = model.feature_count if any(b.needs_stored_features for b in buffers) else 0
        return cls(
            flags,
            choices,
            spec,
            UnrollSchema(spec, flags.r_f_steps, features, model.state_count),
            FlatWeights(model, choices.acting_format),
            model_config(flags),
            place,
        )

    def model(self, seed: int = 0) -> ActorCritic:
        """Return a freshly initialised model on the CPU."""
        return make_model(self.model_config, self.env_spec, self.flags.use_popart, seed)

    def acting_model(self) -> tuple[ActorCritic, np.ndarray]:
        """Return an acting copy of the model and the byte block its weights are views of."""
        model = self.model().eval()
        block = np.zeros(self.acting_weights.nbytes, np.uint8)
        self.acting_weights.bind(model, block)
        return model, block

    @cached_property  # asked for at each update, and it may have to read the replay parameters
    def schedule_steps(self) -> int:
        """Agent steps of all learners over which rates anneal."""
        # Counted in updates, each of which takes the new steps of every learner.
        several = self.place.world_size if self.flags.schedule_in_updates else 1
        return self.flags.schedule_steps * several

    @property
    def fill_in_factor(self) -> float:
        """Share of its capacity that each replay buffer must hold before learning begins."""
        flags, choices = self.flags, self.choices
        if flags.training_fill_in_factor != "auto":
            return flags.training_fill_in_factor
        steps = flags.environment_max_steps // self.place.world_size
        return automatic_fill_in(
            replay_configs(flags),
            environments=choices.worker_count * choices.envs_per_worker,
            unrolls=steps // flags.r_f_steps,
        )

    @property
    def own_seed(self) -> int:
        """The root seed of all that only this learner plays and draws."""
        seed, rank = self.flags.seed or 0, self.place.rank
        return seed if rank == 0 else child_seed(seed, "learner", rank)

    def learner(self, group: ProcessGroup = SINGLE_PROCESS) -> Learner:
        """Return a learner with freshly initialised weights, equal in all learners of a run."""
        flags, choices = self.flags, self.choices
        seed = child_seed(flags.seed or 0, "model") % 2**32
        model = self.model(seed).to(choices.device)
        config = optimiser_config(flags)
        return Learner(
            model,
            make_algorithm(flags, buffer_names(buffer_configs(flags, self.env_spec))),
            make_optimiser(config, model),
            lambda progress: learning_rate(config, progress),
            max_grad_norm=flags.gradient_clip_by_norm_threshold,
            precision="bf16" if choices.torso_dtype == torch.bfloat16 else "fp32",
            channels_last=choices.learner_channels_last,
            compile=flags.compile is True,
            cuda_graph=flags.compile is not False,
            threads=choices.learner_threads if choices.device.type == "cpu" else 1,
            gradients_due=_gradients_due(flags),
            games=played_games(task_shares(flags, self.env_spec)),
            group=group,
        )

    def workers(self, life: int = 0) -> list[WorkerConfig]:
        """Return the config of every worker; workers of different `life` play different games."""
        shares, choices = task_shares(self.flags, self.env_spec), self.choices
        dealt = deal_tasks(shares, choices.worker_count, choices.envs_per_worker)
        first_core = _seat(self.flags, self.place) * self.choices.worker_count
        return [
            WorkerConfig(
                worker_id=worker,
                life=life,
                env_config=env_config(self.flags),
                env_spec=self.env_spec,
                num_envs=self.choices.envs_per_worker,
                tasks=tasks,
                unroll_length=self.schema.unroll_length,
                feature_count=self.schema.feature_count,
                state_count=self.schema.state_count,
                model_config=self.model_config,
                popart=self.flags.use_popart,
                acting_format=self.choices.acting_format,
                seed=self.own_seed,
                core=first_core + worker if self.choices.pin_workers else None,
                restorable=self.flags.reproducible,
                check_unrolls=self.flags.debug,
            )
            for worker, tasks in enumerate(dealt)
        ]

    def environments_of_games(self) -> list[int]:
        """Return how many of the learner's environments play each game, in task order."""
        dealt = [task for worker in self.workers() for task in worker.tasks]
        return [dealt.count(task) for task in range(self.env_spec.task_count)]

    def gateway(self, life: int = 0) -> GatewayConfig:
        """Return the config of the gateway to workers on a Ray cluster; `life` as for `workers`."""
        from ritornello.agent.cluster.gateway import GatewayConfig
        from ritornello.agent.cluster.ray_cluster import RayCluster, RaySettings, python_paths

        flags, nbytes = self.flags, self.acting_weights.nbytes
        settings = RaySettings(
            flags.cluster_address,
            self.choices.worker_count,
            nbytes,
            flags.is_insecure,
            python_paths(),
        )
        return GatewayConfig(
            workers=tuple(self.workers(life)),
            connect=partial(RayCluster, settings),
            max_restarts=flags.max_worker_restarts,
            worker_timeout_s=flags.worker_timeout,
        )

    def server(self, life: int = 0) -> ServerConfig | None:
        """Return the config of the inference server, or None if workers act themselves.

        Servers of different `life` draw other actions.
        """
        if self.choices.inference == "worker":
            return None
        return ServerConfig(
            life=life,
            env_spec=self.env_spec,
            feature_count=self.schema.feature_count,
            model_config=self.model_config,
            popart=self.flags.use_popart,
            acting_format=self.choices.acting_format,
            device=self.choices.device,
            torso_dtype=self.choices.torso_dtype,
            seed=self.own_seed,
        )

    def replay(self) -> ReplayManager:
        """Return empty replay buffers."""
        configs = buffer_configs(self.flags, self.env_spec)
        return ReplayManager(
            make_buffers(configs, self.fill_in_factor),
            [config.sample_ratio for config in configs],
            self.flags.batch_size,
            np.random.default_rng(child_seed(self.own_seed, "replay")),
            schema=self.schema,
            codec="lz4" if self.flags.use_replay_compression else "none",
            discarding_strategy=self.flags.discarding_strategy,
            max_draws_per_unroll=self.flags.max_draws_per_unroll,
        )
