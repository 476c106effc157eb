"""What users read of the flags: `--help` in its forms, and the tables of docs/flags.md.

`--help` shows the flags that matter, `--help=<group>` one group, `--help=presets` the presets with
their flags, `--help=all` everything.
"""

from __future__ import annotations

import difflib
import json
import textwrap
from typing import Any

from pydantic.fields import FieldInfo

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown_text
from ritornello.core.project import main_command
from ritornello.flags.group import leaves_of, marks_of
from ritornello.flags.options import GROUPS, Flags
from ritornello.flags.presets import PRESETS, describe

# What a first run, a second one and a paper need; `--help` shows these.
MAIN_FLAGS = tuple(name for name, field in Flags.model_fields.items() if marks_of(field).main)
# Presets that environments of their kind begin with, and what the help says of them.
FAMILIES = ("vector", "impact-mujoco", "image", "several-games")
OF_THE_DEFAULTS = (
    "The defaults are those of Atari. Vectors, vectors with actions of real numbers, other images "
    f"and several games begin with presets of theirs ({', '.join(FAMILIES)}); flags.json in a "
    "run's folder says what it used."
)
EXAMPLES = """\
  python main.py                                   train on Pong
  python main.py --env=CartPole-v1                 learn something in a minute
  python main.py --env=six                         one agent for six games
  python main.py --flags_file=run.yaml --seed=2    flags from a file
  python main.py --resume=results/<run>            go on with a run
  python main.py --resume_or_start=results/<run>   go on with it, or start it: a job that repeats
  python main.py --test=results/<run>              play whole games
  python main.py --replay=queue:4:0.5,elite:2000:0.5   mix new data with replay
"""


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
    kinds = leaves_of(annotation)
    if list in kinds:
        return "list"
    if tuple in kinds:
        return "number,number,..." if Ellipsis in kinds else "height,width"
    choices = [kind for kind in kinds if isinstance(kind, str)]
    for kind, name in ((bool, "True | False"), (int, "int"), (float, "float"), (str, "text")):
        if kind in kinds:
            choices.append(name)
    return " | ".join(choices)


def help_text(topic: str = "", width: int = 80) -> str:
    """Return what `--help` prints, wrapped at `width` columns.

    `topic` is "" for the flags that matter, a group, "presets" or "all".

    Raises:
      ConfigError: if there is no such topic.
    """
    topics = (*GROUPS, "presets", "all")
    if topic and topic not in topics:
        near = difflib.get_close_matches(topic, topics, 1)
        hint = f"did you mean --help={near[0]}?" if near else f"expected {', '.join(topics)}"
        raise ConfigError(f"--help={shown_text(topic)}: there is no such group of flags; {hint}")
    if topic == "presets":
        return "\n".join(_presets(width, with_flags=True)) + "\n"
    if topic and topic != "all":
        return "\n".join(_group(topic, width)) + "\n"
    lines = [
        *textwrap.wrap(
            "Train, resume and test V-trace agents that mix new experience with replay. A step is "
            "one decision of the agent; a frame is one tick of the simulator. "
            f"{OF_THE_DEFAULTS}",
            width,
            break_on_hyphens=False,
        ),
        "",
        *EXAMPLES.replace("python main.py", main_command()).splitlines(),
    ]
    if topic == "all":
        for group in GROUPS:
            lines += ["", *_group(group, width)]
        return "\n".join([*lines, "", *_presets(width, with_flags=True)]) + "\n"
    lines += ["", f"The {len(MAIN_FLAGS)} most important flags:"]
    for name in MAIN_FLAGS:
        lines += _flag(*_described(name, Flags.model_fields[name]), width)
    lines += ["", *_presets(width, with_flags=False), "", "More:"]
    sizes = ", ".join(f"{group} ({len(GROUPS[group].model_fields)})" for group in GROUPS)
    lines += textwrap.wrap(
        f"Use --help=<group> to see one group of the {len(Flags.model_fields)} flags: {sizes}. "
        "--help=presets shows all presets with their flags, --help=all shows everything, and "
        "--version the version. docs/flags.md has the same as a page. README.md has first steps.",
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def _group(group: str, width: int) -> list[str]:
    lines = [f"{group}:"]
    for name, field in GROUPS[group].model_fields.items():
        lines += _flag(*_described(name, field), width)
    return lines


def _flag(name: str, kind: str, default: str, text: str, width: int) -> list[str]:
    if name == "replay_parameters":
        default = ",".join(":".join(map(str, buffer.values())) for buffer in json.loads(default))
    also = marks_of(Flags.model_fields[name]).also
    head = f"--{also or name}=<{kind}>"
    longer = f"; also --{name}" if also else ""
    return [
        *_wrapped(f"{head}  (default: {default}{longer})", width, "  ", "        "),
        *_wrapped(text, width, "      ", "      "),
    ]


def _presets(width: int, *, with_flags: bool) -> list[str]:
    lines = ["presets (--preset=<name>[,<name>...]; later ones override earlier ones):"]
    indent = max(len(name) for name in PRESETS) + 4
    for name, preset in PRESETS.items():
        lines += _wrapped(preset.purpose, width, f"  {name}".ljust(indent), " " * indent)
        if with_flags and preset.flags:
            lines += _wrapped(describe(preset), width, " " * indent, " " * indent)
    return lines


def _wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )
