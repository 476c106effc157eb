"""Every option of the platform: one frozen, typed, documented pydantic model.

The flags themselves stand in flags/, one class for each group. How a command line becomes a `Flags`
is in flags/parsing.py, what `--help` says of it in flags/help.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import ConfigDict, model_validator

from ritornello.flags.algorithm import AlgorithmFlags, OptimiserFlags
from ritornello.flags.earlier import modern
from ritornello.flags.environment import EnvironmentFlags
from ritornello.flags.group import Effect, FlagGroup, leaves_of, marks_of
from ritornello.flags.machine import MachineFlags, WorkersFlags
from ritornello.flags.model import ModelFlags
from ritornello.flags.output import EvaluationFlags, OutputFlags
from ritornello.flags.parts import AUTO, NETWORKS
from ritornello.flags.replay import ReplayFlags
from ritornello.flags.run import RunFlags, TestModeFlags
from ritornello.replay.parameters import new_unrolls_per_update, parse_replay_parameters
from ritornello.replay.registry import sampler_of

# In the order in which they are shown; a user names one in `--help=<group>`.
GROUPS: dict[str, type[FlagGroup]] = {
    "run": RunFlags,
    "environment": EnvironmentFlags,
    "workers": WorkersFlags,
    "replay": ReplayFlags,
    "model": ModelFlags,
    "algorithm": AlgorithmFlags,
    "optimiser": OptimiserFlags,
    "machine": MachineFlags,
    "output": OutputFlags,
    "evaluation": EvaluationFlags,
    "test": TestModeFlags,
}

# Flag -> what it changes (flags/group.py); None if its mark is missing.
EFFECTS: dict[str, Effect | None] = {
    name: marks_of(field).effect or group.effect
    for group in GROUPS.values()
    for name, field in group.model_fields.items()
}

# For pydantic True is a 1. As a text it is refused, as where it is typed.
NUMBERS = {
    name
    for group in GROUPS.values()
    for name, field in group.model_fields.items()
    if (kinds := {*leaves_of(field.annotation)}) & {int, float} and bool not in kinds
}

MIN_SCHEDULE_STEPS = 2_500_000  # see --lr_scheduler_steps
MAX_CACHED_BATCHES = 1_000
INSECURE = "insecure:"  # before --ray_address: a cluster that asks for no token


def unset_schedule_steps(environment_max_steps: int) -> int:
    """Return the agent steps over which rates anneal in a run whose flags do not say it."""
    return max(environment_max_steps, MIN_SCHEDULE_STEPS)


class Flags(  # the last group first: pydantic lists the fields of the last base first
    TestModeFlags,
    EvaluationFlags,
    OutputFlags,
    MachineFlags,
    OptimiserFlags,
    AlgorithmFlags,
    ModelFlags,
    ReplayFlags,
    WorkersFlags,
    EnvironmentFlags,
    RunFlags,
):
    """All options, resolved. Frozen: a run never changes its own flags."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        protected_namespaces=(),
        ser_json_inf_nan="constants",  # the default writes null, which is no bound when read again
    )

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, values: Any) -> Any:
        """Bring flags of earlier versions into today's form; make a number of no True or False."""
        if not isinstance(values, dict):
            return values
        return {
            name: str(value) if isinstance(value, bool) and name in NUMBERS else value
            for name, value in modern(values).items()
        }

    @model_validator(mode="after")
    def _check_together(self) -> Flags:
        problems = [*self._wrong_modes(), *self._wrong_backend()]
        sets_pace = any(
            sampler_of(buffer["type"]).sets_the_pace() for buffer in self.replay_parameters
        )
        if not sets_pace and self.max_draws_per_unroll is None:
            problems.append(
                "no buffer in --replay_parameters is a queue (or circular), so nothing sets the "
                "pace of learning: add a queue or give --max_draws_per_unroll, e.g. 4"
            )
        size = self.cache_output_buffer_size
        if isinstance(size, int) and not 1 <= size <= MAX_CACHED_BATCHES:
            problems.append(
                f"--cache_output_buffer_size={size} must be auto or from 1 to {MAX_CACHED_BATCHES}"
            )
        is_own = self.model != AUTO and self.model not in NETWORKS.shipped  # checked later
        has_memory = self.use_lstm or self.model == "attention"
        if self.burn_in_steps and not has_memory and not is_own:
            problems.append(
                f"--burn_in_steps={self.burn_in_steps} needs a model that remembers: "
                "--use_lstm=True or --model=attention"
            )
        if self.model == "attention" and self.use_lstm > 1:
            problems.append(
                f"--use_lstm={self.use_lstm} must be True with --model=attention; "
                "raise --lstm_size instead"
            )
        if self.burn_in_steps >= self.r_f_steps:
            problems.append(
                f"--burn_in_steps={self.burn_in_steps} must be below --r_f_steps={self.r_f_steps}: "
                "nothing would be learned from replay"
            )
        sticky = self.repeat_action_probability
        if sticky is not None and not 0 <= sticky < 1:
            problems.append(f"--repeat_action_probability={sticky} must be from 0 to below 1")
        games = self.env.split(",")
        if self.env_shares and len(self.env_shares) != len(games):
            problems.append(
                f"--env_shares has {len(self.env_shares)} numbers and --env {len(games)} games: "
                "give one for each game"
            )
        if self.lr_end_value > self.lr and self.lr_schedule != "constant":
            problems.append(f"--lr_end_value={self.lr_end_value} is above --lr={self.lr}")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _wrong_modes(self) -> list[str]:
        problems = []
        if self.op_mode != "train" and not self.load_model_url:
            problems.append(
                f"--op_mode={self.op_mode} needs --load_model_url=results/<run> (or a checkpoint "
                "file, models/<name>, or hf:<owner>/<name>)"
            )
        if self.run_name and self.op_mode != "train" and not self.new_run_folder:
            problems.append(
                f"--run_name={self.run_name} names the folder of a new run, and a resume or a test "
                "makes none: leave it out (or resume into a new folder with --new_run_folder=True)"
            )
        return problems

    def _wrong_backend(self) -> list[str]:
        problems = []
        uses_ray = self.multiprocessing_backend == "ray"
        if self.ray_address and not uses_ray:
            problems.append("--ray_address is for --multiprocessing_backend=ray only")
        if self.ray_address and not re.fullmatch(r"[\w.\[\]:-]+:\d{1,5}", self.cluster_address):
            problems.append(
                f"--ray_address={self.ray_address} must be host:port of a cluster's head, e.g. "
                "10.0.0.1:6379"
            )
        if uses_ray and self.reproducible:
            problems.append(
                "--reproducible=True plays in the learner's process, so it does not go together "
                "with --multiprocessing_backend=ray"
            )
        if uses_ray and self.inference == "server":
            problems.append(
                "--inference=server has one server beside the learner, which workers on other "
                "machines cannot ask: use --inference=worker with --multiprocessing_backend=ray"
            )
        return problems

    @property
    def schedule_steps(self) -> int:
        """Agent steps over which rates anneal (see --lr_scheduler_steps)."""
        if isinstance(self.lr_scheduler_steps, str):
            updates = int(self.lr_scheduler_steps.removesuffix("u"))
            return max(1, round(updates * self.new_steps_per_update))
        return self.lr_scheduler_steps or unset_schedule_steps(self.environment_max_steps)

    @property
    def schedule_in_updates(self) -> bool:
        """Whether --lr_scheduler_steps is a number of updates."""
        return isinstance(self.lr_scheduler_steps, str)

    @property
    def agent_number(self) -> int:
        """Number of this training among those at the same time on this machine."""
        return int(self.machine_share.partition("/")[0])

    @property
    def agent_count(self) -> int:
        """Number of trainings on this machine at the same time."""
        return int(self.machine_share.partition("/")[2])

    @property
    def cluster_address(self) -> str:
        """The host:port of --ray_address; "" for a private Ray."""
        return self.ray_address.removeprefix(INSECURE)

    @property
    def is_insecure(self) -> bool:
        """Whether the Ray cluster may be one that asks for no token."""
        return self.ray_address.startswith(INSECURE)

    @property
    def new_steps_per_update(self) -> float:
        """Agent steps that are played for each update once replay is filled.

        The buffer that needs most new unrolls decides; --max_draws_per_unroll may require more.
        """
        configs = parse_replay_parameters(self.replay_parameters)
        unrolls = new_unrolls_per_update(configs, self.batch_size)
        if self.max_draws_per_unroll is not None:
            unrolls = max(unrolls, self.batch_size / self.max_draws_per_unroll)
        return float(unrolls * self.r_f_steps)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, as stored in flags.json and in checkpoints."""
        data: dict[str, Any] = json.loads(self.model_dump_json())
        return data
