"""The table of what was injected and what became of it, in Markdown, and as lines of JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.history import PROMISES
from tests.chaos.runner import BAD, Outcome

SHOWN_VIOLATIONS = 4


def append(path: Path, outcome: Outcome) -> None:
    """Add a line of JSON."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(outcome.to_json(), default=str) + "\n")


def markdown(outcomes: Sequence[Outcome], *, command: str, minutes: float) -> str:
    """Return the report: totals, the table, and each failure with the command that replays it."""
    faults = sum(len(each.injected) for each in outcomes)
    verdicts = Counter(each.verdict for each in outcomes)
    said = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    lines = [
        f"`{command}`: {faults} faults in {len(outcomes)} scenarios, "
        f"{minutes:.0f} minutes: {said}.",
        "",
        "| fault | scenarios | faults | held | lost | broken | missed | exit statuses | broken |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    names = sorted({each.fault for each in outcomes})
    lines += [_row(name, [each for each in outcomes if each.fault == name]) for name in names]
    skipped = {each.fault: each.note for each in outcomes if each.verdict == "skipped"}
    if skipped:
        lines += ["", "Not injected here:", ""]
        lines += [f"* {name}: {reason}" for name, reason in sorted(skipped.items())]
    bad = [each for each in outcomes if each.verdict in BAD]
    if bad:
        lines += ["", "## What was not held", ""]
        for each in sorted(bad, key=lambda outcome: outcome.number):
            lines += _failure(each, command)
    return "\n".join(lines) + "\n"


def _row(name: str, outcomes: list[Outcome]) -> str:
    count = Counter(each.verdict for each in outcomes)
    statuses = Counter(
        " ".join("-" if status is None else str(status) for status in each.statuses)
        for each in outcomes
        if each.statuses
    )
    ended = "; ".join(f"{text} ({n})" for text, n in statuses.most_common(4))
    promises = Counter(v.promise for each in outcomes for v in set(each.violations))
    broken = ", ".join(f"{promise} {n}" for promise, n in promises.most_common())
    cells = [
        name, len(outcomes), sum(len(each.injected) for each in outcomes), count["held"],
        count["LOST"], count["broken"] + count["error"], count["missed"] + count["skipped"],
        ended, broken,
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _failure(outcome: Outcome, command: str) -> list[str]:
    base = " ".join(
        part for part in command.split() if part.startswith(("python", "-m", "tests", "--seed"))
    )
    replay = f"`{base} --replay={outcome.number}`"
    lines = [f"* **{outcome.number} {outcome.fault}** ({outcome.verdict}; {replay})"]
    lines += [f"  * injected: {text}" for text in outcome.injected]
    shown = outcome.violations[:SHOWN_VIOLATIONS]
    lines += [f"  * {_one_line(str(violation))}" for violation in shown]
    if len(outcome.violations) > len(shown):
        lines.append(f"  * and {len(outcome.violations) - len(shown)} more")
    if outcome.note:
        lines.append(f"  * the harness: {_one_line(outcome.note)}")
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def promises() -> str:
    """Return the list of promises with their short names."""
    return "\n".join(f"{name:11} {sentence}" for name, sentence in PROMISES.items())
