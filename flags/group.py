"""What a group of flags is: a class whose fields are flags, each with its default and its help."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

_OF_THIS_COMMAND = "of_this_command"


class FlagGroup(BaseModel):
    """Flags that belong together. `option_flags.Flags` is made of all the groups."""


def flag(default: Any, text: str, *, of_this_command: bool = False, **more: Any) -> Any:
    """Return the field of one flag.

    Args:
      default: what it is if nobody says anything; checked like what is typed.
      text: what it does, for users; with its unit.
      of_this_command: it belongs to one command, and never comes back from a checkpoint.
      **more: bounds, as pydantic's Field takes them.
    """
    marks: dict[str, Any] = {_OF_THIS_COMMAND: of_this_command}
    return Field(default, description=text, json_schema_extra=marks, **more)


def is_of_this_command(field: FieldInfo) -> bool:
    """Whether a flag belongs to one command only."""
    marks = field.json_schema_extra
    return isinstance(marks, dict) and bool(marks.get(_OF_THIS_COMMAND))
