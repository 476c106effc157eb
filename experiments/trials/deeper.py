"""The name under which `resnet_small` was tried, for the runs that began with it.

--model=experiments.trials.deeper:shallow_blocks
"""

from ritornello.flags.parts import NETWORKS

NETWORKS.add("shallow_blocks", NETWORKS.find("resnet_small"), __name__)
