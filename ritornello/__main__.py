"""The command `ritornello`, by which an installed package is used.

    ritornello train --env=CartPole-v1         python main.py --op_mode=train ...
    ritornello resume <run>                    python main.py --resume=<run> ...
    ritornello test <run>                      python main.py --test=<run> ...
    ritornello sequence <name or file>         python multi_train.py --sequence=...
    ritornello compare --runs=...              python -m ritornello.analysis compare ...
    ritornello live [folder]                   python -m ritornello.live ...
    ritornello check <environment>             python -m ritornello.wrappers.check ...

Without one of these words its arguments are those of main.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ritornello.core.nearest_names import did_you_mean
from ritornello.core.plain_data import shown

MODES = {"train": "train", "resume": "train_w_load", "test": "test"}
MODULES = {
    "sequence": "ritornello.multi_train",
    "multi_train": "ritornello.multi_train",  # as the file is called
    "compare": "ritornello.analysis",
    "analysis": "ritornello.analysis",
    "live": "ritornello.live",
    "check": "ritornello.wrappers.check",
}


def command_of(arguments: Sequence[str]) -> list[str]:
    """Return module and arguments of the program that a command line of `ritornello` means."""
    word, *rest = arguments or ["--help"]
    if word in ("resume", "test") and (not rest or rest[0][:1] != "-"):
        return ["ritornello.main", f"--{word}={rest.pop(0) if rest else ''}", *rest]
    if word in MODES:
        named = [f"--load_model_url={rest.pop(0)}"] if rest and rest[0][:1] != "-" else []
        return ["ritornello.main", f"--op_mode={MODES[word]}", *named, *rest]
    if word in ("sequence", "multi_train") and rest and rest[0][:1] != "-":
        rest[0] = f"--sequence={rest[0]}"
    if word == "compare":
        rest.insert(0, word)
    if word in MODULES:
        return [MODULES[word], *rest]
    return ["ritornello.main", *arguments]


def main() -> None:
    """Replace this process by the program, so that signals and the exit status are its own."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(__doc__, flush=True)  # before another program takes over
        if not arguments or arguments == ["help"]:
            return
    word = arguments[0] if arguments else ""
    if word[:1] != "-" and word not in (*MODES, *MODULES):
        hint = did_you_mean(word, (*MODES, *MODULES))
        known = hint or f"expected {', '.join((*MODES, *MODULES))}"
        print(f"error: there is no command {shown(word)}; {known}", file=sys.stderr)
        sys.exit(2)
    module, *rest = command_of(arguments)
    os.execv(sys.executable, [sys.executable, "-m", module, *rest])


if __name__ == "__main__":
    main()
