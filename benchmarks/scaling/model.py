"""A model of a run with many workers: constants of the parts, checked against whole systems.

    python -m benchmarks.scaling.model docs/results/performance/scaling_xeon.jsonl

Constants come from the points `parts` and `transport` of bench_scaling.py only. All others
(`rollout`, `paced`, `nodes`, `link`) are predicted with them, and the error of each is printed.
Then follows what the constants mean for more workers than could be measured
(benchmarks/scaling/projection.py). The last line is JSON.

The processor time of each kind of process of the transport is taken as

    cores = hosts * (at_rest + versions/s * version) + blocks/s * block + messages/s * message,

where a message is one delivery of a host. It brings what has come since the last one, at most
MAX_BLOCKS: r * t blocks, if r come in a second from each host, and a host is asked again after the
time t. Workers on a machine with too few cores play as fast as the cores allow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ritornello.agent.cluster.conductor import MAX_BLOCKS, WEIGHTS_SHARE  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402

Line = dict[str, Any]
POINTS = 4  # of the transport with Ray: as fast as it goes, slowly, at rest, with weights
SENT = ("consumer", "gateway", "hosts", "daemons")  # who handles what workers send
LINK_SHARE = 1448 / 1514  # of a link's bits are ours: Ethernet, IP and TCP take the rest


@dataclass(frozen=True)
class Costs:
    """Processor milliseconds of one kind of process."""

    at_rest: float  # per second, for each host
    block: float
    message: float
    version: float  # for each host

    def cores(self, hosts: float, blocks: float, messages: float, versions: float) -> float:
        """Return the cores that are busy, given rates per second over all hosts."""
        ms = self.at_rest * hosts + self.block * blocks + self.message * messages
        return (ms + self.version * versions * hosts) / 1000


@dataclass(frozen=True)
class Model:
    """All constants, of one machine and one game."""

    costs: dict[str, Costs]  # with Ray
    native_block_ms: float  # of the consumer, for a block of workers that are its own
    acting_us: float  # of a worker, per step
    learning_us: float  # of all cores of the machine, per step
    turn_ms: float  # until a host is asked again while blocks wait
    steps_per_block: int
    wire_kb: float  # of a block, compressed
    raw_kb: float
    weights_mb: float
    gradient_mb: float
    cpus: int

    @property
    def acting_ms(self) -> float:
        """Milliseconds of a worker for a block."""
        return self.acting_us * self.steps_per_block / 1000

    def messages(self, hosts: float, blocks: float) -> float:
        """Return messages per second of all hosts, given blocks per second of all."""
        waiting = blocks / hosts * self.turn_ms / 1000
        return blocks / min(MAX_BLOCKS, max(1.0, waiting))

    def transport(self, hosts: float, blocks: float, versions: float) -> dict[str, float]:
        """Return the busy cores of each kind of process, given blocks per second of all hosts."""
        messages = self.messages(hosts, blocks)
        return {
            name: costs.cores(hosts, blocks, messages, versions)
            for name, costs in self.costs.items()
        }

    def busy(self, backend: str, hosts: float, blocks: float, versions: float) -> float:
        """Return all busy cores, those of workers that play included."""
        acting = blocks * self.acting_ms / 1000
        if backend == "native":
            own = self.costs["consumer"]
            ms = blocks * self.native_block_ms + own.at_rest + versions * own.version
            return acting + ms / 1000
        return acting + sum(self.transport(hosts, blocks, versions).values())

    def played(self, backend: str, workers: int, hosts: int, versions: float) -> float:
        """Return the blocks per second of workers that play on this machine."""
        low, high = 0.0, 1000 * workers / self.acting_ms
        if self.busy(backend, hosts, high, versions) <= self.cpus:
            return high
        for _ in range(60):
            middle = (low + high) / 2
            if self.busy(backend, hosts, middle, versions) > self.cpus:
                high = middle
            else:
                low = middle
        return low

    def gateway_blocks(self) -> float:
        """Return the blocks per second that fill a gateway: one thread of it does the work."""
        costs = self.costs["gateway"]
        return 1000 / (costs.block + costs.message / MAX_BLOCKS)

    def link_blocks(self, mbit: float, versions: float) -> float:
        """Return the blocks per second that fill a link to one host, or a gateway if that is first.

        While weights are on their way, the requests for blocks wait behind them.
        """
        kb_per_s = mbit * 1000 / 8 * LINK_SHARE
        weights = min(WEIGHTS_SHARE, versions * self.weights_mb * 1000 / kb_per_s)
        return min((1 - weights) * kb_per_s / self.wire_kb, self.gateway_blocks())


def fit(lines: list[Line]) -> Model:
    """Return the model of the points `parts` and `transport`.

    Raises:
      SystemExit: if some of them are missing.
    """
    parts = [x for x in lines if x["kind"] == "parts" and "wire_kb" in x]
    transport = [x for x in lines if x["kind"] == "transport"]
    native = [x for x in transport if x["backend"] == "native"]
    through_ray = [x for x in transport if x["backend"] == "ray"]
    if not parts or not native or len(through_ray) < POINTS:
        raise SystemExit("the model needs --kinds=parts,transport --backends=native,ray")

    def middle(name: str) -> float:
        return float(statistics.median(part[name] for part in parts))

    # What is done to a block itself is known; delivered blocks and messages are too alike to tell.
    known = {"hosts": middle("seal_ms"), "gateway": middle("open_ms"), "daemons": 0.0}
    native_block_ms = statistics.median(x["cpu_ms_per_block"]["consumer"] for x in native)
    fastest = max(through_ray, key=lambda x: float(x["blocks_per_s"]))

    return Model(
        costs={name: solve(through_ray, name, known.get(name, native_block_ms)) for name in SENT},
        native_block_ms=native_block_ms,
        acting_us=middle("acting_us_per_step"),
        learning_us=middle("learning_us_per_step"),
        turn_ms=1000 / fastest["cluster/messages_per_s"],
        steps_per_block=parts[0]["steps_per_block"],
        wire_kb=middle("wire_kb"),
        raw_kb=parts[0]["block_kb"],
        weights_mb=parts[0]["weights_mb"],
        gradient_mb=parts[0]["gradient_mb"],
        cpus=parts[0]["cpus"],
    )


def solve(points: list[Line], name: str, block_ms: float) -> Costs:
    """Return the costs, none below 0, that come nearest to the cores that were busy.

    Args:
      points: of `transport`, with Ray.
      name: of the kind of process.
      block_ms: what a block costs it.
    """
    rows = np.array(
        [
            [
                point["hosts"],
                point["cluster/messages_per_s"],
                point["hosts"] * point["versions_per_s"],
            ]
            for point in points
        ]
    )
    total = np.array([1000 * point["cores"][name] for point in points])
    rest = total - block_ms * np.array([point["blocks_per_s"] for point in points])
    weight = 1 / np.maximum(total, 1.0)  # a point at rest counts as much as a busy one
    used = list(range(rows.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(rows[:, used] * weight[:, None], rest * weight, rcond=None)
        if (found >= 0).all() or len(used) == 1:
            break
        used.pop(int(np.argmin(found)))
    values = np.zeros(rows.shape[1])
    values[used] = np.maximum(found, 0.0)
    at_rest, message, version = map(float, values)
    return Costs(at_rest, block_ms, message, version)


def check(model: Model, lines: list[Line]) -> list[Line]:
    """Return what the model says of each point that is not a part of it, and how wrong it is."""
    checked = []
    for point in lines:
        for quantity, predicted, measured in _predictions(model, point):
            checked.append(
                {
                    "kind": point["kind"],
                    "backend": point["backend"],
                    "workers": point["workers"],
                    "hosts": point["hosts"],
                    **({"mbit": point["link_mbit"]} if point["link_mbit"] else {}),
                    "quantity": quantity,
                    "predicted": round(predicted, 4),
                    "measured": round(measured, 4),
                    "error": round(predicted / measured - 1, 3),
                }
            )
    return checked


def _predictions(model: Model, point: Line) -> list[tuple[str, float, float]]:
    """Return (quantity, predicted, measured) of a point."""
    kind, backend = point["kind"], point.get("backend")
    if kind not in ("rollout", "paced", "nodes", "link") or backend not in ("native", "ray"):
        return []
    hosts, versions = point["hosts"], point["versions_per_s"]
    if kind == "link":
        speed = model.link_blocks(point["link_mbit"], versions)
        return [("blocks/s", speed, point["blocks_per_s"])]
    if kind == "rollout":
        speed = model.played(backend, point["workers"], hosts, versions)
        cpu_s = model.busy(backend, hosts, speed, versions) / speed / model.steps_per_block * 1000
        return [
            ("steps/s", speed * model.steps_per_block, point["agent_steps_per_s"]),
            ("cpu s per 1000 steps", cpu_s, point["cpu_s_per_1000_steps"]),
        ]
    if backend == "native":
        return []
    sent = model.transport(hosts, point["workers"] * point["pace"], versions)
    return [("cores", sum(sent.values()), sum(point["cores"][name] for name in sent))]


def main() -> None:
    """Print what the model says, then its line of JSON."""
    from benchmarks.scaling.projection import learners, print_table, project

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", help="lines of bench_scaling.py")
    options = parser.parse_args()
    lines = [
        json.loads(line)
        for file in options.files
        for line in Path(file).read_text("utf-8").splitlines()
        if line.startswith("{")
    ]
    model = fit(lines)
    checked = check(model, lines)
    projection, company = project(model), learners(model)
    constants = {name: value for name, value in asdict(model).items() if name != "costs"}
    costs = {
        name: {term: round(value, 4) for term, value in asdict(cost).items()}
        for name, cost in model.costs.items()
    }
    print_table("Processor milliseconds", [{"of": name, **cost} for name, cost in costs.items()])
    print_table("The model against what was measured", checked)
    print_table("What it means for more workers", projection)
    print_table("What several learners are worth", company)
    errors = [abs(line["error"]) for line in checked]
    result = {
        "kind": "model",
        "constants": constants,
        "costs_ms": costs,
        "median_error": round(statistics.median(errors), 3) if errors else None,
        "largest_error": round(max(errors), 3) if errors else None,
        "gateway_blocks_per_s": round(model.gateway_blocks(), 1),
        "checked": checked,
        "projection": projection,
        "learners": company,
    }
    print(json_text(result))


if __name__ == "__main__":
    main()
