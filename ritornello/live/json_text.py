"""What the page is told, as JSON that every browser reads, whatever the files of a run hold.

Python reads and writes more than JSON has: NaN, infinities, and halves of characters, which also
stand for the bytes of a file name that is no UTF-8. None of it may cost the page the other runs.
"""

from __future__ import annotations

import json
from typing import Any


def json_text(data: dict[str, Any]) -> str:
    """Return plain data as JSON in ASCII; null stands for a number that is not finite."""
    return json.dumps(_without_nan(data), allow_nan=False, separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    is_odd = isinstance(value, float) and (value != value or value in (float("inf"), -float("inf")))
    return None if is_odd else value
