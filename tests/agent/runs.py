"""Blueprints of small runs for the tests of the moving parts of agent/."""

import copy

from ritornello.agent.assembly import Blueprint
from ritornello.agent.run import training
from ritornello.agent.run.tally import new_tally
from ritornello.agent.run.trainer import Trainer
from ritornello.flags.options import Flags

COUNTING = "tests.fakes:tests/Counting-v0"
BOTH_GAMES = f"{COUNTING},tests.fakes:tests/Owing-v0"
QUIET = ("--basic_verbose=False", "--tensorboard=False", "--charts=False")

QUEUE_AND_STANDARD = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "standard", "capacity": 40, "sample_ratio": 0.5},
]


def make_blueprint(env=COUNTING, **values):
    defaults = {
        "env": env,
        "seed": 1,
        "model": "auto",
        "precision": "fp32",
        "r_f_steps": 5,
        "batch_size": 4,
        "worker_count": 1,
        "envs_per_worker": 3,
        "replay_parameters": QUEUE_AND_STANDARD,
        "clip_rewards": False,
        "feature_out_layer_size": 16,
        "learner_thread_count": 1,
        "training_fill_in_factor": 0.05,
    }
    return Blueprint.draw(Flags(**{**defaults, **values}))


def states_at_start(monkeypatch):
    """A list that fills with the state of each trainer of this process as it begins to run."""
    states = []
    begin = Trainer.run

    def run_from_here(trainer):
        states.append(copy.deepcopy(trainer._run.state_dict()))
        return begin(trainer)

    monkeypatch.setattr(Trainer, "run", run_from_here)
    monkeypatch.setattr(training, "_set_up_torch", lambda *_: None)  # it is for the whole process
    return states


def saved_state(blueprint, learner=None, *, agent_steps=1, updates=1, **more):
    """What a checkpoint of a run holds that has made so many updates."""
    counters = {"agent_steps": agent_steps, "updates": updates}
    return {
        "flags": blueprint.flags.to_json(),
        "env_spec": blueprint.env_spec.to_dict(),
        "learner": (learner or blueprint.learner()).state_dict(),
        "replay": blueprint.replay().state_dict(contents=False),
        "tally": {**new_tally(blueprint).state_dict(), **counters},
        **more,
    }


def silent(line):
    """Show nothing."""


class Noted:
    """A sink that keeps records, and of which updates the last ones were as it was flushed."""

    def __init__(self):
        self.records, self.flushed_at = [], []

    def write(self, record):
        self.records.append(record)

    def episode(self, end, at):
        pass

    def flush(self):
        self.flushed_at.append(self.records[-1].updates if self.records else 0)

    def close(self):
        pass
