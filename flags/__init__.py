"""Layer 2: every flag, in one class for each group. The door is option_flags.py, which joins them.

group.py            what a group and a flag are
kinds.py            the kinds of values: counts, fractions, paths, lists of games
run.py              what is done in one command, where and how long
environment.py      the games
workers.py          who plays them
replay.py           which experience is kept and drawn
model.py            the network
algorithm.py        V-trace and its losses
optimiser.py        how gradients become steps
machine.py          processor, precision, threads
output.py           what is written and shown
test_mode.py        what test mode plays
"""
