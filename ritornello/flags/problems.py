"""What is wrong with flags, as lines for the user: pydantic's report told in the flags' own words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ritornello.core.plain_data import cut, shown, shown_text

MAX_PROBLEMS = 20  # lines of one error: more than that nobody reads
AUTO = "auto"  # first of what is listed
# Of pydantic's types of error: what would have been taken instead.
KINDS = {
    "int_parsing": ("a whole number",),
    "int_type": ("a whole number",),
    "int_from_float": ("a whole number",),
    "bool_parsing": ("True", "False"),
    "bool_type": ("True", "False"),
    "string_pattern_mismatch": ("<number>u for updates",),  # of --lr_scheduler_steps alone
}
MAX_PROBLEM_LENGTH = 1000  # a line may list a whole set of games


def explained(error: ValidationError, from_file: Mapping[str, str]) -> str:
    """Turn pydantic's report into one line per problem: name, what was got, what was expected.

    `from_file` has flag -> the file that has its value, with which the line then begins.
    """
    lines = []
    for flag, line in lines_of(error):
        where = from_file.get(flag)
        lines.append(f"{where}: {line}" if where else line)
    return listed(list(dict.fromkeys(lines)))


def lines_of(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Yield (flag, line) for each problem; the flag is "" if several flags have it together."""
    problems = error.errors()
    # Of a flag that takes one of several kinds of values, pydantic says of each what it is not.
    kinds: dict[str, list[Any]] = {}
    for problem in problems:
        if _is_of_a_kind(problem):
            kinds.setdefault(str(problem["loc"][0]), []).append(problem)
    for problem in problems:
        message = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            yield from (("", line) for line in message.split("\n"))
            continue
        name = str(problem["loc"][0])
        if _is_of_a_kind(problem):
            if problem is not kinds[name][0]:
                continue
            message = f"expected {_one_of(kinds[name])}"
        elif problem["type"] in KINDS:
            message = f"expected {_one_of([problem])}"
        yield name, _line(name, problem["input"], message)


def _is_of_a_kind(problem: Any) -> bool:
    return len(problem["loc"]) > 1 and isinstance(problem["loc"][1], str)


def _one_of(problems: Sequence[Any]) -> str:
    """Return the values that a flag takes, in words, from its problems for each kind of value."""
    taken: list[str] = []
    for problem in problems:
        rule = problem["msg"].removeprefix("Value error, ").removeprefix("Input should ")
        words = KINDS.get(problem["type"], (f"a value that must {rule.removeprefix('must ')}",))
        if problem["type"] == "literal_error":
            words = tuple(re.findall("'(.*?)'", problem["ctx"]["expected"]))
        taken += words
    taken.sort(key=lambda word: word != AUTO)  # stable
    return " or ".join(filter(None, (", ".join(taken[:-1]), taken[-1])))


def _line(name: str, got: Any, message: str) -> str:
    typed = shown_text(got) if isinstance(got, str) else shown(got)
    value = "" if name == "replay_parameters" else f"={typed}"
    return f"--{name}{value}: {message[0].lower() + message[1:]}"


def listed(problems: Sequence[str]) -> str:
    """Return one problem a line, at most a screen of them, each of bounded length."""
    lines = [cut(problem, MAX_PROBLEM_LENGTH) for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > len(lines):
        lines.append(f"... and {len(problems) - len(lines)} more")
    return "\n".join(lines)
