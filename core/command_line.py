"""Options of the programs that read their own command line (main.py's flags: flag_parsing.py)."""

from __future__ import annotations

import argparse


def add_switch(
    parser: argparse.ArgumentParser, name: str, about: str, default: bool = False
) -> None:
    """Add an option that is True or False; its name alone means True.

    Args:
      parser: parser to which it is added.
      name: name of the option with its dashes, such as "--list".
      about: help text of the option.
      default: its value where it is not given.
    """
    parser.add_argument(
        name,
        type=_true_or_false,
        nargs="?",
        const=True,
        default=default,
        metavar="True|False",
        help=f"{about} (default: %(default)s)",
    )


def _true_or_false(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return text.lower() == "true"
