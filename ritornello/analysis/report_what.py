"""The parts of a report that say what was run: sessions, versions, machine, flags.

Everything is read from flags.json and run.json, which may be old, damaged, or a stranger's. Next to
read: analysis/report_run.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ritornello.analysis.configuration import default_flags
from ritornello.analysis.markup import Markup, el, facts, folded, join, table
from ritornello.analysis.report import Maker
from ritornello.analysis.report_files import read_object
from ritornello.analysis.run_facts import commit_text, machine_text
from ritornello.core.plain_data import shown
from ritornello.core.run_layout import FLAGS, SESSIONS

MAX_SESSIONS = 20  # that are shown one by one


def what_was_run(place: Path, maker: Maker) -> Markup:
    """Return sessions, versions, what a person did, and flags."""
    return join(
        [
            maker.part(SESSIONS, lambda: sessions(place)),
            el("h3", "Flags that differ from the defaults"),
            maker.part(FLAGS, lambda: flags_of(place)),
        ]
    )


def sessions(place: Path) -> Markup:
    """Return what run.json says of each session."""
    found = sessions_of(place)
    parts: list[Markup] = []
    for number, session in list(enumerate(found, start=1))[:MAX_SESSIONS]:
        versions = _mapping(session.get("versions"))
        pairs = [
            ("begun", session.get("started")),
            ("command", " ".join(texts(session.get("command_line")))),
            ("version", session.get("version")),
            ("commit", commit_text(_mapping(session.get("source")))),
            ("libraries", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("machine", _machine(_mapping(session.get("machine")))),
        ]
        about = f"Session {number} of {len(found)}"
        parts += [el("h3", about), facts(pairs, about)]
    if not found:
        parts.append(el("p", "run.json is missing.", class_="soft"))
    if len(found) > MAX_SESSIONS:
        parts.append(el("p", f"The first {MAX_SESSIONS} of {len(found)} sessions.", class_="soft"))
    done = [
        (
            number,
            number_text(note.get("updates")),
            note.get("command"),
            json.dumps(note.get("values")) if note.get("values") else "",
            note.get("result"),
        )
        for number, session in enumerate(found, start=1)
        for note in dicts(session.get("control"))
    ]
    if done:
        parts.append(el("h3", "What a person changed while it ran"))
        parts.append(table(("session", "update", "command", "values", "answer"), done, "Control"))
    return join(parts)


def sessions_of(place: Path) -> list[dict[str, Any]]:
    """Return the sessions in run.json, the first one first; whatever is no session is left out."""
    first = read_object(place, SESSIONS)
    later = first.pop("resumed", [])
    return [session for session in [first, *dicts(later)] if session]


def flags_of(place: Path) -> Markup:
    """Return the flags that are not what they are by themselves, and all of them folded."""
    flags = read_object(place, FLAGS)
    if not flags:
        return el("p", "flags.json is missing.", class_="soft")
    own = default_flags()
    changed = [
        (
            name,
            value_text(value),
            value_text(own[name]) if name in own else "no flag of this version",
        )
        for name, value in flags.items()
        if name not in own or value != own[name]
    ]
    every = [(name, value_text(value)) for name, value in flags.items()]
    return join(
        [
            table(("flag", "value", "default"), changed, "Flags that differ from the defaults"),
            folded(f"All {len(every)} flags", table(("flag", "value"), every, "All flags")),
        ]
    )


def _machine(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    gpus = texts(found.get("gpus"))
    memory = found.get("memory_bytes")
    parts = [machine_text({**found, "cpu": str(found.get("cpu")), "gpus": gpus})]
    parts += [f"{memory / 2**30:.0f} GiB"] if isinstance(memory, int) else []
    return ", ".join([*parts, str(found.get("system", ""))])


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the mappings in a list; none of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts(value: object) -> list[str]:
    """Return the items of a list as texts; none of anything else."""
    return [str(each) for each in value] if isinstance(value, list) else []


def value_text(value: object) -> str:
    """Return a value of JSON as it is typed, of bounded length."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else shown(value, 1000)


def number_text(value: object) -> str | None:
    """Return a number with its thousands apart; None of anything else."""
    return f"{value:,.10g}" if isinstance(value, (int, float)) else None
