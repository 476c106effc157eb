"""How long a test waits until it takes something for hanging."""

import time

# Minutes, because a test must pass on a machine on which other programs run: what takes seconds
# alone takes a minute there. It is less than `timeout` in pyproject.toml, so that the test itself
# can say what it was waiting for.
HANGS_S = 560.0


def wait_until(condition, what="it never came", process=None):
    """Return what `condition()` returns once that is true; `process`: one that must live on."""
    deadline = time.monotonic() + HANGS_S
    while not (result := condition()):
        assert time.monotonic() < deadline, what
        assert process is None or process.poll() is None, "the run has ended"
        time.sleep(0.05)
    return result
