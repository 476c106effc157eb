"""A sink, a metric and an analysis of one's own."""

import argparse
from pathlib import Path

from ritornello.flags.parts import SINKS
from ritornello.metrics.record import declare
from ritornello.metrics.run_files import read_records

# Recorded by whatever measures it, for example in the metrics of a Loss.
declare("mine/ratio_mean", "", "Mean ratio of new and old probability of the actions.", "near 1")


@SINKS.register("short")
def short(run_folder):
    """Return a sink: --sink=tests.extensions.own_outputs:short."""
    return Short(run_folder / "short.txt")


class Short:
    """One line for each record."""

    def __init__(self, path):
        self.file = path.open("a", encoding="utf-8")

    def write(self, record):
        self.file.write(f"{record.updates} {record.values.get('loss/total')}\n")

    def episode(self, end, at):
        self.file.write(f"game of {end.length_steps} steps\n")

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


def main(arguments):
    """Count records: python -m ritornello.analysis tests.extensions.own_outputs <run>."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    options = parser.parse_args(arguments)
    print(f"{len(read_records(Path(options.run)))} records")  # noqa: T201
    return 0
