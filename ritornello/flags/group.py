"""What a group of flags is: a class whose fields are flags, each with its default, help and marks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

# What a flag changes. learning: what is learned, so that runs which differ in it have different
# configurations. machine: where and how fast it is computed, and what failures do. output: what is
# measured, written and shown. command: what one invocation does, reads and writes, and how long.
Effect = Literal["learning", "machine", "output", "command"]

_EFFECT = "effect"
_OF_THIS_COMMAND = "of_this_command"
_FOR_DEVELOPERS = "for_developers"
_MAIN = "main"
_OF_ATARI = "of_atari"
_ALSO = "also"


class FlagGroup(BaseModel):
    """Flags that belong together. `option_flags.Flags` is made of all the groups."""

    effect: ClassVar[Effect | None] = None  # of the group's flags that have no mark of their own

    def __init_subclass__(cls, effect: Effect | None = None, **more: Any) -> None:
        """Keep what is said of the whole group: `class OutputFlags(FlagGroup, effect="output")`."""
        super().__init_subclass__(**more)
        cls.effect = effect


def flag(
    default: Any,
    text: str,
    *,
    effect: Effect | None = None,
    of_this_command: bool = False,
    for_developers: bool = False,
    main: bool = False,
    of_atari: bool = False,
    also: str | None = None,
    **more: Any,
) -> Any:
    """Return the field of one flag.

    Args:
      default: what it is if nobody says anything; checked like what is typed.
      text: what it does, for users; with its unit.
      effect: what it changes; None: what the group's `effect` says.
      of_this_command: it belongs to one command, and never comes back from a checkpoint.
      for_developers: users of the program have no use for it; only `--help=all` shows it.
      main: a first run, a second one or a paper needs it: `--help` shows it.
      of_atari: it does nothing in games that are not Atari's.
      also: a name that is taken as well, which users would type first.
      **more: bounds, as pydantic's Field takes them.
    """
    marks: dict[str, Any] = {
        _EFFECT: effect,
        _OF_THIS_COMMAND: of_this_command,
        _FOR_DEVELOPERS: for_developers,
        _MAIN: main,
        _OF_ATARI: of_atari,
        _ALSO: also,
    }
    return Field(default, description=text, json_schema_extra=marks, **more)


def effect_in(group: type[FlagGroup], name: str) -> Effect | None:
    """Return what a flag of a group changes; None if neither of them says it."""
    effect: Effect | None = _mark(group.model_fields[name], _EFFECT) or group.effect
    return effect


def is_of_this_command(field: FieldInfo) -> bool:
    """Whether a flag belongs to one command only."""
    return bool(_mark(field, _OF_THIS_COMMAND))


def is_for_developers(field: FieldInfo) -> bool:
    """Whether a flag is of no use to users of the program."""
    return bool(_mark(field, _FOR_DEVELOPERS))


def is_main(field: FieldInfo) -> bool:
    """Whether `--help` shows a flag."""
    return bool(_mark(field, _MAIN))


def is_of_atari(field: FieldInfo) -> bool:
    """Whether a flag does nothing in games that are not Atari's."""
    return bool(_mark(field, _OF_ATARI))


def other_name(field: FieldInfo) -> str | None:
    """Return the name that is taken as well, if there is one."""
    also: str | None = _mark(field, _ALSO)
    return also


def _mark(field: FieldInfo, name: str) -> Any:
    marks = field.json_schema_extra
    return marks.get(name) if isinstance(marks, dict) else None
