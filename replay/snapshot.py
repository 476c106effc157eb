"""Items as plain types and arrays, for checkpoints, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import array, expect, items, whole
from ritornello.replay.codec import make_codec
from ritornello.replay.item import Item


def pack_items(held: Iterable[Item], record_nbytes: int) -> dict[str, Any]:
    """Return items as a dict of arrays.

    Payloads are shared, not copied: nobody ever writes to them, and a second set of them could be
    gigabytes.
    """
    held = list(held)
    return {
        "record_nbytes": record_nbytes,
        "ids": np.array([item.id for item in held], np.int64),
        "versions": np.array([item.version for item in held], np.int64),
        "inserted_at_update": np.array([item.inserted_at_update for item in held], np.int64),
        "codecs": [item.codec.name for item in held],
        "payloads": [item.payload for item in held],
    }


def unpack_items(state: Mapping[str, Any], record_nbytes: int) -> dict[int, Item]:
    """Return id -> item from `pack_items`' dict.

    Raises:
      StateError: if it is none.
      CheckpointError: if the records are of another size, hence of another schema.
    """
    size = whole(state, "record_nbytes", low=1)
    if size != record_nbytes:
        raise CheckpointError(
            f"stored unrolls have {size} bytes, this run's have {record_nbytes}: "
            "another environment, unroll length or network, or a checkpoint from before unrolls "
            "held the last action and reward. Go on without replay contents (--load_replay=False)."
        )
    ids = array(state, "ids", np.int64, (None,)).tolist()
    columns = {
        name: array(state, name, np.int64, (len(ids),)).tolist()
        for name in ("versions", "inserted_at_update")
    }
    names, payloads = items(state, "codecs", str), items(state, "payloads", np.ndarray)
    expect(len(set(ids)) == len(ids) and min(ids, default=0) >= 0, "each item once", "ids")
    for name, column in columns.items():
        expect(min(column, default=0) >= 0, "updates from 0", name)
    codecs = {name: make_codec(name) for name in set(names)}
    for number, (name, payload) in enumerate(zip(names, payloads, strict=True)):
        fits = payload.dtype == np.uint8 and payload.ndim == 1
        fits = fits and codecs[name].decoded_nbytes(payload) == size
        expect(fits, f"{size} bytes", "payloads", number)
    rows = zip(ids, payloads, names, *columns.values(), strict=True)
    return {
        i: Item(i, payload, codecs[codec], version, update)
        for i, payload, codec, version, update in rows
    }
