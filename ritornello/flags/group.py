"""What a group of flags is: a class whose fields are flags, each with its default, help and marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

# What a flag changes. learning: what is learned, so that runs which differ in it have different
# configurations. machine: where and how fast it is computed, and what failures do. output: what is
# measured, written and shown. command: what one invocation does, reads and writes, and how long.
Effect = Literal["learning", "machine", "output", "command"]


@dataclass(frozen=True)
class Marks:
    """Properties of one flag besides its type, default and help."""

    effect: Effect | None = None  # what the flag changes; None: as the group's `effect`
    of_this_command: bool = False  # belongs to one command; never comes back from a checkpoint
    main: bool = False  # a first run, a second one or a paper needs it: `--help` shows it
    of_atari: bool = False  # does nothing in games that are not Atari's
    also: str | None = None  # a name that is taken as well, which users would type first


class FlagGroup(BaseModel):
    """Flags that belong together. `option_flags.Flags` is made of all the groups."""

    effect: ClassVar[Effect | None] = None  # effect of flags that have no mark of their own

    def __init_subclass__(cls, effect: Effect | None = None, **more: Any) -> None:
        """Keep the marks of the whole group: `class OutputFlags(FlagGroup, effect="output")`."""
        super().__init_subclass__(**more)
        cls.effect = effect


def flag(
    default: Any,
    text: str,
    *,
    effect: Effect | None = None,
    of_this_command: bool = False,
    main: bool = False,
    of_atari: bool = False,
    also: str | None = None,
    **more: Any,
) -> Any:
    """Return the field of one flag.

    Args:
      default: value if the flag is not given; checked like a typed value.
      text: what the flag does, for users; with its unit.
      effect: one of the flag's `Marks`, as the next four.
      of_this_command: see `Marks`.
      main: see `Marks`.
      of_atari: see `Marks`.
      also: see `Marks`.
      **more: bounds, as pydantic's Field takes them.
    """
    marks = Marks(effect, of_this_command, main, of_atari, also)
    return Field(default, description=text, json_schema_extra={"marks": marks}, **more)  # type: ignore[dict-item]


def marks_of(field: FieldInfo) -> Marks:
    """Return the marks of a flag."""
    extra: Any = field.json_schema_extra
    marks: Marks = extra["marks"]
    return marks


def leaves_of(annotation: Any) -> list[Any]:
    """Return the parts of an annotation: plain types, and the values of a Literal."""
    origin = get_origin(annotation)
    if origin is None:
        return [annotation]
    parts = get_args(annotation)
    if origin is Literal:
        return list(parts)
    if origin is Annotated:  # the rest are validators
        return leaves_of(parts[0])
    inside = [leaf for part in parts for leaf in leaves_of(part)]
    return [origin, *inside] if origin in (list, tuple) else inside
