"""An agent's place in a population: its number, its folder there, and whether it may take it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ritornello.agent.sharing.terms import Terms, UnreadTerms, unfit
from ritornello.core.errors import ConfigError
from ritornello.core.file_lock import FileLock
from ritornello.core.plain_data import shown_text

LOCK, TERMS_LOCK = "lock", "terms.lock"
LOCK_WAIT_S = 2.0  # another agent may just be asking whether this one runs


@dataclass(frozen=True)
class Membership:
    """Which agent of which population this is."""

    folder: Path  # of the population
    number: int
    count: int
    foreign_share: float | None = None  # of what goes into replay; None: as many of each agent

    @property
    def share(self) -> float:
        """The wanted share of foreign unrolls, below 1."""
        return 1 - 1 / self.count if self.foreign_share is None else self.foreign_share

    @property
    def others(self) -> list[int]:
        """The numbers of the other agents."""
        return [number for number in range(self.count) if number != self.number]

    def folder_of(self, number: int) -> Path:
        """Return the folder of an agent."""
        return self.folder / agent_name(number)


def agent_name(number: int) -> str:
    """Return the name of an agent in folders and metrics."""
    return f"agent_{number}"


def check_place(membership: Membership, terms: Terms) -> None:
    """Check before a run begins that this agent can be in its population. Makes nothing.

    Raises:
      ConfigError: if another process is this agent, agents that run have other terms, or a folder
        is closed to this user.
    """
    folder = membership.folder
    if not _is_there(folder) and folder.exists() and not folder.is_dir():
        raise ConfigError(f"--share_replay_in={folder} is no folder.")
    own = membership.folder_of(membership.number)
    lock = FileLock(own / LOCK)
    if _is_there(own) and lock.is_held(LOCK_WAIT_S):
        raise ConfigError(taken_message(membership, lock))
    for number in membership.others:
        problem = _obstacle(terms, membership.folder_of(number))
        if problem:
            raise ConfigError(
                f"{agent_name(number)} in --share_replay_in={folder} runs, and nothing can be "
                f"learned from its unrolls: {problem}. Give both the same environment and "
                "--r_f_steps, or each a folder of its own."
            )


def _obstacle(terms: Terms, folder: Path) -> str:
    """Return why nothing can be learned from an agent that runs; "" of one that does not."""
    if not _is_there(folder) or not FileLock(folder / TERMS_LOCK).is_held():
        return ""
    try:
        return unfit(terms, folder)
    except UnreadTerms as error:
        return str(error)


def _is_there(folder: Path) -> bool:
    """Whether there is such a folder.

    Raises:
      ConfigError: if this user cannot look into it.
    """
    try:
        os.scandir(folder).close()
        os.stat(os.path.join(folder, os.curdir))  # its names may be readable, and nothing behind
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(
            f"cannot look into {shown_text(str(folder))}: {error.strerror}{_owner(folder)}. "
            "Expected a folder that this program may read, because agents read what the others "
            "play: run all agents of a population as one user, or give --share_replay_in another "
            "folder."
        ) from error
    return True


def _owner(folder: Path) -> str:
    try:
        status = folder.stat()
    except OSError:
        return ""
    return f" (it belongs to user {status.st_uid}, with mode {status.st_mode & 0o777:04o})"


def taken_message(membership: Membership, lock: FileLock) -> str:
    """Return that another process, which holds the lock, is this agent already."""
    return (
        f"agent {membership.number} in {membership.folder} runs already ({lock.holder()}): give "
        "each agent a number of its own (--agent_number)."
    )
