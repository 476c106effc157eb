"""How long a test waits until it takes something for hanging."""

# Minutes, because a test must pass on a machine on which other programs run: what takes seconds
# alone takes a minute there. It is less than `timeout` in pyproject.toml, so that the test itself
# can say what it was waiting for.
HANGS_S = 560.0
