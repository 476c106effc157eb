"""Names on a command line: which flag each one means, and what to say of one that means none.

A flag may have another name, which `--help` shows first (`flags/group.py`: `also`), and every name
may be written in both spellings of English. `--resume=<run>` and `--test=<run>` say two flags.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import american
from ritornello.core.plain_data import shown, shown_text
from ritornello.flags.earlier import is_earlier
from ritornello.flags.former_names import ALIASES, HINTS
from ritornello.flags.group import other_name
from ritornello.flags.options import Flags
from ritornello.flags.parts import REPLAY
from ritornello.flags.problems import listed

# --resume=<run>, --test=<run>: the value of --op_mode; the run is that of --load_model_url.
COMMANDS = {"resume": "train_w_load", "test": "test"}
OVERRIDES = "multi_train_overrides"  # how multi_train.py hands over the flags of a sequence
# Words that are commands elsewhere.
_WORDS = {
    "train": "no word: training is what main.py does",
    "resume": "--resume=<run folder>",
    **dict.fromkeys(("test", "eval", "evaluate", "play"), "--test=<run folder>"),
    "help": "--help",
}
_NOTHING = "nothing: "  # begins the hints about what has no counterpart here


def _spellings() -> dict[str, str]:
    """Return each name that means a flag, in American spelling -> the flag."""
    names = {american(name): name for name in Flags.model_fields}
    for name, field in Flags.model_fields.items():
        if also := other_name(field):
            names[american(also)] = name
    return {**names, **ALIASES}


_FLAGS = _spellings()
_HINTS = {name: hint for hint, names in HINTS.items() for name in names.split()}


def flag_of(name: str) -> str:
    """Return the name of the flag that a name means; the name itself if it means none."""
    plain = name.replace("-", "_")
    return _FLAGS.get(american(plain), plain)


def is_name(name: str) -> bool:
    """Whether main.py knows a name, if only to say what to write instead."""
    is_flag = flag_of(name) in Flags.model_fields or is_earlier(name)
    return is_flag or name in COMMANDS or name in _HINTS


def named_values(argv: Sequence[str]) -> dict[str, str]:
    """Return flag -> text of a command line; accepts --a-b for --a_b, and `--name value`.

    Of a flag that is given twice the last one counts, whatever its type.

    Raises:
      ConfigError: with every name that is no flag, and every flag that has no value.
    """
    values: dict[str, str] = {}
    problems = []
    commands = []
    items = list(argv)
    while items:
        item = items.pop(0)
        if not item.startswith("--"):
            hint = f": write {_WORDS[item]}" if item in _WORDS else ""
            problems.append(f"{shown(item)} is not an option; options look like --name=value{hint}")
            continue
        name, equals, value = item[2:].partition("=")
        name = flag_of(name)
        is_known = name in {*Flags.model_fields, *COMMANDS, OVERRIDES} or is_earlier(name)
        if not equals and items and not items[0].startswith("--"):
            equals, value = "=", items.pop(0)
        if name == REPLAY and value.startswith("[") and items and not items[0].startswith("--"):
            raise ConfigError(
                f"the value of --{REPLAY} was cut at a blank by the shell: put the whole value in "
                "single quotes, or write --replay=queue:4:0.5,standard:1000:0.5, which needs none"
            )
        if not is_known:
            problems.append(unknown_option(name))
        elif not equals:
            problems.append(f"--{name} needs a value, e.g. --{name}={_example(name)}")
        elif name in COMMANDS:
            commands.append(name)
            values.update(op_mode=COMMANDS[name], load_model_url=value)
        else:
            values[name] = value
    if len(set(commands)) > 1:
        problems.append("--resume and --test cannot be done at once: give one of the two")
    if problems:
        raise ConfigError(listed(problems))
    return values


def unknown_option(name: str) -> str:
    """Return the line about a name that is no flag: what to write instead, or what is similar."""
    known = _answer(name)
    if known is not None:
        return known
    near = difflib.get_close_matches(name, sorted({*Flags.model_fields, *COMMANDS}), 3)
    theirs = difflib.get_close_matches(name, sorted(_HINTS), 1)
    if theirs and not near:
        return f"unknown option --{shown_text(name)}: {_answer(theirs[0])}"
    hint = f"; did you mean {' or '.join('--' + n for n in near)}?" if near else ""
    return f"unknown option --{shown_text(name)}{hint} (--help=all lists all)"


def _answer(name: str) -> str | None:
    """Return what to write instead of another program's flag; None for an unknown name."""
    hint = _HINTS.get(name) or _HINTS.get(name.lower())
    if hint is None:
        return None
    if hint.startswith(_NOTHING):
        return f"--{name} is not an option here. Leave it out: {hint.removeprefix(_NOTHING)}"
    return f"--{name} is not an option here: write {hint}"


def _example(name: str) -> str:
    if name in COMMANDS:
        return "results/<run>"
    default = Flags.model_fields[name].default if name in Flags.model_fields else None
    return "True" if isinstance(default, bool) else str(default)
