"""A `model.tar` of TorchBeast, as a stranger sends it: what is read of it, and what is refused.

agent/torchbeast.py makes a model of it.
"""

from __future__ import annotations

import _codecs
import pickle
import zipfile
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ritornello.agent.stored.checkpoint_file import check_sizes
from ritornello.core.errors import CheckpointError, first_line
from ritornello.core.plain_data import shown, shown_text

ARCHIVE = b"PK\x03\x04"  # the first bytes of what torch reads as an archive
MAX_WHOLE = 2**53  # of steps and updates; a float of double precision holds each one below it

# PolyBeast keeps the returns of its last games as NumPy numbers. These are the parts that such
# numbers and arrays are pickled of; none of them does anything but hold data.
_MAKES_NUMBER, _MAKES_ARRAY = np.float64(0).__reduce__()[0], np.empty(0).__reduce__()[0]
_NUMPY_PARTS: list[Any] = [
    *((_MAKES_NUMBER, f"{module}.multiarray.scalar") for module in ("numpy.core", "numpy._core")),
    *((_MAKES_ARRAY, f"{m}.multiarray._reconstruct") for m in ("numpy.core", "numpy._core")),
    *(np.ndarray, np.dtype, (_codecs.encode, "_codecs.encode")),
    *(type(np.dtype(name)) for name in ("f4", "f8", "i4", "i8", "?")),
]


def read(path: Path) -> dict[str, Any]:
    """Return the content of a `model.tar`: plain types and tensors on the CPU.

    Its `model_state_dict` is name -> tensor, dense and finite in fp32.

    Raises:
      CheckpointError: if it is not there, damaged, holds anything but data, or no such weights.
    """
    try:
        with path.open("rb") as file:
            is_archive = file.read(len(ARCHIVE)) == ARCHIVE  # else of old: nothing is compressed
        if is_archive:
            with zipfile.ZipFile(path) as archive:
                check_sizes(archive, path)
        with torch.serialization.safe_globals(_NUMPY_PARTS):
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} is refused: expected tensors, numbers and text only, as TorchBeast saves "
            "them, got something that would have to be executed or is damaged "
            f"({first_line(error)})."
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{path} cannot be read as a file of torch: {first_line(error)}"
        ) from error
    weights = content.get("model_state_dict") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(
            f"{path} is no checkpoint of TorchBeast: expected the key model_state_dict with "
            f"tensors, got {shown_text(keys)}."
        )
    for name, tensor in weights.items():
        if not isinstance(name, str):
            raise CheckpointError(
                f"{path} is no checkpoint of TorchBeast: expected texts as the names of its "
                f"tensors, got {shown(name)}."
            )
        if not _is_finite(tensor):
            raise CheckpointError(
                f"{path} holds weights that no model can have: expected tensors of finite "
                f"numbers, got {shown_text(name)}, a {tensor.dtype} of shape "
                f"{tuple(tensor.shape)} that is not. Take an older file of that training."
            )
    return content


def table(content: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return what stands in the file beside the weights under `part`; empty: no such table."""
    found = content.get(part)
    return found if isinstance(found, dict) else {}


def number(
    path: Path, content: Mapping[str, Any], place: str, default: float = 0, most: float = MAX_WHOLE
) -> float:
    """Return a number that stands beside the weights.

    Args:
      path: path of the file, for the message.
      content: result of `read`.
      place: table of the file and key in it, with a dot between.
      default: what is returned where the table or the key is missing.
      most: the largest number that makes sense; the smallest is 0.

    Raises:
      CheckpointError: if there is something else.
    """
    part, key = place.split(".")
    value: Any = table(content, part).get(key, default)
    # NumPy's numbers are of the kind Real, too.
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise CheckpointError(
            f"{path} has a wrong {place}: expected a number in [0, {most}], got {shown(value)}."
        )
    return float(value)


def _is_finite(tensor: Tensor) -> bool:
    """Whether a tensor is dense, real, and finite in fp32."""
    is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
    if not is_plain or tensor.is_quantized or tensor.is_complex():
        return False
    # One number of the file can stand for billions of a tensor that is no copy of it.
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return False
    return bool(torch.isfinite(tensor.float()).all())
