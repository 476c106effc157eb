"""`Place`: rank and world size of this learner, and the address of the others.

`--learner_count=N` starts N processes with the environment variables of `torchrun`, so that there
is one way in for both. The variables are taken out of the environment: no child mistakes them for
its own. This file imports nothing that is large, because main.py asks it first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from ritornello.core.errors import ConfigError

LOOPBACK = "127.0.0.1"  # where learners of one machine meet
# Set by `torchrun` and by agent/run/launcher.py.
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MAX_PORT = 65_535
NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
# Of `torchrun` alone: whether it serves the store, and which start of the group this is.
AGENT_STORE, RESTART = "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"
# Of the launcher alone: the descriptor of the socket at which learner 0 serves the store.
SOCKET = "VTRACE_LEARNERS_SOCKET"
FLAG = "learner_count"
MAX_DIGITS = 9  # of a count on the command line


@dataclass(frozen=True)
class Place:
    """One learner among others. The default is one learner, alone."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # among the learners of this machine
    local_world_size: int = 1  # learners of this machine
    address: str = ""  # address of the store
    port: int = 0
    socket: int | None = None  # descriptor of the socket of the store, in learner 0
    is_served: bool = False  # somebody else serves the store
    generation: str = "0"  # learners of one start meet each other only
    is_launched: bool = False  # started by this program, not by `torchrun`

    @property
    def is_local(self) -> bool:
        """Whether all learners are on this machine."""
        return self.local_world_size == self.world_size

    @property
    def speaks(self) -> bool:
        """Whether this learner writes to the terminal and into the run folder."""
        return self.rank == 0

    def inherits(self, lost: Collection[int]) -> bool:
        """Whether this learner saves in the place of learner 0, if that and others are lost.

        All learners hold the same weights, and on one machine they see the same run folder. Each
        that is left tries, because with learner 0 the store is gone that tells who else is lost;
        the lock of the folder decides.
        """
        return self.is_local and 0 in lost and self.rank not in lost

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Place:
        """Return the place that the environment variables give, and remove them.

        Raises:
          ConfigError: if they make no sense.
        """
        given = {
            name: environment.pop(name)
            for name in (*NEEDED, "LOCAL_RANK", "LOCAL_WORLD_SIZE", AGENT_STORE, RESTART, SOCKET)
            if name in environment
        }
        if not all(name in given for name in NEEDED):
            return cls()
        numbers = {name: _number(given, name) for name in NUMBERS if name in given}
        rank, size = numbers["RANK"], numbers["WORLD_SIZE"]
        if size == 1:
            return cls()
        local_rank = numbers.get("LOCAL_RANK", rank)
        local_size = numbers.get("LOCAL_WORLD_SIZE", size)
        if not (rank < size and local_rank < local_size <= size):
            raise ConfigError(
                f"RANK={rank} of WORLD_SIZE={size}, LOCAL_RANK={local_rank} of "
                f"LOCAL_WORLD_SIZE={local_size}: expected each rank below its size. These "
                "environment variables say which of several learners this is; torchrun sets them, "
                "and for one learner they have to be unset."
            )
        if not 0 < numbers["MASTER_PORT"] <= MAX_PORT:
            raise ConfigError(
                f"MASTER_PORT={numbers['MASTER_PORT']}: expected the port of learner 0, from 1 to "
                f"{MAX_PORT}. torchrun sets it, and for one learner it has to be unset."
            )
        return cls(
            rank,
            size,
            local_rank,
            local_size,
            given["MASTER_ADDR"],
            numbers["MASTER_PORT"],
            _number(given, SOCKET) if SOCKET in given and rank == 0 else None,
            given.get(AGENT_STORE) == "True",
            given.get(RESTART, "0"),
            SOCKET in given,
        )


def _number(given: Mapping[str, str], name: str) -> int:
    text = given[name]
    if not text.isdecimal():
        raise ConfigError(
            f"the environment variable {name} is {text[:50]!r}, expected a number: torchrun sets "
            "it, and for one learner it has to be unset."
        )
    return int(text)


ALONE_HERE = Place()


def learners_wanted(argv: Sequence[str]) -> int:
    """Return how many learners a command line asks for; 1 if it is not a number above 1.

    It is 1 for a test, and where only a help text or the version is asked for. An invalid value is
    reported later, by the check of all flags.
    """
    is_asked = any(FLAG in item.replace("-", "_") for item in argv)
    if not is_asked or any(item.startswith(("-h", "--help", "--version")) for item in argv):
        return 1
    from ritornello.flags.names import named_values

    try:
        values = named_values(argv)
    except ConfigError:
        return 1
    wanted = values.get(FLAG, "")
    is_count = wanted.isdecimal() and len(wanted) <= MAX_DIGITS
    return max(1, int(wanted)) if is_count and values.get("op_mode", "train") != "test" else 1
