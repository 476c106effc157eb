"""A program: a Ray cluster of several machines that are all this one, driven by lines on its input.

add <cpus>     -> node <number>
kill <number>  -> done
freeze <number>, thaw <number>: its raylet and all that the raylet has started
head           kill the head's server (gcs_server)
"""

from __future__ import annotations

import os
import signal
import sys


def members(pid):
    import psutil

    process = psutil.Process(pid)
    return [*process.children(recursive=True), process]


def main(folder):
    os.environ.update(
        RAY_AUTH_MODE=os.environ.get("RAY_AUTH_MODE", "token"),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_niceness="0",
        RAY_TMPDIR=folder,
    )
    os.makedirs(os.path.join(folder, "ray"))
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "object_store_memory": 80_000_000,
        },
    )
    print("address", cluster.address, flush=True)
    nodes = []
    for line in sys.stdin:
        word, *number = line.split()
        if word == "add":
            cpus = int(number[0])
            nodes.append(cluster.add_node(num_cpus=cpus, object_store_memory=80_000_000))
            print("node", len(nodes) - 1, flush=True)
            continue
        if word == "kill":
            cluster.remove_node(nodes[int(number[0])], allow_graceful=False)
        elif word in ("freeze", "thaw"):
            raylet = nodes[int(number[0])].all_processes["raylet"][0].process.pid
            for process in members(raylet):
                process.send_signal(signal.SIGSTOP if word == "freeze" else signal.SIGCONT)
        elif word == "head":
            cluster.head_node.kill_gcs_server()
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
