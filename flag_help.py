"""What users read of the flags: `--help`, and the table of docs/flags.md (`make docs`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from option_flags import GROUPS
from presets import PRESETS, describe


def flag_groups() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return group -> [(name, type, default, help)], for --help and docs/flags.md."""
    return {
        group: [_described(name, field) for name, field in flags.model_fields.items()]
        for group, flags in GROUPS.items()
    }


def _described(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    default = field.default
    shown = "none" if default in (None, "", ()) else str(default)
    if isinstance(default, tuple) and default:
        shown = ",".join(str(part) for part in default)
    return name, _type_name(field.annotation), shown, str(field.description)


def _type_name(annotation: Any) -> str:
    kinds = _leaves(annotation)
    if list in kinds:
        return "JSON list"
    if tuple in kinds:
        return "number,number,..." if Ellipsis in kinds else "height,width"
    choices = [kind for kind in kinds if isinstance(kind, str)]
    for kind, name in ((bool, "True | False"), (int, "int"), (float, "float"), (str, "text")):
        if kind in kinds:
            choices.append(name)
    return " | ".join(choices)


def _leaves(annotation: Any) -> list[Any]:
    """Return what an annotation is made of: plain types, and the values of a Literal."""
    origin = get_origin(annotation)
    if origin is None:
        return [annotation]
    parts = get_args(annotation)
    if origin is Literal:
        return list(parts)
    if origin is Annotated:  # the rest are validators
        return _leaves(parts[0])
    inside = [leaf for part in parts for leaf in _leaves(part)]
    return [origin, *inside] if origin in (list, tuple) else inside


def help_text() -> str:
    """Return what `--help` prints."""
    lines = [
        "Train, resume and test V-trace agents that mix new experience with replay.",
        "",
        "  python main.py                                            train on Pong",
        "  python main.py --env=CartPole-v1                          learn something in a minute",
        "  python main.py --env=six                                  one agent for six games",
        "  python main.py --op_mode=train_w_load --load_model_url=results/<run>   resume",
        "  python main.py --op_mode=test --load_model_url=results/<run>           play whole games",
        "",
        "A step is one decision of the agent; a frame is one tick of the simulator.",
    ]
    lines += ["", "presets (--preset=<name>[,<name>...]; the later wins, and your flags over all):"]
    for name, preset in PRESETS.items():
        lines += [f"  {name}: {preset.purpose}"]
        if preset.flags:
            lines += [f"      {describe(preset)}"]
    for group, flags in flag_groups().items():
        lines += ["", f"{group}:"]
        for name, kind, default, text in flags:
            if name == "replay_parameters":
                default = "queue 0.5 + standard 0.5"
            lines += [f"  --{name}=<{kind}>  (default: {default})", f"      {text}"]
    return "\n".join(lines) + "\n"
