"""What flags.json and run.json say of a run: checked, and as pages show it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RunFlags(BaseModel):
    """The flags that are read here, as a run writes them."""

    model_config = ConfigDict(strict=True)
    env: str
    seed: int
    env_shares: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None
    replay_parameters: list[dict[str, Any]] = []
    avg_buff_size: int | None = None

    @model_validator(mode="after")
    def _check_shares(self) -> RunFlags:
        count = self.env.count(",") + 1
        if self.env_shares and (len(self.env_shares) != count or not any(self.env_shares)):
            raise ValueError(f"expected {count} env_shares, one of them above 0")
        return self


def machine_text(machine: Mapping[str, Any]) -> str:
    """Return a machine of run.json as it is shown."""
    parts = [machine.get("cpu", "unknown processor"), f"{machine.get('cores_usable')} cores"]
    return ", ".join(parts + machine.get("gpus", []))


def commit_text(source: Mapping[str, Any]) -> str:
    """Return a commit of run.json as it is shown."""
    commit = str(source.get("commit") or "unknown")[:12]
    return commit + (" with changes" if source.get("dirty") else "")


def own_command(sessions: Sequence[Mapping[str, Any]]) -> str:
    """Return the commands that made a run, without where it wrote; the seed is left open."""
    first, *resumed = (session.get("command_line", [])[1:] for session in sessions)
    kept = [x for x in first if not x.startswith(("--results_dir", "--run_name", "--seed"))]
    commands = [shlex.join(["python", "main.py", *kept]) + " --seed=<seed>"]
    for given in resumed:
        kept = [x for x in given if not x.startswith(("--load_model_url", "--seed"))]
        commands.append(shlex.join(["python", "main.py", *kept]) + " --load_model_url=<run>")
    return " && ".join(dict.fromkeys(commands))
