"""The flags of main.py. `flags/options.py` puts them together from the groups in `flags/`."""

from ritornello.flags.options import Flags

__all__ = ["Flags"]
