"""The sinks of metrics/trackers.py under the names that `--sink` takes."""

from __future__ import annotations

from ritornello.flags.parts import SINKS
from ritornello.metrics.trackers import TRACKERS

for _name, _make in TRACKERS.items():
    SINKS.add(_name, _make, __name__)
