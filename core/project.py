"""Where this copy of the program lies."""

from __future__ import annotations

from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[1]
MAIN_PROGRAM = PROJECT_ROOT / "main.py"
