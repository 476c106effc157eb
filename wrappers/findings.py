"""What the checker of environments (wrappers/check.py) has found, a line each."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

import gymnasium

from ritornello.core.errors import PlatformError
from ritornello.core.project import main_command
from ritornello.wrappers.user_code import RAISED, describe


class Stop(Exception):
    """Something is so wrong that nothing else can be looked at."""


@dataclass
class Findings:
    """What was found, in the order in which it was looked for."""

    tell: Callable[[str], None] = lambda line: None  # is called with each line when it is found
    lines: list[str] = field(default_factory=list)
    wrongs: int = 0
    notes: int = 0

    def ok(self, what: str, text: str) -> None:
        """Say that something is as it should be."""
        self._say("ok", what, text)

    def note(self, what: str, text: str) -> None:
        """Say what works, but should be looked at."""
        self.notes += self._say("note", what, text)

    def wrong(self, what: str, text: str) -> None:
        """Say what has to be mended."""
        self.wrongs += self._say("wrong", what, text)

    @contextmanager
    def stopping(self, what: str, doing: str = "") -> Iterator[None]:
        """Stop at whatever the body raises, which is told as an error of the environment."""
        try:
            yield
        except PlatformError as error:
            self._stop(what, str(error).rstrip("."))
        except RAISED as error:
            if isinstance(error, Stop):
                raise
            self._stop(what, f"raises {describe(error)}{doing}")

    @contextmanager
    def closing(self, env: gymnasium.Env) -> Iterator[None]:
        """Close an environment after the body, and say it if that raises."""
        try:
            yield
        finally:
            try:
                env.close()
            except RAISED as error:
                self.wrong("close", f"raises {describe(error)}")

    def verdict(self, env_id: str, kwargs: str = "", backend: str = "auto") -> str:
        """Return the last line, of an environment that `backend` makes with `kwargs`."""
        if self.wrongs:
            return f"{env_id}: {self.wrongs} wrong, {self.notes} to look at"
        looks = f"; {self.notes} to look at" if self.notes else ""
        made_with = f" --env_kwargs={shlex.quote(kwargs)}" if kwargs else ""
        made_with += f" --env_backend={backend}" if backend != "auto" else ""
        return (
            f"{env_id}: nothing is wrong{looks}. Train on it:\n"
            f"  {main_command()} --env={env_id}{made_with}"
        )

    def _stop(self, what: str, text: str) -> NoReturn:
        self.wrong(what, text)
        raise Stop

    def _say(self, level: str, what: str, text: str) -> bool:
        line = f"{level:5}  {what}: {text}"
        if line in self.lines:
            return False  # once is enough
        self.lines.append(line)
        self.tell(line)
        return True
