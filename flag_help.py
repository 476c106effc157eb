"""What users read of the flags: `--help`, and the table of docs/flags.md (`make docs`)."""

from __future__ import annotations

from typing import Any, Literal

from option_flags import Flags
from presets import PRESETS, describe


def flag_groups() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return group -> [(name, type, default, help)], for --help and docs/flags.md."""
    groups: dict[str, list[tuple[str, str, str, str]]] = {}
    for name, field in Flags.model_fields.items():
        extra = field.json_schema_extra
        group = str(extra["group"]) if isinstance(extra, dict) else "other"
        default = field.default
        shown = "none" if default in (None, "", ()) else str(default)
        if isinstance(default, tuple) and default:
            shown = ",".join(str(part) for part in default)
        groups.setdefault(group, []).append(
            (name, _type_name(field.annotation), shown, str(field.description))
        )
    return groups


def _type_name(annotation: Any) -> str:
    text = str(annotation)
    if annotation == bool | Literal["auto"]:
        return "auto | True | False"
    if "Literal[" in text and "int" not in text:
        return " | ".join(text.split("Literal[")[1].split("]")[0].replace("'", "").split(", "))
    if "dict" in text:
        return "JSON list"
    if "tuple" in text and ", ..." in text:
        return "number,number,..."
    if "tuple" in text:
        return "height,width"
    if "Literal['auto']" in text:
        return "auto | int"
    for kind in ("bool", "int", "float"):
        if kind in text:
            return {"bool": "True | False"}.get(kind, kind)
    return "text"


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
