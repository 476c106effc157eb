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

from ritornello.core.plain_data import shown_text

log = logging.getLogger(__name__)

ASK_S = 120.0  # loading Ray takes two seconds, and a minute on a busy machine
OF_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
REFUSAL = "AuthenticationError"  # of Ray 2.60, which names it in the last line
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
        _warn(address, f"no answer within {ASK_S:.0f} s")
        return False
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"status {done.returncode}"
        if REFUSAL not in last:  # anything else says nothing about tokens
            _warn(address, shown_text(last, 300))
    return done.returncode == 0


def _warn(address: str, why: str) -> None:
    log.warning(
        "whether the Ray cluster at %s asks for a token could not be found out (%s): make sure "
        "that it does, since whoever reaches an open one can run anything there", address, why,
    )  # fmt: skip
