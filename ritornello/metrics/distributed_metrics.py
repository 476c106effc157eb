"""The metrics of shared replay, `share/...`, and of a cluster, `cluster/...`: part of METRICS.

metrics/record.py has the others.
"""

from __future__ import annotations

from ritornello.metrics.machine_metrics import MetricInfo, metric

DISTRIBUTED_METRICS: dict[str, MetricInfo] = {
    "share/agents_heard": metric(
        "agents", "Other agents that sent unrolls within the last minute.", "all others"
    ),
    "share/sent": metric("unrolls", "Unrolls sent to the other agents in this session."),
    "share/unsent": metric(
        "unrolls", "Unrolls that could not be sent, because the disk refused them.", "0"
    ),
    "share/foreign_drawn_fraction": metric(
        "fraction",
        "Share of replayed draws that were of other agents, since the start.",
        "--foreign_share, once replay has filled up",
    ),
    "share/*/taken": metric("unrolls", "Unrolls of an agent that went into replay."),
    "share/*/passed_over": metric(
        "unrolls", "Unrolls of an agent that were too many for --foreign_share."
    ),
    "share/*/lost": metric(
        "unrolls", "Unrolls that an agent had sent and removed before they were read.", "few"
    ),
    "share/*/refused": metric(
        "unrolls", "Unrolls of an agent, or files of it, that were damaged or impossible.", "0"
    ),
    "share/*/drawn_fraction": metric("fraction", "Share of replayed draws that an agent played."),
    "share/*/trusted_fraction": metric(
        "fraction",
        "LASER: share of the replayed steps of an agent that the trust region keeps.",
        "high for this agent's own; lower for agents that play differently",
    ),
    "share/*/kl_behaviour_target": metric(
        "nats", "Mean KL(behaviour || policy) of the replayed unrolls of an agent."
    ),
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
