"""Writes the generated pages of docs: flags.md, health.md, metrics.md; the tables of replay.md.

Run by `make docs`.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # run as a script, from anywhere

FLAGS_INTRODUCTION = """# Flags

This page is generated from `flags/` by `make docs`; do not edit it. `python main.py --help=all`
prints the same.

Flags have the form `--name=value`, and booleans the form `--name=True` or `--name=False`. A step
is one decision of the agent. A frame is one tick of the simulator.

The defaults are those of Atari. Vectors, other images and several games begin with presets of
theirs (`vector`, `image`, `several-games`); `flags.json` in a run's folder says what it used.
"""

PRESETS_INTRODUCTION = """## presets

`--preset=<name>` sets several flags at once. `--preset=<name>,<name>` combines presets; a later one
overrides an earlier one. Flags you pass explicitly override all presets.
"""


def flags_page() -> str:
    """Return docs/flags.md: one table per group of flags."""
    from ritornello.core.markdown import table
    from ritornello.flags.help import flag_groups
    from ritornello.flags.presets import PRESETS, describe

    presets = [
        (f"`{name}`", preset.purpose, f"`{describe(preset) or '(the defaults)'}`")
        for name, preset in PRESETS.items()
    ]
    lines = [FLAGS_INTRODUCTION, PRESETS_INTRODUCTION]
    lines += [*table(("preset", "for", "flags"), presets), ""]
    for group, flags in flag_groups().items():
        rows = [(f"`--{name}`", kind, f"`{default}`", text) for name, kind, default, text in flags]
        lines += [f"## {group}", "", *table(("flag", "values", "default", "meaning"), rows), ""]
    return "\n".join(lines)


HEALTH_INTRODUCTION = """# Why does it not learn?

The table is generated from `metrics/health.py` by `make docs`; do not edit.

A run watches its own metrics. If a metric leaves its healthy range and stays outside for {records}
records and {updates} updates, the run prints one line on the terminal and in `train.log`:

    health: replay/standard/kl_behaviour_target is 0.912 (healthy: below 0.7): replay is too old ...

The line is repeated only after the metric has been back in its range for as long. All findings of
a run are in its `summary.json`, under `findings`. There are no findings before agent step
{steps:,}, and for some metrics they begin later, because values start as noise and buffers have
to fill. The ranges are rules of thumb. A run that learns usually has no findings, but a run with a
finding may still learn.

Look in this order:

1. **Is there a reward?** If `popart/sigma_*` falls to its lower bound and `value/target_mean`
   stays 0, the agent never saw a reward. Nothing else matters until it sees one.
2. **Does the policy change?** If `policy/entropy_fraction` stays near 1, the policy is still
   random. If it is near 0 early, the policy has collapsed onto one action.
3. **Do the values follow?** `value/explained_variance` rises towards 1 while there is something to
   learn. If all returns are equal (the task is not begun, or is solved) it stays around 0.
4. **Does the data fit the policy?** Look at `replay/*/kl_behaviour_target` and
   `replay/*/masked_fraction` of each buffer, and then at `vtrace/ess`. Age
   (`replay/*/drawn_age_updates`) does harm only through these. In the queue the cause is
   `lag/mean_updates` or a learning rate that is too high.
5. **Are the updates sound?** Look at `grad/norm_before_clip`. With Adam it is no fault if
   `grad/clipped_fraction` is always 1, because Adam ignores the size of the gradient.
   `learner/bad_updates` counts the updates that were skipped because the loss or the gradient was
   not finite ([troubleshooting.md](troubleshooting.md)).
6. **None of these?** The run may need more steps. With the default flags the return in Pong rises
   above its start after about 100 games, which is 0.1 million agent steps (seeds 1, 2 and 3,
   [results.md](results.md), "Pong, default command").
"""


def health_page() -> str:
    """Return docs/health.md: how to find out why a run does not learn, and the healthy ranges."""
    from ritornello.core.markdown import table
    from ritornello.metrics import health

    introduction = HEALTH_INTRODUCTION.format(
        records=health.PATIENCE_RECORDS,
        updates=health.PATIENCE_UPDATES,
        steps=health.WARM_UP_STEPS,
    )
    rows = []
    for wanted in health.RANGES:
        sides = (("below", wanted.too_low), ("above", wanted.too_high))
        causes = [f"{side}: {cause}." for side, cause in sides if cause]
        text = " ".join(causes).replace("'{buffer}'", "the buffer")
        rows.append((f"`{wanted.metric}`", wanted.healthy, text))
    headings = ("metric", "healthy", "probable cause, and which flag to change")
    return "\n".join([introduction, *table(headings, rows)]) + "\n"


def replay_page() -> str:
    """Return docs/replay.md with the tables of the kinds and of their keys as they are now."""
    from ritornello.core.markdown import table
    from ritornello.replay.keys import OF_RINGS
    from ritornello.replay.registry import KINDS, all_keys, keys_of, sampler_of

    kinds = []
    for name in KINDS:
        sampler = sampler_of(name)
        rest = ("the oldest", "any number of times")
        if sampler.takes_turns:
            rest = ("nothing: the workers wait", "`uses` times, and is then dropped")
        if sampler.consumes:
            rest = ("nothing: the workers wait (see *Liveness*)", "once, as *online* data")
        kinds.append((f"`{name}`", sampler.about, *rest))
    keys = []
    for name in all_keys():
        having = {kind: keys_of(kind)[name] for kind in KINDS if name in keys_of(kind)}
        without = ", ".join(kind for kind in KINDS if kind not in having)
        of = ", ".join(having) if without else "all"
        of = f"all but {without}" if name in OF_RINGS else of
        texts = {kind: key.default_text or _default(key.default) for kind, key in having.items()}
        common = max(texts.values(), key=list(texts.values()).count)
        others = [f"{kind}: {text}" for kind, text in texts.items() if text != common]
        first, *_ = having.values()
        values = ", ".join(KINDS) if name == "type" else first.values
        keys.append((f"`{name}`", of, values, "; ".join([common, *others]), first.meaning))
    text = (DOCS / "replay.md").read_text("utf-8")
    for headings, rows in (
        (("kind", "draws", "drops when full", "an unroll is drawn"), kinds),
        (("key", "for", "values", "default", "meaning"), keys),
    ):
        lines = table(headings, rows)
        start = text.index(lines[0])
        text = text[:start] + "\n".join(lines) + text[text.index("\n\n", start) :]
    return text


def _default(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def pages() -> dict[Path, str]:
    """Return path -> content of every generated page."""
    from ritornello.metrics.__main__ import markdown

    return {
        DOCS / "flags.md": flags_page(),
        DOCS / "health.md": health_page(),
        DOCS / "metrics.md": markdown(),
        DOCS / "replay.md": replay_page(),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content, encoding="utf-8")
