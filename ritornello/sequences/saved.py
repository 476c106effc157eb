"""sequence.json: what it may hold, checked in one place.

The file lies in a folder that somebody may have been given. Names of runs become folders and the
rest becomes command lines, so nothing of it is used before it has passed here: names are plain,
texts and numbers are bounded, and a run starts only from an earlier one. What a file may not *ask*
for, even in good form, is in foreign.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import cut, parse_json, read_text, shown, shown_text
from ritornello.flags.values import MAX_AGENTS
from ritornello.sequences.plan import MAX_GROUP_LENGTH, MAX_RUNS, source_of

FORMAT_VERSION = 1
MAX_PROBLEMS_SHOWN = 5

# As `SequenceFolder.create` makes them; no path, and never the name of one of the other files.
RUN_NAME = r"^[0-9]{3,5}_[A-Za-z0-9._+-]{1,100}_seed[0-9]{1,19}$"
Name = Annotated[str, Field(min_length=1, max_length=MAX_GROUP_LENGTH)]


class SavedRun(BaseModel):
    """One run in sequence.json; the fields of sequences.folder.RunState."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=RUN_NAME)
    group: Name
    seed: int = Field(ge=0)
    flags: dict[str, Any]
    status: Literal["waiting", "running", "done", "failed", "skipped", "stopped"] = "waiting"
    exit_code: int | None = None
    seconds: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)


class SavedSequence(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format_version: Literal[1]
    name: Name
    at_once: int = Field(default=1, ge=1, le=MAX_AGENTS)
    arguments: list[str] = Field(max_length=1000)
    runs: list[SavedRun] = Field(min_length=1, max_length=MAX_RUNS)

    @model_validator(mode="after")
    def _check_together(self) -> SavedSequence:
        names: set[str] = set()
        earlier: dict[tuple[str, int], SavedRun] = {}  # the first one of each group and seed
        for run in self.runs:
            if run.name in names:
                raise ValueError(f"two runs are named {run.name}")
            source = source_of(run.flags)
            if source is not None and (source, run.seed) not in earlier:
                raise ValueError(
                    f"{run.name} starts from {shown(source)}, but no earlier run of seed "
                    f"{run.seed} is of that group"
                )
            names.add(run.name)
            earlier.setdefault((run.group, run.seed), run)
        return self


def read_saved(state_file: Path) -> SavedSequence:
    """Read and check a sequence.json.

    Raises:
      ConfigError: if it cannot be read, or is not what `SequenceFolder.save` writes.
    """
    try:
        data = parse_json(read_text(state_file, "the state of a sequence"), str(state_file))
    except ConfigError as error:
        raise ConfigError(
            f"{shown_text(str(state_file.parent))} is not the folder of a sequence: {error} Give a "
            "folder that multi_train.py made, e.g. results/compare_replay_<time>."
        ) from error
    version = data.get("format_version") if isinstance(data, dict) else None
    if version is not None and version != FORMAT_VERSION:
        raise ConfigError(
            f"{shown_text(str(state_file))} has format version {shown(version)}, expected "
            f"{FORMAT_VERSION}."
        )
    try:
        return SavedSequence.model_validate(data)
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors()[:MAX_PROBLEMS_SHOWN]]
        raise ConfigError(
            f"{shown_text(str(state_file))} is not what multi_train.py writes:\n"
            + "\n".join(problems)
        ) from error


def _problem(error: Any) -> str:
    """Return "  runs[3].name is 'x': String should match ..." for one of pydantic's errors."""
    place = ""
    for part in error["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    message = cut(str(error["msg"]).removeprefix("Value error, "), 400)
    if not place:
        return f"  {message}"
    return f"  {shown_text(place)} is {shown(error['input'])}: {message}"
