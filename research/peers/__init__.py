"""Other systems to measure ours beside: what compare_peers.py installs, starts and reads.

`catalogue.py` lists the systems, `installation.py` makes their environments, `measurement.py` runs
one and meters its processes, `report.py` makes the tables. The other modules are drivers: programs
that run in a system's own environment, import nothing of this repository but for our own two
(`ours.py`, `sync_loop.py`), and write their progress to a file.
"""
