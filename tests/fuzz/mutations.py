"""Values, texts, bytes and trees that nobody would write on purpose, drawn from a seeded source."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

# fmt: off
NASTY_TEXTS = (
    "", " ", "\0", "\n", "\x1b[31m", "[/]", "[red]", "$x^{", "|", "'", '"', "\\", "%s", "%d",
    "../..", "/", "~", ".", "-", "--", "=", ",", ",,", ":", "a:b", "/dev/zero", "/proc/self/mem",
    "nan", "inf", "-inf", "1e999", "-1", "0", "1_000", "0x10", "True", "None", "null", "[]",
    "9" * 30, "9" * 5000, "x" * 300, "x" * 20_000, "[" * 500, "\u202e", "\U0001f40d", "\ud800", "ß",
)
NASTY_VALUES = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, -(2**63) - 1, 10**400, 0.0, -0.0, 1e-320, 1e308,
    float("nan"), float("inf"), float("-inf"), [], {}, [[]], [None], {"a": 1}, {"run": "a"},
    *NASTY_TEXTS,
)
# fmt: on


def nasty(rng: Random) -> Any:
    """Return a value that may surprise whoever gets it; at times a deep one."""
    if rng.random() < 0.05:
        value: Any = rng.choice(NASTY_VALUES)
        for _ in range(rng.choice((3, 30, 70))):
            value = [value] if rng.random() < 0.7 else {"k": value}
        return value
    return copy.deepcopy(rng.choice(NASTY_VALUES))


def mutated_text(rng: Random, text: str, times: int | None = None) -> str:
    """Return `text` with pieces cut out, doubled, moved, or put in."""
    for _ in range(rng.randint(1, 4) if times is None else times):
        start = rng.randint(0, len(text))
        end = min(len(text), start + rng.choice((0, 1, 1, 3, 20)))
        piece = rng.choice(
            (
                "",
                text[start:end] * 2,
                text[end:start:-1],
                rng.choice(NASTY_TEXTS),
                chr(rng.randint(1, 300)),
            )
        )
        text = text[:start] + piece + text[end:]
    return text


def mutated_bytes(rng: Random, data: bytes) -> bytes:
    """Return `data` with bits flipped, zeroed, cut off or doubled."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        kind, place = rng.randrange(5), rng.randrange(len(changed) + 1)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[place : place + rng.choice((1, 16, 512))] = b"\0" * rng.choice((1, 16, 512))
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            changed[place:place] = changed[place : place + rng.choice((1, 64, 4096))]
        else:
            changed[place:place] = rng.randbytes(rng.choice((1, 4, 64)))
    return bytes(changed)


def mutated_tree(rng: Random, tree: Any, times: int | None = None) -> Any:
    """Return a tree of dicts and lists with branches replaced, removed, copied or renamed."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 4)) if times is None else times):
        places = list(_places(tree))
        if not places:
            return nasty(rng)
        parent, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind <= 2:
            parent[key] = nasty(rng)
        elif kind == 3:
            del parent[key]
        elif kind == 4:
            other_parent, other_key = rng.choice(places)
            parent[key] = copy.deepcopy(other_parent[other_key])
        elif isinstance(parent, dict):
            parent[rng.choice((str(rng.choice(NASTY_TEXTS)), 3, None))] = parent.pop(key)
        else:
            parent.insert(rng.randint(0, len(parent)), copy.deepcopy(parent[key]))
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every node below `tree`."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            children = list(node.items())
        elif isinstance(node, list):
            children = list(enumerate(node))
        else:
            continue
        found += [(node, key) for key, _ in children]
        waiting += [child for _, child in children]
    return found


def writable(value: Any) -> Any:
    """Return a value with the keys and numbers that a writer of JSON would refuse made texts."""
    if isinstance(value, dict):
        return {k if isinstance(k, str) else repr(k): writable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [writable(item) for item in value]
    return "9" * 5000 if isinstance(value, int) and abs(value) > 10**4000 else value
