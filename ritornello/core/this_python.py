"""Whether this interpreter can run the program, asked before anything of it is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec

OLDEST = (3, 10)
NEEDED = ("numpy", "torch", "gymnasium", "ale_py", "cv2", "pydantic", "rich", "psutil", "yaml")
STATUS = 2  # the command cannot be honoured


def check_python() -> None:
    """Exit with a sentence in place of a traceback if Python or the packages are the wrong ones.

    Runs on old versions of Python as well.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    version = sys.version_info
    if version < OLDEST:
        what = f"is {version[0]}.{version[1]}, expected {OLDEST[0]}.{OLDEST[1]} or newer"
    elif missing:
        what = f"has no {', '.join(missing)}"
    else:
        return
    sys.stderr.write(
        f"error: this Python ({sys.executable}) {what}. In a clone, `make setup` makes one that "
        "fits: start the program with .venv/bin/python, or type `source .venv/bin/activate` "
        "first.\n"
    )
    raise SystemExit(STATUS)
