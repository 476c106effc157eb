"""Files of sequences and searches as pydantic models, with messages for who writes such a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import did_you_mean
from ritornello.core.plain_data import cut, shown, shown_text

MAX_PROBLEMS_SHOWN = 10
Model = TypeVar("Model")
MAX_NAME = 300  # characters
# The name of a group, a sequence or a search.
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
# Root seeds, each once, and how many runs of each configuration there are.
Seeds = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**63)]],
    Field(min_length=1),
    AfterValidator(lambda seeds: list(dict.fromkeys(seeds))),
]


class Form(BaseModel):
    """A mapping of a YAML or JSON file. A key without a value counts as left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None}


def checked(model: type[Model], data: Any, where: str) -> Model:
    """Return `data`, plain types from a file, as a model; `where` is the file, for messages.

    Raises:
      ConfigError: the message names each key that is wrong, and the nearest right one.
    """
    try:
        return TypeAdapter(model).validate_python(data)
    except ValidationError as error:
        problems: dict[str, dict[str, None]] = {}
        for each in error.errors()[:MAX_PROBLEMS_SHOWN]:
            # Of a word or a mapping, whoever gives keys means the mapping, which has been told.
            is_word = each["type"] == "literal_error" and isinstance(each["input"], Mapping)
            if not (is_word and problems):
                what, expected = _problem(each, model, data)
                problems.setdefault(what, {})[expected] = None
        lines = [what + " or ".join(expected) for what, expected in problems.items()]
        raise ConfigError(f"{where}: " + "\n".join(lines)) from error


def _problem(error: Any, form: Any, data: Any) -> tuple[str, str]:
    """Return ("runs[3].name is 5: expected ", "a valid string") for one of pydantic's errors."""
    place, known = "", list[str]()
    for part in error["loc"]:
        fields = getattr(form, "model_fields", {})
        known = [field.alias or name for name, field in fields.items()]
        form = _form_in(fields[part].annotation) if part in fields else form
        try:
            data = data[part]
        except (LookupError, TypeError):
            if error["type"] != "missing":
                continue  # pydantic's name for one of several forms that a value may have
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(str(error["loc"][-1]), known)
        return f"unknown key {shown_text(place)}{f'; {hint}' if hint else ''}", ""
    if error["type"] == "missing":
        return f"{shown_text(place)} is missing", ""
    got = f"{shown_text(place or 'its content')} is {shown(error['input'])}: "
    expected = _expected(error)
    if not expected:
        return got + cut(str(error["msg"]), 400), ""
    return f"{got}expected ", cut(expected, 400)


def _expected(error: Any) -> str:
    """Return what was expected; "" if the error says something else."""
    kind, got, limits = str(error["type"]), error["input"], error.get("ctx", {})
    if kind in ("model_type", "dataclass_type", "dict_type"):
        return "keys with values (key: value)"
    if kind == "list_type":
        return "a list" + ("" if isinstance(got, Mapping) else f", as in [{shown(got, 60)}]")
    if kind.endswith(("too_short", "too_long")):
        bound, limit = ("at least", "min") if kind.endswith("short") else ("at most", "max")
        count, unit = limits[f"{limit}_length"], "character" if "string" in kind else "item"
        return f"{bound} {count} {unit}{'s' * (count != 1)}"
    return str(error["msg"]).partition("Input should be ")[2]


def _form_in(kind: Any) -> Any:
    """Return the form that a type is or holds, as list[Form] does; None if there is none."""
    if isinstance(kind, type) and issubclass(kind, Form):
        return kind
    return next(filter(None, map(_form_in, get_args(kind))), None)
