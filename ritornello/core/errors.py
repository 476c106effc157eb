"""The errors that a user or another part of the program may want to tell apart.

Each message says what was expected, what was got, where it came from and what to do.
"""


class PlatformError(Exception):
    """Base of every error raised on purpose by this project."""


class ConfigError(PlatformError):
    """The flags cannot be honoured. Raised before any process or folder is made."""


class RunIsDone(ConfigError):
    """The run that is to be resumed has made all of its steps."""


class EnvironmentFault(PlatformError):
    """An environment raised an exception, or broke its spaces or Gymnasium's rules."""


class ShapeError(PlatformError, ValueError):
    """An array has another shape or dtype than its schema says."""


class TransportError(PlatformError):
    """Shared memory could not be allocated, or a peer broke the slot protocol."""


class WorkerDied(PlatformError):
    """A worker process ended and may not be restarted any more."""


class CheckpointError(PlatformError):
    """A checkpoint is missing, damaged, or belongs to another model."""


class Closed(PlatformError):
    """The object was closed while somebody waited on it."""


def of_the_system(error: Exception) -> Exception:
    """Return what to tell in the place of Python's error about a thread that cannot be started."""
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return PlatformError(
            "the system starts no more threads; let fewer processes run (--worker_count), or raise "
            "its limits (ulimit -u; of a container, its number of pids)"
        )
    return error


def first_line(error: BaseException, limit: int = 300) -> str:
    """Return the first line of an error's message, for a terminal; its type if that is empty."""
    lines = (line.strip() for line in str(error).splitlines())
    line = next((line for line in lines if line), type(error).__name__)
    return "".join(c for c in line if c.isprintable())[:limit].rstrip(".")
