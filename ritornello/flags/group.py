"""What a group of flags is: a class whose fields are flags, each with its default and its help."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

_OF_THIS_COMMAND = "of_this_command"
_FOR_DEVELOPERS = "for_developers"


class FlagGroup(BaseModel):
    """Flags that belong together. `option_flags.Flags` is made of all the groups."""


def flag(
    default: Any,
    text: str,
    *,
    of_this_command: bool = False,
    for_developers: bool = False,
    **more: Any,
) -> Any:
    """Return the field of one flag.

    Args:
      default: what it is if nobody says anything; checked like what is typed.
      text: what it does, for users; with its unit.
      of_this_command: it belongs to one command, and never comes back from a checkpoint.
      for_developers: users of the program have no use for it; only `--help=all` shows it.
      **more: bounds, as pydantic's Field takes them.
    """
    marks: dict[str, Any] = {_OF_THIS_COMMAND: of_this_command, _FOR_DEVELOPERS: for_developers}
    return Field(default, description=text, json_schema_extra=marks, **more)


def is_of_this_command(field: FieldInfo) -> bool:
    """Whether a flag belongs to one command only."""
    return _has(field, _OF_THIS_COMMAND)


def is_for_developers(field: FieldInfo) -> bool:
    """Whether a flag is of no use to users of the program."""
    return _has(field, _FOR_DEVELOPERS)


def _has(field: FieldInfo, mark: str) -> bool:
    marks = field.json_schema_extra
    return isinstance(marks, dict) and bool(marks.get(mark))
