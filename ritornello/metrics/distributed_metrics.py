"""The metrics of a cluster, `cluster/...`: part of METRICS.

metrics/record.py has the others.
"""

from __future__ import annotations

from ritornello.metrics.machine_metrics import MetricInfo, metric

DISTRIBUTED_METRICS: dict[str, MetricInfo] = {
    "cluster/nodes": metric("machines", "Machines of the cluster that are alive and can be used."),
    "cluster/hosts": metric("hosts", "Groups of workers on these machines, one on each as a rule."),
    "cluster/hosts_silent": metric(
        "hosts", "Hosts that have not answered for 15 s; after 60 s they are given up.", "0"
    ),
    "cluster/hosts_lost": metric("hosts", "Hosts that were lost or given up since the start.", "0"),
    "cluster/nodes_lost": metric(
        "machines", "Machines that went away with workers on them, since the start.", "0"
    ),
    "cluster/bytes_in_per_s": metric(
        "1/s", "Bytes of compressed unrolls that came from all hosts."
    ),
    "cluster/messages_per_s": metric("1/s", "Answers of hosts; each brings up to 8 blocks."),
    "cluster/weights_bytes_per_s": metric(
        "1/s",
        "Bytes of weights sent: each version once to each host, whatever its number of workers.",
    ),
    "cluster/weights_age_s": metric(
        "s",
        "For how long there have been newer weights than the slowest host has.",
        "below a second",
    ),
    "cluster/blocks_queued": metric(
        "blocks",
        "Blocks of unrolls that wait on the hosts: at most two for each worker.",
        "at that limit the learner is the bottleneck",
    ),
    "cluster/blocks_refused": metric(
        "blocks", "Blocks that were damaged, or came from hosts that had been given up.", "0"
    ),
    "cluster/gateway_cpu_fraction": metric(
        "fraction",
        "Share of one core that the gateway's process takes.",
        "near 1 it is the bottleneck",
    ),
}
