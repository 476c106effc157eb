"""What a user wishes of a run under way: pause, continue, save, stop, evaluate, change a setting.

    control/<uuid>.json ──look──► Control ──► trainer: pause, save, stop
                                     │     ──► learner: lr_factor, entropy_factor; replay_share
                                     └─ answers ──► run.json, checkpoint, log, state.json

`control/state.json` says that this run takes commands, which of them, whether it is paused, and the
last answers; the live page shows it. Each file is answered once and removed then. One that is no
command changes nothing. What lay there before the session began was meant for an earlier one, and
is refused too. What a command may be is in agent/run/control_file.py.

A reproducible run refuses every command: its numbers follow from its flags alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ritornello.agent.algorithms.base import Algorithm
from ritornello.agent.learners.place import Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.control_file import (
    COMMANDS,
    CONTROL,
    NAME,
    SETTINGS,
    STATE,
    Command,
    content_of,
    read_command,
)
from ritornello.agent.run.experience import Experience
from ritornello.agent.run.no_evaluation import NoEvaluating
from ritornello.agent.run.saving import Saving
from ritornello.agent.run.tally import Tally
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.atomic_file import remove_temporaries, write_json
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.files import disk
from ritornello.core.plain_data import shown_text
from ritornello.core.process_death import start_of

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
        self,
        folder: Path,
        *,
        reproducible: bool = False,
        settings: Mapping[str, Apply] | None = None,
        own: Mapping[str, float] | None = None,
        save: Callable[[], str] | None = None,
        evaluate: Callable[[], str] | None = None,
        note: Callable[[dict[str, Any]], None] | None = None,
        counters: Callable[[], dict[str, Any]] = dict,
        allowed: Collection[str] = tuple(COMMANDS),
        listens: bool = True,
    ) -> None:
        """Refuse what lies in the folder from before.

        Args:
          folder: folder of the run.
          reproducible: whether every command is refused.
          settings: what can be changed: a function for each name, which takes its new value.
          own: the values of settings as the flags give them, 1 where none is named: of factors.
          save: saves a checkpoint and says what it did; None: nothing can be saved.
          evaluate: asks for test games and says what it did; None: nobody plays any.
          note: writes an answer down for good.
          counters: how far the run is, for the answers.
          allowed: commands that this run takes.
          listens: False: another process answers the files, and this one only keeps settings.
        """
        self._folder = folder / CONTROL
        self._reproducible = reproducible
        self._apply = dict(settings or {})
        self._save = save
        self._evaluate = evaluate
        self._note = note
        self._counters = counters
        self._allowed = allowed
        self._listens = listens
        self._own = {name: (own or {}).get(name, 1.0) for name in self._apply}
        self._settings = dict(self._own)
        self._answers: list[dict[str, Any]] = []
        self._answered: set[str] = set()  # files that could not be taken away
        self._looked_at_s = -LOOK_S
        self._never = threading.Event()
        self.is_paused = False
        self.stop_asked = False
        self._says = True  # whether the last state could be written
        self._is_open = False
        if listens and not self._folder.is_symlink():
            with contextlib.suppress(OSError):
                remove_temporaries(self._folder)  # of a session that was killed
        for name in self._names():
            self._refuse(name, "it was written before this session began")

    # --- the trainer's side ----------------------------------------------------------------------

    def open(self) -> None:
        """Say that commands are taken from now on."""
        if self._listens and not self._reproducible:
            self._is_open = True
            self._say()

    def close(self) -> None:
        """Say that no command is taken any more."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(OSError):
                disk().unlink(self._folder / STATE)

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

    def status(self) -> dict[str, Any]:
        """Return what is shown: the settings, and the last answers."""
        return {"settings": dict(self._settings), "acknowledged": list(self._answers)}

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds: settings that were changed, as part of what follows."""
        changed = {n: value for n, value in self._settings.items() if value != self._own[n]}
        return {"settings": changed} if changed else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the settings of a checkpoint, where they can be honoured.

        Args:
          state: of `state_dict`; it may be of another version, or damaged.
        """
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
        """Return the names of control files, sorted; of a folder that is none, nothing."""
        if not self._listens or self._folder.is_symlink():
            return []
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return sorted(name for name in names if NAME.fullmatch(name) and name not in self._answered)

    def _answer_file(self, name: str) -> None:
        try:
            content = content_of(self._folder / name)
            command = read_command(name.removesuffix(".json"), content)
        except (ConfigError, OSError) as error:
            self._refuse(name, shown_text(str(error)))
            return
        # It is taken away first: a command that ends the process must not meet the next one.
        self._take_away(name)
        result = self._obey(command)
        log.info("%s, asked for by a control file: %s", _words(command), result)
        answer = {
            "id": command.id,
            "command": command.name,
            "values": dict(command.values),
            "result": result,
            "time": time.time(),
            **self._counters(),
        }
        self._answers = [*self._answers, answer][-MAX_ANSWERS:]
        self._say()
        if self._note is not None:
            self._note(answer)

    def _refuse(self, name: str, why: str) -> None:
        log.warning("a control file is refused: %s", why)
        self._take_away(name)

    def _take_away(self, name: str) -> None:
        try:
            disk().unlink(self._folder / name)
        except OSError:
            self._answered.add(name)  # it is passed over from now on

    def _say(self) -> None:
        """Write control/state.json; a full disk keeps nobody from training."""
        if not self._is_open or self._folder.is_symlink():
            return
        state = {
            "format": 1,
            "pid": os.getpid(),
            "pid_start": start_of(os.getpid()),
            "paused": self.is_paused,
            "commands": self._possible(),
            **self.status(),
        }
        try:
            self._folder.mkdir(exist_ok=True)
            write_json(self._folder / STATE, state)
        except OSError as error:
            if self._says:
                log.warning("%s cannot be written: %s", self._folder / STATE, error.strerror)
            self._says = False
        else:
            self._says = True

    def _possible(self) -> list[str]:
        if self._reproducible:
            return []
        missing = {
            "save": self._save is None,
            "evaluate": self._evaluate is None,
            "set": not self._apply,
        }
        return [name for name in COMMANDS if name in self._allowed and not missing.get(name)]

    # --- commands --------------------------------------------------------------------------------

    def _obey(self, command: Command) -> str:
        """Do what a command says; return what became of it, in words that begin with done."""
        if self._reproducible:
            return f"refused: {NO_CHANGE}"
        if command.name not in self._allowed:
            return f"refused: this run takes only {', '.join(self._allowed)}"
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
        return self._ask(self._save if command.name == "save" else self._evaluate, command.name)

    def _ask(self, wish: Callable[[], str] | None, name: str) -> str:
        if wish is None:
            return f"refused: this run cannot {name}"
        try:
            return wish()
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


def _words(command: Command) -> str:
    values = ", ".join(f"{name}={value:g}" for name, value in command.values.items())
    return f"{command.name} {values}".strip()


# --- what a session steers ------------------------------------------------------------------------


def control_of(
    folder: RunFolder,
    learner: Learner,
    saving: Saving,
    tally: Tally,
    evaluating: NoEvaluating,
    experience: Experience,
    *,
    reproducible: bool,
    checkpoint: Checkpoint | None,
    place: Place,
) -> Control:
    """Return the control of a session, with the settings of the checkpoint it goes on from.

    Args:
      folder: folder of the run.
      learner: whose learning rate and entropy can be changed.
      saving: saves when asked, and puts the settings into every checkpoint.
      tally: how far the run is.
      evaluating: plays test games when asked, if this run plays any.
      experience: whose share of replay can be changed, if it has a queue and another buffer. It
        has the state of the checkpoint already.
      reproducible: whether every command is refused.
      checkpoint: from which the run continues; None: it begins.
      place: which learner this is; the first of several alone listens, and to few commands.
    """
    settings: dict[str, Apply] = {"lr_factor": learner.scale_lr}
    entropy = _entropy(learner.algorithm)
    if entropy is not None:
        settings["entropy_factor"] = entropy
    own = {}
    replay = experience.replay
    if replay.own_share is not None:
        own["replay_share"] = float(replay.own_share)
        # As a fraction of small numbers, in which quotas are exact.
        settings["replay_share"] = lambda share: replay.set_replay_share(
            Fraction(share).limit_denominator(FINEST_SHARE)
        )
    control = Control(
        folder.path,
        reproducible=reproducible,
        settings=settings,
        own=own,
        save=saving.now,
        evaluate=evaluating.request if evaluating.is_on else None,
        note=_noting(folder),
        listens=place.speaks,
        allowed=COMMANDS if place.world_size == 1 else OF_SEVERAL,
        counters=lambda: {"agent_steps": tally.agent_steps, "updates": tally.updates},
    )
    if checkpoint is not None:
        control.load_state_dict(checkpoint.state.get("control") or {})
    saving.more_state["control"] = control.state_dict
    return control


def _entropy(algorithm: Algorithm) -> Apply | None:
    """Return what scales the entropy costs of an algorithm; None if it has none."""
    config: Any = algorithm.config
    names = ("entropy_cost", "entropy_end_cost")
    costs = {name: getattr(config, name, None) for name in names}
    known = {name: cost for name, cost in costs.items() if isinstance(cost, (int, float))}
    if "entropy_cost" not in known:
        return None

    def apply(factor: float) -> None:
        # A frozen dataclass, as `Algorithm` says.
        algorithm.config = replace(config, **{name: cost * factor for name, cost in known.items()})

    return apply


def _noting(folder: RunFolder) -> Callable[[dict[str, Any]], None]:
    def note(answer: dict[str, Any]) -> None:
        try:
            folder.note(answer)
        except (OSError, ValueError) as error:
            log.warning("the command is not noted in run.json: %s", error)

    return note
