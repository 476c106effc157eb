"""Layer 2: every flag, in one class for each group, and from a command line to them.

options.py          Flags, which joins the groups
parsing.py          from a command line to Flags
help.py             the text of --help
presets.py          sets of flags by name
group.py            what a group and a flag are
kinds.py            the kinds of values: counts, fractions, paths, lists of games
parts.py            networks, algorithms and trackers by name, also those of your own
problems.py         what is wrong with flags, in lines for the user
flags_file.py       --flags_file: flags from a file
earlier.py          flags of earlier versions, in today's form
names.py            names on a command line, and what to say of unknown ones
run.py              what is done in one command, where and how long; what test mode plays
environment.py      the games
replay.py           which experience is kept and drawn
model.py            the network
algorithm.py        V-trace and its losses, and how gradients become steps
machine.py          workers, processor, precision, threads
output.py           what is written, shown and measured by whole games
"""
