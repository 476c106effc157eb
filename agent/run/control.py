"""What a user wishes of a run under way: pause, continue, save, stop, evaluate, change a setting.

    control/<uuid>.json ──look──► Control ──► trainer: pause, save, stop
                                     │     ──► learner: lr_factor, entropy_factor; replay_share
                                     └─ answers ──► run.json, checkpoint, log, status.json

status.json says which commands this run takes, its settings, and the last answers; the live page
shows it. Each file is answered once and then removed. A file that is no command changes nothing.
Files from before the session were meant for an earlier one, and are refused too. The possible
commands are in agent/run/control_file.py.

A reproducible run refuses every command: its numbers follow from its flags alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ritornello.agent.algorithms.base import Algorithm
from ritornello.agent.run.control_file import (
    COMMANDS,
    CONTROL,
    MAX_BYTES,
    NAME,
    SETTINGS,
    Command,
    read_command,
)
from ritornello.agent.run.run import Run
from ritornello.core.atomic_file import remove_temporaries
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.files import disk
from ritornello.core.plain_data import read_text, shown_text

LOOK_S = 1.0  # between two looks into the folder
REST_S = 0.2  # of a pause, between two looks of the trainer at everything else
MAX_FILES = 64  # that are answered at one look; the others wait for the next
MAX_ANSWERS = 50  # that are shown
# Several learners do the same in each turn. A wish to stop they tell each other, and one of them
# saves; a pause or another learning rate would be that of one learner.
OF_SEVERAL = ("save", "stop")
FINEST_SHARE = 1000  # a share of replay is a multiple of one over some number up to this
NO_CHANGE = "a reproducible run takes no command: its numbers follow from its flags alone"

log = logging.getLogger(__name__)

Apply = Callable[[float], None]


class Control:
    """Answers the control files of one session. Belongs to the main thread."""

    def __init__(
        self, run: Run, save: Callable[[], str], evaluate: Callable[[], str] | None
    ) -> None:
        """Refuse the files that lie in the folder already; restore the settings of the checkpoint.

        `save` saves a checkpoint, `evaluate` asks for test games, and both return what they did.
        `evaluate` is None if nothing plays games.
        """
        self._run = run
        self._folder = run.folder.path / CONTROL
        self._asked = {"save": save} | ({} if evaluate is None else {"evaluate": evaluate})
        self._apply = _settings_of(run)
        share = run.experience.replay.own_share
        # The values that the flags give, 1 of factors.
        self._own = {
            name: float(share) if name == "replay_share" and share is not None else 1.0
            for name in self._apply
        }
        self._settings = dict(self._own)
        self._commands = self._possible()
        self._listens = run.blueprint.place.speaks  # else another learner answers the files
        self._answers: list[dict[str, Any]] = []
        self._answered: set[str] = set()  # files that could not be taken away
        self._looked_at_s = -LOOK_S
        self._never = threading.Event()
        self.is_paused = False
        self.stop_asked = False
        with contextlib.suppress(OSError):
            if self._listens and not self._folder.is_symlink():
                remove_temporaries(self._folder)  # of a session that was killed
        for name in self._names():
            self._refuse(name, "it was written before this session began")
        self._load_state_dict(run.saved("control"))
        run.more_state["control"] = self.state_dict

    def _possible(self) -> list[str]:
        if self._run.flags.reproducible:
            return []
        several = self._run.blueprint.place.world_size > 1
        allowed = OF_SEVERAL if several else COMMANDS
        return [name for name in allowed if name != "evaluate" or name in self._asked]

    # --- the trainer's side ----------------------------------------------------------------------

    def tell(self) -> None:
        """Write to status.json which commands are accepted, and how the last ones ended."""
        self._run.status.show(
            {
                "control": {
                    "commands": self._commands,
                    "settings": dict(self._settings),
                    "acknowledged": self._answers,
                }
            }
        )

    def close(self) -> None:
        """Write to status.json that no command is accepted any more."""
        self._run.status.show({"control": None})

    def look(self) -> None:
        """Answer the files that have come. Called often; it looks once a second."""
        now = time.monotonic()
        if now - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = now
        for name in self._names()[:MAX_FILES]:
            self._answer_file(name)

    def rest(self) -> float:
        """Wait for a moment of a pause; return how long that was, in seconds."""
        began = time.monotonic()
        self._never.wait(REST_S)
        self.look()
        return time.monotonic() - began

    def state_dict(self) -> dict[str, Any]:
        """Return the settings that were changed, for a checkpoint."""
        changed = {n: value for n, value in self._settings.items() if value != self._own[n]}
        return {"settings": changed} if changed else {}

    def _load_state_dict(self, state: Any) -> None:
        """Go on with the settings of a checkpoint, which may be of another version, or damaged."""
        saved = state.get("settings") if isinstance(state, Mapping) else None
        for name, value in saved.items() if isinstance(saved, Mapping) else ():
            setting = SETTINGS.get(name)
            if setting is None or not setting.allows(value):
                log.warning(
                    "%s of the checkpoint is no setting of this version", shown_text(str(name))
                )
            elif name in self._apply and value != self._own[name]:
                self._set(name, float(value))
                log.info("%s is %g, as it was set while the run was going on", name, value)

    # --- files -----------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Return the names of control files, oldest first; none if the folder cannot be read."""
        try:
            if not self._listens or self._folder.is_symlink():
                return []
            with os.scandir(self._folder) as entries:
                found = [
                    (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                    for entry in entries
                    if NAME.fullmatch(entry.name) and entry.name not in self._answered
                ]
        except OSError:
            return []
        return [name for _, name in sorted(found)]

    def _answer_file(self, name: str) -> None:
        try:
            path = self._folder / name
            if path.is_symlink():
                raise ConfigError(f"the control file {name} is a link.")
            content = read_text(path, "the control file", MAX_BYTES)
            command = read_command(path.stem, content)
        except (ConfigError, OSError) as error:
            self._refuse(name, shown_text(str(error)))
            return
        # It is taken away first: a command that ends the process must not meet the next one.
        self._take_away(name)
        result = self._obey(command)
        log.info("%s, asked for by a control file: %s", command, result)
        answer = {
            "id": command.id,
            "command": command.name,
            "values": dict(command.values),
            "result": result,
            "time": time.time(),
            "agent_steps": self._run.tally.agent_steps,
            "updates": self._run.tally.updates,
        }
        self._answers = [*self._answers, answer][-MAX_ANSWERS:]
        self.tell()
        try:
            self._run.folder.note(answer)
        except (OSError, ValueError) as error:
            log.warning("the command is not noted in run.json: %s", error)

    def _refuse(self, name: str, why: str) -> None:
        log.warning("a control file is refused: %s", why)
        self._take_away(name)

    def _take_away(self, name: str) -> None:
        try:
            disk().unlink(self._folder / name)
        except OSError:
            self._answered.add(name)  # it is passed over from now on

    # --- commands --------------------------------------------------------------------------------

    def _obey(self, command: Command) -> str:
        """Do what a command says; return its outcome in words."""
        if command.name not in self._commands:
            why = f"this run takes only {', '.join(self._commands)}"
            return f"refused: {why if self._commands else NO_CHANGE}"
        if command.name == "set":
            return self._set_all(command.values)
        if command.name == "pause":
            self.is_paused = True
            return "done: paused; the clocks of the run stand still until it continues"
        if command.name == "continue":
            was_paused, self.is_paused = self.is_paused, False
            return "done: learning goes on" if was_paused else "done: the run was not paused"
        if command.name == "stop":
            self.stop_asked = True
            return "done: the run saves and ends"
        try:
            return self._asked[command.name]()
        except PlatformError as error:  # such as a full disk: training goes on
            return f"failed: {shown_text(str(error))}"

    def _set_all(self, values: Mapping[str, float]) -> str:
        unknown = [name for name in values if name not in self._apply]
        if unknown:
            return f"refused: {', '.join(unknown)} cannot be changed in this run"
        for name, value in values.items():
            self._set(name, value)
        return "done: " + ", ".join(f"{name} is {value:g}" for name, value in values.items())

    def _set(self, name: str, value: float) -> None:
        self._apply[name](value)
        self._settings[name] = value


def _settings_of(run: Run) -> dict[str, Apply]:
    """Return the settings that can be changed: name -> function that sets the value."""
    settings: dict[str, Apply] = {"lr_factor": run.learner.scale_lr}
    entropy = _entropy(run.learner.algorithm)
    if entropy is not None:
        settings["entropy_factor"] = entropy
    replay = run.experience.replay
    if replay.own_share is not None:  # a queue and another buffer, none circular
        # As a fraction of small numbers, in which quotas are exact.
        settings["replay_share"] = lambda share: replay.set_replay_share(
            Fraction(share).limit_denominator(FINEST_SHARE)
        )
    return settings


def _entropy(algorithm: Algorithm) -> Apply | None:
    """Return a function that scales the entropy costs of an algorithm; None if it has none."""
    config: Any = algorithm.config
    costs = {name: getattr(config, name, None) for name in ("entropy_cost", "entropy_end_cost")}
    known = {name: cost for name, cost in costs.items() if isinstance(cost, (int, float))}
    if "entropy_cost" not in known:
        return None

    def apply(factor: float) -> None:
        # A frozen dataclass, as `Algorithm` says.
        algorithm.config = replace(config, **{name: cost * factor for name, cost in known.items()})

    return apply
