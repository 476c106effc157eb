"""Writes the generated pages of docs/: flags.md, health.md, metrics.md. Run by `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # run as a script, from anywhere

FLAGS_INTRODUCTION = """# Flags

Generated from `flags/` by `make docs`; do not edit. `python main.py --help=all` says the same.

All flags are given as `--name=value`; booleans as `--name=True` or `--name=False`. A step is one
decision of the agent, a frame is one tick of the simulator.
"""

PRESETS_INTRODUCTION = """## presets

`--preset=<name>` sets a group of flags at once; `--preset=<name>,<name>` several, the later one
winning. Flags that are given besides win over all of them.

| preset | for | flags |
|---|---|---|"""


def flags_page() -> str:
    """Return docs/flags.md: one table per group of flags."""
    from flag_help import flag_groups
    from presets import PRESETS, describe

    lines = [FLAGS_INTRODUCTION, PRESETS_INTRODUCTION]
    for name, preset in PRESETS.items():
        lines.append(f"| `{name}` | {preset.purpose} | `{describe(preset) or '(the defaults)'}` |")
    lines.append("")
    for group, flags in flag_groups().items():
        lines += [f"## {group}", "", "| flag | values | default | meaning |", "|---|---|---|---|"]
        for name, kind, default, text in flags:
            cells = (f"`--{name}`", kind, f"`{default}`", text)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


HEALTH_INTRODUCTION = """# Why does it not learn?

The table is generated from `metrics/health.py` by `make docs`; do not edit.

A run watches its own metrics. When one leaves its healthy range and stays outside for
{records} records and {updates} updates, a line says so, once, on the terminal and in `train.log`:

    health: replay/standard/kl_behaviour_target is 0.912 (healthy: below 0.7): replay is too old ...

It is said again only after the metric has been back in its range for as long. All findings of a
run are in its `summary.json`, under `findings`. Nothing is said before agent step {steps:,}, and of
some metrics later: values start as noise, and buffers fill. The ranges are rules of thumb: runs
that learn Pong and CartPole stay silent, but a run with a finding may learn all the same.

Look in this order:

1. **Is there a reward?** `popart/sigma_*` falls to its lower bound, `value/target_mean` stays 0:
   no reward was ever seen. Nothing else matters before there is one.
2. **Does the policy move?** `policy/entropy_fraction` stays near 1: it is still random.
   Near 0 early: it has collapsed onto one action.
3. **Do the values follow?** `value/explained_variance` rises towards 1 while there is something to
   learn. Where all returns are equal (a task not begun, or solved) it hovers around 0.
4. **Does the data fit the policy?** Look at each buffer: `replay/*/kl_behaviour_target` and
   `replay/*/masked_fraction`, then `vtrace/ess`. Age (`replay/*/drawn_age_updates`) harms only
   through these. In the queue it comes from `lag/mean_updates` or a too high learning rate.
5. **Are the steps sound?** `grad/norm_before_clip`; that `grad/clipped_fraction` is always 1 is
   no fault with Adam, which does not see the size of the gradient. `learner/bad_updates` counts
   those that were skipped because loss or gradient was not finite
   ([troubleshooting.md](troubleshooting.md)).
6. **None of these?** It may need more steps: with the default flags Pong rises above its start
   after about 100 games, 0.1 million agent steps.

| metric | healthy | probable cause, and what to turn |
|---|---|---|"""


def health_page() -> str:
    """Return docs/health.md: how to find out why a run does not learn, and the healthy ranges."""
    from metrics import health

    lines = [
        HEALTH_INTRODUCTION.format(
            records=health.PATIENCE_RECORDS,
            updates=health.PATIENCE_UPDATES,
            steps=health.WARM_UP_STEPS,
        )
    ]
    for wanted in health.RANGES:
        sides = (("below", wanted.too_low), ("above", wanted.too_high))
        causes = [f"{side}: {cause}." for side, cause in sides if cause]
        text = " ".join(causes).replace("'{buffer}'", "the buffer")
        lines.append(f"| `{wanted.metric}` | {wanted.healthy} | {text} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return path -> content of every generated page."""
    from metrics.__main__ import markdown

    return {
        DOCS / "flags.md": flags_page(),
        DOCS / "health.md": health_page(),
        DOCS / "metrics.md": markdown(),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
