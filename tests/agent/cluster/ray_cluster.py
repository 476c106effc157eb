"""A program: a Ray cluster of several machines that are all this one, driven by lines on its input.

add <cpus>     -> node <number>
kill <number>  -> done
"""

import os
import sys


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
        cluster.remove_node(nodes[int(number[0])], allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
