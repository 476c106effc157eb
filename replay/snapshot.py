"""Items as plain types and arrays, for checkpoints, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ritornello.core.errors import CheckpointError
from ritornello.replay.codec import make_codec
from ritornello.replay.item import Item


def pack_items(items: Iterable[Item], record_nbytes: int) -> dict[str, Any]:
    """Return items as a dict of arrays.

    Payloads are shared, not copied: nobody ever writes to them, and a second set of them could be
    gigabytes.
    """
    items = list(items)
    return {
        "record_nbytes": record_nbytes,
        "ids": np.array([item.id for item in items], np.int64),
        "versions": np.array([item.version for item in items], np.int64),
        "inserted_at_update": np.array([item.inserted_at_update for item in items], np.int64),
        "codecs": [item.codec.name for item in items],
        "payloads": [item.payload for item in items],
    }


def unpack_items(state: Mapping[str, Any], record_nbytes: int) -> dict[int, Item]:
    """Return id -> item from `pack_items`' dict (arrays may have become lists or tensors).

    Raises:
      CheckpointError: if the records are of another size, hence of another schema.
    """
    if state["record_nbytes"] != record_nbytes:
        raise CheckpointError(
            f"stored unrolls have {state['record_nbytes']} bytes, this run's have {record_nbytes}: "
            "another environment, unroll length or network, or a checkpoint from before unrolls "
            "held the last action and reward. Go on without replay contents (--load_replay=False)."
        )
    codecs = {name: make_codec(name) for name in set(state["codecs"])}
    columns = zip(
        state["ids"],
        state["payloads"],
        state["codecs"],
        state["versions"],
        state["inserted_at_update"],
        strict=True,
    )
    return {
        int(i): Item(int(i), np.asarray(payload), codecs[codec], int(version), int(update))
        for i, payload, codec, version, update in columns
    }
