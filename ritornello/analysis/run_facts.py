"""What flags.json and run.json say of a run: checked, and as pages show it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from ritornello.core.plain_data import shown


def check_flags(flags: Mapping[str, Any]) -> None:
    """Raise ValueError unless the flags that are read here are what a run writes."""
    env, seed = flags["env"], flags["seed"]
    shares, buffers = flags.get("env_shares") or [], flags.get("replay_parameters", [])
    if not isinstance(env, str):
        raise ValueError(f"env is {shown(env)}, expected a text")
    if type(seed) is not int:
        raise ValueError(f"seed is {shown(seed)}, expected a whole number")
    count = env.count(",") + 1
    if (
        not isinstance(shares, list)
        or len(shares) not in (0, count)
        or not all(map(_is_share, shares))
        or (shares and not any(shares))
    ):
        raise ValueError(
            f"env_shares is {shown(shares)}, expected {count} numbers from 0 on, one of them above"
        )
    if not isinstance(buffers, list) or not all(isinstance(each, dict) for each in buffers):
        raise ValueError(f"replay_parameters is {shown(buffers)}, expected a list of buffers")


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < inf


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
