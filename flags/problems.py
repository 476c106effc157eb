"""What is wrong with flags, as lines for the user: pydantic's report told in the flags' own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from core.plain_data import cut, shown, shown_text

MAX_PROBLEMS = 20  # lines of one error: more than that nobody reads
MAX_PROBLEM_LENGTH = 1000  # a line may list a whole set of games


def explained(error: ValidationError, from_file: Mapping[str, str]) -> str:
    """Turn pydantic's report into one line per problem: name, what was got, what was expected.

    Args:
      error: the report.
      from_file: flag -> the file that says its value, with which the line then begins.
    """
    lines = []
    for problem in error.errors():
        line = of_one_flag(problem)
        if line:
            where = from_file.get(str(problem["loc"][0]))
            lines.append(f"{where}: {line}" if where else line)
        else:
            lines += problem["msg"].removeprefix("Value error, ").split("\n")
    return listed(list(dict.fromkeys(lines)))


def of_one_flag(problem: Any) -> str:
    """Return the line about one flag, "" if the problem is of several together."""
    if not problem["loc"]:
        return ""
    message = problem["msg"].removeprefix("Value error, ")
    name, got = str(problem["loc"][0]), problem["input"]
    typed = shown_text(got) if isinstance(got, str) else shown(got)
    value = "" if name == "replay_parameters" else f"={typed}"
    return f"--{name}{value}: {message[0].lower() + message[1:]}"


def listed(problems: Sequence[str]) -> str:
    """Return one problem a line, at most a screen of them, each of bounded length."""
    lines = [cut(problem, MAX_PROBLEM_LENGTH) for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > len(lines):
        lines.append(f"... and {len(problems) - len(lines)} more")
    return "\n".join(lines)
