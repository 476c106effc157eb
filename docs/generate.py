"""Writes the generated pages: docs/flags.md and docs/metrics.md. Run by `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # run as a script, from anywhere

FLAGS_INTRODUCTION = """# Flags

Generated from `option_flags.py` by `make docs`; do not edit. `python main.py --help` says the same.

All flags are given as `--name=value`; booleans as `--name=True` or `--name=False`. A step is one
decision of the agent, a frame is one tick of the simulator.
"""


def flags_page() -> str:
    """Return docs/flags.md: one table per group of flags."""
    from option_flags import flag_groups

    lines = [FLAGS_INTRODUCTION]
    for group, flags in flag_groups().items():
        lines += [f"## {group}", "", "| flag | values | default | meaning |", "|---|---|---|---|"]
        for name, kind, default, text in flags:
            cells = (f"`--{name}`", kind, f"`{default}`", text)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return path -> content of every generated page."""
    from metrics.__main__ import markdown

    return {DOCS / "flags.md": flags_page(), DOCS / "metrics.md": markdown()}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
