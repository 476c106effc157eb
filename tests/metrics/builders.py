"""Runs as the sinks leave them, with an update, a game and a record for each hundred steps."""

from ritornello.core.episode import EpisodeEnd
from ritornello.metrics.record import Record
from ritornello.metrics.sinks import JsonLinesSink, TextFilesSink

VALUES = {"loss/policy": 0.1, "loss/value": 0.2, "loss/entropy": 0.3, "optimiser/lr": 0.001}


def at(updates):
    """Return the record after so many updates."""
    return Record(100 * updates, 400 * updates, updates, updates, float(updates), VALUES)


def write_run(folder, updates):
    """Write the files of a run, or go on with them; the n-th game has a return of n."""
    folder.mkdir(exist_ok=True)
    sinks = [JsonLinesSink(folder / "metrics.jsonl")]
    sinks.append(TextFilesSink(folder, batch_size=2, unroll_length=5))
    for update in updates:
        for sink in sinks:
            sink.episode(EpisodeEnd(0, float(update), 10, 40), at(update))
            sink.write(at(update))
    for sink in sinks:
        sink.close()
    return folder
