"""Tiny runs of parts that no file of the packages knows."""

from contextlib import closing

from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.metrics.run_files import read_records
from ritornello.metrics.sinks import JsonLinesSink
from tests.agent.runs import make_blueprint


def trained(folder, *, steps=300, checkpoint=None, **flags):
    """Train in this process, one thing after another; return the summary and all records so far."""
    blueprint = make_blueprint(
        **{"reproducible": True, "environment_max_steps": steps, "model": "auto", **flags}
    )
    with closing(JsonLinesSink(folder.metrics_file)) as sink:
        trainer = Trainer(Run(blueprint, folder, checkpoint), sink)
        summary = trainer.run()
    return summary, read_records(folder.path)


def new_folder(tmp_path):
    return RunFolder.create(tmp_path, "Own-v0")


def saved_in(folder):
    return load(folder.path)
