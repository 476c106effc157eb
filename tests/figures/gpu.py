"""One run of the default on a GPU, and what an update takes there."""

from __future__ import annotations

import json
from functools import partial
from statistics import fmean
from typing import Any

from tests.figures.defaults import LONG, tested
from tests.figures.files import (
    SPEED,
    Claim,
    Value,
    area_to,
    at,
    end,
    minutes,
    played,
    run,
)

RUN = "gpu_breakout/gpu_BreakoutNoFrameskip-v4_seed1"


def data() -> dict[str, Any]:
    """All that was measured on the GPU, but for the whole run."""
    found: dict[str, Any] = json.loads((SPEED / "gpu_h200.json").read_text("utf-8"))
    return found


def update_ms(network: str, batch: int, recorded: bool) -> Value:
    """Milliseconds of an update."""
    wanted = {"network": network, "batch": batch, "recorded": recorded}

    def value() -> float:
        (found,) = (x for x in data()["updates"] if wanted.items() <= x.items())
        return float(found["update_ms"])

    return value


def speed(network: str, placement: str, graph: bool, together: bool) -> Value:
    """Agent steps per second of a run of a quarter of a minute."""
    wanted = {"network": network, "placement": placement, "cuda_graph": graph}
    wanted |= {"weights_together": together}

    def value() -> float:
        (found,) = (x for x in data()["runs"] if wanted.items() <= x.items())
        return float(found["sps"])

    return value


def learned_rows() -> list[Claim]:
    """The run beside the three of the default on two cores."""
    rows = {
        "one H200 and 16 cores, seed 1": (RUN, played("gpu_breakout", fmean)),
        **{
            f"two cores, seed {seed}": (name, tested("Breakout", seed, fmean))
            for seed, name in enumerate(LONG["Breakout"], start=1)
        },
    }
    return [
        *(
            Claim(
                "docs/results.md",
                f"| {shown} |" + " {} |" * 5,
                (minutes(name), area_to(name, 2.5e6), at(name, 1.25e6), end(name), games),
            )
            for shown, (name, games) in rows.items()
        ),
        Claim(
            "README.md",
            "| Breakout on one H200 GPU with 16 cores, the same after {} minutes, one seed | {} "
            "({} in test games) |",
            (minutes(RUN), end(RUN), played("gpu_breakout", fmean)),
        ),
        Claim(
            "docs/performance.md",
            "took 4 minutes and 10 seconds, which are {} steps/s.",
            (lambda: float(run(RUN).curve.agent_steps[-1] / run(RUN).curve.wall_s[-1]),),
        ),
    ]


def speed_rows() -> list[Claim]:
    """Updates computed and replayed, and speeds of whole runs."""
    updates = {
        "`impala_shallow`, 8 unrolls of 20 steps": ("impala_shallow", 8),
        "`impala_shallow`, 32 unrolls": ("impala_shallow", 32),
        "`resnet_light`, 8 unrolls": ("resnet_light", 8),
    }
    shallow, light = "impala_shallow", "resnet_light"
    runs = {
        "`impala_shallow`, learner on the 16 cores": (shallow, "cpu:worker", False, False),
        "`impala_shallow`, learner on the GPU, computed": (shallow, "cuda:worker", False, False),
        "the same, weights copied to the host together": (shallow, "cuda:worker", False, True),
        "the same, and replayed": (shallow, "cuda:worker", True, True),
        "the same, and actions chosen by the server on the GPU": (
            shallow,
            "cuda:server",
            True,
            True,
        ),
        "`resnet_light`, server, computed, weights copied one by one": (
            *(light, "cuda:server", False, False),
        ),
        "`resnet_light`, server, replayed, weights copied together": (
            *(light, "cuda:server", True, True),
        ),
        "`resnet`, server, computed, weights copied one by one": (
            *("resnet", "cuda:server", False, False),
        ),
    }
    page = "docs/performance.md"

    def gain(graph: bool) -> float:
        one, other = (
            speed(shallow, place, graph, graph)() for place in ("cuda:server", "cuda:worker")
        )
        return 100 * (one / other - 1)

    def sooner() -> float:
        pairs = data()["switch_interval_s_and_updates_per_s"]
        slow, quick = (fmean(rate for s, rate in pairs if s == which) for which in (5e-3, 5e-4))
        return 100 * (quick / slow - 1)

    def whole(name: str) -> float:
        return float(data()["whole_run_median_of_records"][name])

    kernels = data()["kernels"][0]
    return [
        Claim(
            page,
            "The learner's process took {} cores of the 16",
            (partial(whole, "system/cores_learner"),),
        ),
        Claim(
            page,
            "It made {} updates per second, and the GPU was busy for {} % of the time.",
            (partial(whole, "throughput/updates_per_s"), partial(whole, "system/gpu_percent")),
        ),
        Claim(page, "learned from is {} updates old (all", (partial(whole, "lag/mean_updates"),)),
        *(
            Claim(
                page,
                f"| {shown} | {{}} | {{}} |",
                (update_ms(*of, recorded=False), update_ms(*of, recorded=True)),
            )
            for shown, of in updates.items()
        ),
        *(Claim(page, f"| {shown} | {{}} |", (speed(*of),)) for shown, of in runs.items()),
        Claim(
            page,
            "An update of the default network is {} kernels. The GPU computes them in {} ms",
            (lambda: float(kernels["launches"]), lambda: float(kernels["gpu_ms"])),
        ),
        Claim(
            page, "by {} and {} %. That is too little", (partial(gain, False), partial(gain, True))
        ),
        Claim(page, "the run made {} % more updates in three pairs", (sooner,)),
    ]


CLAIMS = [*learned_rows(), *speed_rows()]
