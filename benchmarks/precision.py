"""Which number format and which order of kernels compute each network fastest on this processor.

    python benchmarks/precision.py

For each network it learns from a share of a batch (forwards and backwards) and acts for a worker's
games, in bf16 and fp32, with kernels in NCHW and NHWC order, all in turn in one thread. Figures are
microseconds of processor time per row, so other programs disturb them little. `matrix` is the rate
of one matrix product, in GFLOP/s. The rule of `agent/machine.py` (`bf16_is_faster`) should name the
format of the fastest entries.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ritornello.core.process_settings import environment_to_restart_with  # noqa: E402

if __name__ == "__main__" and (environment := environment_to_restart_with()):
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from ritornello.agent.machine import bf16_is_faster  # noqa: E402
from ritornello.agent.models.torsos import ImageTorso  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402

SHAPE = (4, 84, 84)
LEARNED_ROWS = 84  # of one of two learner threads: 8 unrolls of 20 steps, and their last rows
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
LAYOUTS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
MATRIX = (336, 3136, 512)


def cpu_seconds(variants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median processor seconds of one call of each variant, all tried in turn."""
    spent: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, call in variants.items():
            began = time.thread_time()
            call()
            if number:  # the first one is warm-up
                spent[name].append(time.thread_time() - began)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def matrix_gflops(rounds: int) -> dict[str, float]:
    """Return GFLOP/s of one matrix product in each format."""
    rows, inner, columns = MATRIX
    tensors = {
        name: (torch.randn(rows, inner, dtype=dtype), torch.randn(columns, inner, dtype=dtype))
        for name, dtype in DTYPES.items()
    }
    calls = {name: lambda pair=pair: F.linear(*pair) for name, pair in tensors.items()}
    work = 2 * rows * inner * columns
    return {name: round(work / s / 1e9) for name, s in cpu_seconds(calls, rounds).items()}


def learning(name: str, rounds: int) -> dict[str, float]:
    """Return microseconds per row of a forward and a backward pass."""
    frames = torch.randint(0, 256, (LEARNED_ROWS, *SHAPE), dtype=torch.uint8)

    def variant(dtype: torch.dtype, layout: torch.memory_format) -> Callable[[], None]:
        torso = ImageTorso(name, SHAPE, normalise_pixels=True).to(memory_format=layout)  # type: ignore[call-overload]

        def learn() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                features = torso(frames)
            features.float().sum().backward()
            torso.zero_grad()

        return learn

    return _per_row(variant, LEARNED_ROWS, rounds)


def acting(name: str, games: int, rounds: int) -> dict[str, float]:
    """Return microseconds per row of a forward pass for `games` observations."""
    frames = torch.randint(0, 256, (games, *SHAPE), dtype=torch.uint8)

    def variant(dtype: torch.dtype, layout: torch.memory_format) -> Callable[[], None]:
        torso = ImageTorso(name, SHAPE, normalise_pixels=True).to(memory_format=layout)  # type: ignore[call-overload]
        for parameter in torso.parameters():
            parameter.data = parameter.data.to(dtype)

        @torch.inference_mode()
        def act() -> None:
            torso(frames)

        return act

    return _per_row(variant, games, rounds)


def _per_row(
    variant: Callable[[torch.dtype, torch.memory_format], Callable[[], None]],
    rows: int,
    rounds: int,
) -> dict[str, float]:
    calls = {
        f"{dtype}_{layout}": variant(DTYPES[dtype], LAYOUTS[layout])
        for dtype in DTYPES
        for layout in LAYOUTS
    }
    return {name: round(1e6 * s / rows, 1) for name, s in cpu_seconds(calls, rounds).items()}


def processor() -> str:
    """Return the name of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="impala_shallow,nature,resnet")
    parser.add_argument("--games", default="8,16,32", help="rows of one acting pass")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each variant")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    result: dict[str, Any] = {
        "processor": processor(),
        "torch": torch.__version__,
        "rule": "bf16" if bf16_is_faster() else "fp32",
        "matrix_gflops": matrix_gflops(options.rounds),
    }
    for name in options.models.split(","):
        result[f"{name}_learning_us"] = learning(name, options.rounds)
        for games in map(int, options.games.split(",")):
            result[f"{name}_acting_{games}_us"] = acting(name, games, options.rounds)
    print(json_text(result))


if __name__ == "__main__":
    main()
