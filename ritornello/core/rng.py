"""One root seed, many independent named streams.

The program never uses the global generators of NumPy, Python and torch for what matters: each
consumer asks for its own child stream by name, so adding a consumer does not change the others.
"""

from __future__ import annotations

import hashlib


def child_seed(root_seed: int, *path: str | int) -> int:
    """Return a 63-bit seed for the stream named by `path`, e.g. ("worker", 3, "env", 1).

    Equal arguments give equal seeds on every machine and Python version; different paths give
    statistically independent streams (the name is hashed, not added, so that worker 1 / env 2
    and worker 2 / env 1 never share a stream).
    """
    text = "/".join([str(int(root_seed)), *[f"{type(part).__name__}:{part}" for part in path]])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
