"""What the constants of the model mean for a thousand and for ten thousand workers.

Nothing here was measured at that size. Each figure is arithmetic on constants of one machine, and
says which part is full first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.scaling.model import Model

SIZES = ((64, 1), (1_000, 16), (10_000, 157))  # workers, nodes
SLOW_STEPS_PER_S = 150.0  # of a worker whose environment is slow
VERSIONS_PER_S = 1.0
NIC_BYTES_PER_S = 10e9 / 8 * 0.94  # of a network of 10 Gbit/s
NIC_LATENCY_S = 50e-6  # of a message between two machines of one room
FASTER = (1, 10, 100)  # learners, in units of the machine that was measured
LEARNERS = (2, 4, 8, 16, 64)
UPDATE_STEPS = 8 * 20  # of the default batch


def project(model: Model) -> list[dict[str, Any]]:
    """Return a row for each number of workers and each kind of environment."""
    fast = 1e6 / model.acting_us
    rows = []
    for name, each in (("this game", fast), ("slow environment", SLOW_STEPS_PER_S)):
        for workers, nodes in SIZES:
            blocks = workers * each / model.steps_per_block
            transport = model.transport(nodes, blocks, VERSIONS_PER_S)
            squeezed, raw = blocks * model.wire_kb * 1e3, blocks * model.raw_kb * 1e3
            needed = {
                "learner machines like this": workers * each * model.learning_us / 1e6,
                "gateways": blocks / model.gateway_blocks(),
                "10 Gbit/s networks": squeezed / NIC_BYTES_PER_S,
            }
            rows.append(
                {
                    "workers": workers,
                    "nodes": nodes,
                    "environment": name,
                    "steps_per_s": round(workers * each),
                    "mb_per_s": round(squeezed / 1e6, 1),
                    "raw_mb_per_s": round(raw / 1e6),
                    "messages_per_s": round(model.messages(nodes, blocks)),
                    "weights_mb_per_s": round(nodes * VERSIONS_PER_S * model.weights_mb, 1),
                    "gateway_cores": round(transport["gateway"], 1),
                    "host_cores_per_node": round(transport["hosts"] / nodes, 2),
                    **{name: _needed(value) for name, value in needed.items()},
                    "limits_first": max(needed, key=lambda name: needed[name]),
                }
            )
    return rows


def _needed(count: float) -> float:
    return round(count, 2) if count < 1 else math.ceil(count)


def learners(model: Model) -> list[dict[str, Any]]:
    """Return how much of their time several learners spend with learning, not with adding up.

    The sum goes round in a ring: each learner sends 2 (n - 1) / n of the gradient, which has the
    size of the weights in fp32, in 2 (n - 1) messages. Nothing of it overlaps with computing.
    """
    rows = []
    for faster in FASTER:
        compute_s = UPDATE_STEPS * model.learning_us / 1e6 / faster
        for count in LEARNERS:
            share = 2 * (count - 1) / count
            sum_s = share * model.gradient_mb * 1e6 / NIC_BYTES_PER_S
            sum_s += 2 * (count - 1) * NIC_LATENCY_S
            efficiency = compute_s / (compute_s + sum_s)
            rows.append(
                {
                    "learner": f"{faster} x this machine",
                    "learners": count,
                    "update_ms": round(1e3 * compute_s, 2),
                    "sum_ms": round(1e3 * sum_s, 2),
                    "efficiency": round(efficiency, 2),
                    "speed": round(count * efficiency, 1),
                    "batches_for_0.8": math.ceil(4 * sum_s / compute_s),
                }
            )
    return rows


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table of Markdown."""
    print(f"\n{title}\n")
    if not rows:
        print("(nothing)")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row.get(name, "")) for name in names) + " |")
