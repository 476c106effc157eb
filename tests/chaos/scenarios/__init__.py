"""The faults, by kind. Importing a module enters its faults into the catalogue."""

from __future__ import annotations

import importlib

MODULES = (
    "signals", "deaths", "sequences", "terminals", "resources", "damage", "hostile",
    "environments", "together", "points",
)  # fmt: skip


def load() -> None:
    """Fill the catalogue."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
