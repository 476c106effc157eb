"""The tree that a checkpoint file holds: tensors and plain types, and nothing that is code.

`encode` turns the state of a run into such a tree. NumPy arrays and bytes travel as tensors;
`decode` makes them what they were, of trees that may come from a stranger's file.

Next to read: agent/stored/checkpoint_file.py, which writes and reads the files.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from ritornello.core.errors import CheckpointError

# Of the numbers in a file. torch knows others, which it can read but hardly compute with.
KNOWN_DTYPES = frozenset({
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128,
})  # fmt: skip
MAX_KEY_SHOWN = 100  # characters
_ARRAY, _BYTES = "__ndarray__", "__bytes__"
_PLAIN = (bool, int, float, str, type(None))


def encode(state: Any, where: str = "state") -> Any:
    """Return `state` as tensors and plain types only.

    Tensors are detached and moved to the CPU, but those on the CPU are not copied: encode right
    before writing. Mappings become dicts, tuples stay tuples.

    Raises:
      CheckpointError: at anything else; the message names the place in the tree, from `where` on.
    """
    # Exact types: a subclass (an enum, numpy's float64) is pickled by reference to code.
    if type(state) in _PLAIN:
        return state
    if isinstance(state, torch.Tensor):
        tensor = state.detach().cpu()
        # A view would drag its whole storage into the file.
        return tensor if _is_whole(tensor) else tensor.clone()
    if isinstance(state, np.generic):
        return encode(state.item(), where)
    if isinstance(state, np.ndarray):
        return {_ARRAY: _array_to_tensor(state, where)}
    if isinstance(state, (bytes, bytearray)):
        return {_BYTES: _array_to_tensor(np.frombuffer(state, np.uint8), where)}
    if isinstance(state, Mapping):
        return {
            _plain_key(key, where): encode(value, f"{where}[{key!r}]")
            for key, value in state.items()
        }
    if isinstance(state, (list, tuple)):
        items = [encode(item, f"{where}[{n}]") for n, item in enumerate(state)]
        return tuple(items) if isinstance(state, tuple) else items
    raise CheckpointError(
        f"{where} is a {type(state).__name__}; a checkpoint holds tensors, arrays and plain types "
        "(None, bool, int, float, str, bytes, list, tuple, dict) only. Convert it in state_dict()."
    )


def decode(data: Any, where: str = "state", met: set[int] | None = None) -> Any:
    """Undo `encode` in `data` from a file that may be anybody's; restore arrays and bytes.

    `where` is the place of `data` in the tree, for messages. `met` holds the addresses of the
    dicts, lists and arrays met so far: one that comes twice could describe an endless tree in a few
    bytes.

    Raises:
      ValueError: if `data` is not what `encode` returns.
    """
    kind = type(data)
    if kind in _PLAIN:
        return data
    if kind is torch.Tensor:
        return _checked(data, where)
    if kind not in (dict, list, tuple):
        raise ValueError(f"{where} is a {kind.__name__}")
    met = set() if met is None else met
    if len(data):  # Python has a single empty tuple
        _meet(id(data), met, where)
    if kind is not dict:
        return kind(decode(item, f"{where}[{n}]", met) for n, item in enumerate(data))
    if data.keys() == {_ARRAY}:
        return _array(data[_ARRAY], where, met)
    if data.keys() == {_BYTES}:
        return _array(data[_BYTES], where, met).tobytes()
    if not all(type(key) in _PLAIN for key in data):
        raise ValueError(f"{where} has keys that are neither text nor numbers")
    return {key: decode(value, _within(where, key), met) for key, value in data.items()}


def _within(where: str, key: Any) -> str:
    """Return the place of what lies at `key`; a long key of many levels would fill the memory."""
    return f"{where}[{key!r:.{MAX_KEY_SHOWN}}]"


def _meet(address: int, met: set[int], where: str) -> None:
    if address in met:
        raise ValueError(f"{where[:100]} repeats or contains itself")
    met.add(address)


def _array(data: Any, where: str, met: set[int]) -> np.ndarray:
    if type(data) is not torch.Tensor:
        raise ValueError(f"{where} is a {type(data).__name__} in place of an array")
    array: np.ndarray = _checked(data, where).numpy()
    if array.size:
        _meet(data.data_ptr(), met, where)
    return array


def _checked(tensor: torch.Tensor, where: str) -> torch.Tensor:
    """Return a tensor from a file if it is one that `encode` could have given."""
    is_plain = (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and not tensor.requires_grad
    )
    if tensor.dtype not in KNOWN_DTYPES:
        raise ValueError(f"{where} holds numbers of the kind {tensor.dtype}")
    if not is_plain or not _is_whole(tensor):
        raise ValueError(f"{where} is a tensor that does not hold just its own numbers")
    return tensor


def first_not_finite(tree: Any, but: Collection[str] = (), where: str = "state") -> str | None:
    """Return the place and value of the first NaN or infinity in a tree; None if there is none.

    Whatever lies at the keys `but` of the root is not checked. The check passes over the memory of
    each tensor once: 2 ms for 5 million weights on one core.
    """
    if isinstance(tree, float):
        return None if math.isfinite(tree) else f"{where} is {tree}"
    if isinstance(tree, np.ndarray) and tree.dtype.kind in "fc":
        tree = torch.from_numpy(np.ascontiguousarray(tree))
    if isinstance(tree, torch.Tensor):
        if tree.is_complex():
            tree = torch.view_as_real(tree.resolve_conj())
        if not tree.dtype.is_floating_point or not tree.numel():
            return None
        # Either end is NaN where any number is; a sum could overflow over sound numbers.
        low, high = (float(end) for end in torch.aminmax(tree))
        bad = [end for end in (low, high) if not math.isfinite(end)]
        return f"{where} holds {bad[0]}" if bad else None
    children: list[tuple[Any, Any]] = []
    if isinstance(tree, Mapping):
        children = [pair for pair in tree.items() if pair[0] not in but]
    elif isinstance(tree, (list, tuple)):
        children = list(enumerate(tree))
    for key, child in children:
        found = first_not_finite(child, (), _within(where, key))
        if found is not None:
            return found
    return None


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory holds its numbers and nothing else."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def _array_to_tensor(array: np.ndarray, where: str) -> torch.Tensor:
    """Return a tensor over the memory of an array; gigabytes of replay are not copied."""
    try:
        with warnings.catch_warnings():  # that read-only memory could be written to: it is not
            warnings.simplefilter("ignore")
            return torch.from_numpy(np.asarray(array, order="C"))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{where} is an array of {array.dtype}, not of numbers.") from error


def _plain_key(key: Any, where: str) -> Any:
    if isinstance(key, np.integer):
        return int(key)
    if type(key) in _PLAIN:
        return key
    raise CheckpointError(
        f"{where} has the key {key!r} of type {type(key).__name__}; keys are text or numbers."
    )
