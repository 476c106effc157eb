"""What bench_scaling.py is made of: prepared blocks, points, Ray clusters of one machine, a model.

`prepared.py` makes workers that cost nothing, `point.py` measures one setting, `processes.py` says
whose processor time it was, `ray_cluster.py` and `link.py` make clusters, `training.py` measures
whole runs, `micro.py` single operations, and `model.py` predicts from the parts.
"""
