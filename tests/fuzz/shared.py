"""Cases about what another agent of a population leaves in the folder that both share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from ritornello.agent.cluster.wire import CODEC
from ritornello.agent.sharing.foreign import UnrollPost
from ritornello.agent.sharing.terms import TERMS_FILE, Terms, unfit
from ritornello.core.errors import ConfigError, TransportError
from ritornello.core.unroll import UnrollSchema
from ritornello.wrappers.config import EnvConfig
from tests.fuzz.mutations import mutated_bytes, mutated_text, mutated_tree, writable
from tests.replay.builders import SPEC, make_record

PLAIN = UnrollSchema(SPEC, 4)
RICH = UnrollSchema(SPEC, 4, feature_count=5, state_count=3)


def foreign_unrolls(rng: Random, place: Path) -> Callable[[], object]:
    """Terms and a message of another agent: bytes changed, before or after they were compressed."""
    ours = rng.choice((PLAIN, RICH))
    post = UnrollPost(ours)
    terms = Terms.of(EnvConfig("CartPole-v1"), post.travelling)
    terms.write(place)
    if rng.random() < 0.5:
        path = place / TERMS_FILE
        if rng.random() < 0.5:
            text = mutated_text(rng, path.read_text("utf-8"))
        else:
            text = json.dumps(writable(mutated_tree(rng, dict(terms.values))))
        path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    record = make_record(rng.randrange(100), schema=post.travelling)
    if rng.random() < 0.5:
        damaged = bytearray(record.tobytes())
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 127, 128, 255))
        record = np.frombuffer(bytes(damaged), np.uint8)
    message = CODEC.encode(record).tobytes()
    if rng.random() < 0.5:
        message = mutated_bytes(rng, message)

    def act() -> object:
        problem = unfit(terms, place)
        if problem:
            raise ConfigError(problem)
        try:
            unroll = post.open(message, agent=1)
        except TransportError as error:
            raise ConfigError(str(error)) from error
        assert unroll.record.nbytes == ours.nbytes
        ours.check(ours.unroll(unroll.record))
        return unroll

    return act
