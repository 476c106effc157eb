"""Bytes and microseconds per unroll of the ways to keep an unroll without loss.

    python benchmarks/replay_codecs.py --env=PongNoFrameskip-v4

Plays real games with the actions of a network that has learned nothing, and encodes and decodes
those unrolls again and again, in processor time of one core. LZ4 at its levels is what the program
can use (--lz4_compression_level); zlib is what it is compared with. Prints one line of JSON for
each, with the best of some rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.first_games import played  # noqa: E402
from ritornello.agent.assembly import Blueprint  # noqa: E402
from ritornello.core.unroll import Record  # noqa: E402
from ritornello.flags.options import Flags  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.replay.codec import Lz4, Payload, Plain  # noqa: E402

ROUNDS = 5
LZ4_LEVELS = (0, 3, 9)
ZLIB_LEVELS = (1, 6)

Encode = Callable[[Record], Payload]
Decode = Callable[[Payload], Record]


def codecs() -> dict[str, tuple[Encode, Decode]]:
    """Return name -> (encode, decode)."""
    plain = Plain()
    found: dict[str, tuple[Encode, Decode]] = {"none": (plain.encode, plain.decode)}
    for level in LZ4_LEVELS:
        codec = Lz4(level)
        found[f"lz4 level {level}"] = (codec.encode, codec.decode)
    for level in ZLIB_LEVELS:
        found[f"zlib level {level}"] = (
            lambda record, level=level: np.frombuffer(zlib.compress(record, level), np.uint8),
            lambda payload: np.frombuffer(zlib.decompress(payload), np.uint8),
        )
    return found


def measure(records: list[Record], encode: Encode, decode: Decode) -> dict[str, float]:
    """Return bytes and microseconds of processor time per unroll, the best of ROUNDS."""
    encode_s, decode_s = [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        payloads = [encode(record) for record in records]
        between = time.process_time()
        for payload in payloads:
            decode(payload)
        ended = time.process_time()
        encode_s.append(between - began)
        decode_s.append(ended - between)
    for record, payload in zip(records, payloads, strict=True):
        assert decode(payload).tobytes() == record.tobytes()
    nbytes = sum(payload.nbytes for payload in payloads) / len(records)
    return {
        "bytes": round(nbytes),
        "times_smaller": round(records[0].nbytes / nbytes, 1),
        "encode_us": round(1e6 * min(encode_s) / len(records), 1),
        "decode_us": round(1e6 * min(decode_s) / len(records), 1),
    }


def main() -> None:
    """Measure, and print a line for each codec."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="PongNoFrameskip-v4")
    parser.add_argument("--r_f_steps", type=int, default=20)
    parser.add_argument("--unrolls", type=int, default=400)
    arguments = parser.parse_args()
    flags = Flags(
        env=arguments.env, seed=1, r_f_steps=arguments.r_f_steps, worker_count=1, envs_per_worker=8
    )
    records = played(Blueprint.draw(flags), arguments.unrolls)
    for name, (encode, decode) in codecs().items():
        figures = measure(records, encode, decode)
        print(json_text({"codec": name, "env": arguments.env, **figures}), flush=True)


if __name__ == "__main__":
    main()
