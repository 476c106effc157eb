"""Whether a cluster lets in those who have no token.

A client that has a token is not told: a cluster that asks for none takes no notice of it. So a
process of its own, which has none, asks the head for something. It is Ray's client and knows
nothing of this program.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys

log = logging.getLogger(__name__)

ASK_S = 120.0  # loading Ray takes two seconds, and a minute on a busy machine
OF_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
QUESTION = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, 20)
"""


def lets_in_without_token(address: str) -> bool:
    """Whether the head of a cluster answers somebody without a token.

    Args:
      address: of the head, as host:port; somebody is there.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_TOKENS}
    environment["RAY_AUTH_MODE"] = "disabled"
    try:
        done = subprocess.run(
            [sys.executable, "-c", QUESTION, address],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        log.warning(
            "whether the Ray cluster at %s asks for a token could not be found out within %.0f s",
            address, ASK_S,
        )  # fmt: skip
        return False
    return done.returncode == 0
