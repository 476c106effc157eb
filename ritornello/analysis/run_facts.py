"""What flags.json and run.json say of a run: checked, as pages show it, and as its label."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ritornello.core.project import PLAIN_MAIN
from ritornello.flags.names import flag_of
from ritornello.flags.options import EFFECTS, Flags

# Flags in which runs of one configuration may differ: what changes no learning, and the seed and
# the game, over which scores are taken together.
NOT_CONFIGURATION = {"seed", "env"} | {n for n, effect in EFFECTS.items() if effect != "learning"}


class RunFlags(BaseModel):
    """The flags that this file reads, as a run writes them."""

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


def resumes(sessions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the first session in a folder resumed a run, which was another one then."""
    line = sessions[0].get("command_line", []) if sessions else []
    return any(f"{x}=".startswith("--resume=") or x.endswith("train_w_load") for x in line)


def own_commands(sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the commands that made a run, without its folder; the seed is left open."""
    first, *resumed = (session.get("command_line", [])[1:] for session in sessions)
    kept = _without(first, "results_dir", "run_name", "resume_or_start", "seed")
    commands = [" ".join([PLAIN_MAIN, *map(shlex.quote, kept), "--seed=<seed>"])]
    for given in resumed:
        kept = _without(given, "op_mode", "load_model_url", "resume", "resume_or_start", "seed")
        commands.append(" ".join([PLAIN_MAIN, *map(shlex.quote, kept), "--resume=<run>"]))
    return list(dict.fromkeys(commands))


def _without(given: Sequence[str], *flags: str) -> list[str]:
    """Return a command line without these flags, written as `--name=value` or `--name value`."""
    words, kept = list(given), []
    while words:
        name, equals, value = words.pop(0).partition("=")
        if flag_of(name.removeprefix("--")) not in flags:
            kept.append(name + equals + value)
        elif not equals and words:
            words.pop(0)
    return kept


@cache
def default_flags() -> dict[str, Any]:
    """Return today's default of each flag, in the form of flags.json.

    It replaces a flag that is newer than the run folder, as in a resume. Otherwise such a run would
    differ from runs that have the default.
    """
    return Flags().to_json()


def label_among(label: str, games: int) -> str:
    """Return the label of the curve of one game in a run of `games` games.

    It must not be taken for a run of this game alone.
    """
    return f"{label}, {games} games" if games > 1 else label


def label_by(names: Sequence[str], flags: Mapping[str, Any]) -> str:
    """Return the label that gives these flags alone."""
    return " ".join(f"{name}={_short(flags[name])}" for name in names)


def distinguishing_labels(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Label each run, (environment, flags), by its replay and the flags that tell it from others.

    Flags include those with the defaults. They are compared within an environment, because each
    kind of environment has presets of its own.
    """
    varying = set()
    first: dict[tuple[str, str], str] = {}
    for env, flags in runs:
        for name in flags.keys() - NOT_CONFIGURATION:
            value = json.dumps(flags[name], sort_keys=True)
            if first.setdefault((env, name), value) != value:
                varying.add(name)
    varying.discard("replay_parameters")  # always said, in short form
    buffers = [buffer for _, flags in runs for buffer in flags["replay_parameters"]]
    labels = []
    for _, flags in runs:
        parts = [" + ".join(_buffer_text(each, buffers) for each in flags["replay_parameters"])]
        # A flag that is gone by now has no default.
        parts += [f"{name}={_short(flags.get(name))}" for name in sorted(varying)]
        games = flags["env"].count(",") + 1
        parts += [f"{games} games"] if games > 1 else []
        labels.append(" ".join(parts).strip() or "run")
    return labels


def _buffer_text(buffer: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Name a buffer by its kind, and by the keys in which those of its kind differ."""
    kind = [other for other in others if other.get("type") == buffer.get("type")]
    keys = [key for key in buffer if any(other.get(key) != buffer[key] for other in kind)]
    return " ".join([str(buffer.get("type")), *(f"{key}={_short(buffer[key])}" for key in keys)])


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
