"""The metrics of a cluster, `cluster/...`: part of METRICS.

metrics/record.py has the others.
"""

from __future__ import annotations

from ritornello.metrics.machine_metrics import MetricInfo, metric

DISTRIBUTED_METRICS: dict[str, MetricInfo] = {
    "cluster/machines": metric("machines", "Machines of the cluster on which workers run."),
    "cluster/workers_without_room": metric(
        "workers", "Workers that wait until a machine has a free CPU.", "0"
    ),
    "cluster/bytes_in_per_s": metric(
        "1/s", "Bytes of compressed unrolls that came from all workers."
    ),
    "cluster/weights_per_s": metric(
        "1/s", "Versions of the weights that were shared; each reaches a machine at most once."
    ),
    "cluster/gateway_cpu_fraction": metric(
        "fraction",
        "Share of one core that the gateway's process takes.",
        "near 1 it is the bottleneck",
    ),
}
