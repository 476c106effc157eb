"""Whole trainings of small environments in one thread, and what their model then says.

The serial trainer: the same replay, batches, loss, optimiser, annealing, weight board and rollout
as in any run, without processes, and with the same end for the same seed.
"""

from contextlib import closing

import numpy as np
import torch

from ritornello.agent.models.base import Inputs
from ritornello.agent.run.run import Run
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.metrics.sinks import Tee
from ritornello.replay.registry import sampler_of
from tests.agent.runs import make_blueprint

GAMMA = 0.9
# Written out, because a kind of one's own may be registered by another test of this process.
ALL_KINDS = (
    "queue", "standard", "attentive", "elite", "prioritised", "least_drawn", "circular",
)  # fmt: skip


def replay(kind, capacity=100):
    """Return a queue, and beside it a buffer of this kind unless that sets the pace itself."""
    if sampler_of(kind).takes_turns:  # four batches, each used twice
        return [{"type": kind, "capacity": 32, "sample_ratio": 1.0, "uses": 2}]
    if sampler_of(kind).consumes:
        return [{"type": kind, "capacity": 8, "sample_ratio": 1.0}]
    return [
        {"type": "queue", "capacity": 8, "sample_ratio": 0.5},
        {"type": kind, "capacity": capacity, "sample_ratio": 0.5},
    ]


def train(results, *games, kind="queue", steps, module="fakes", **flags):
    """Train on fakes by name; return the trainer, which is through.

    Args:
      results: a folder for the run.
      games: names of environments, without version.
      kind: of replay.
      steps: of the agent.
      module: of tests/ that registers them.
      flags: what differs from the recipe here.
    """
    recipe = {
        "reproducible": True, "seed": 1, "envs_per_worker": 8, "r_f_steps": 10, "batch_size": 8,
        "gamma": GAMMA, "optimizer": "adam", "lr": 0.01, "lr_schedule": "constant",
        "entropy_loss_weight": 0.01, "advantage_normalisation": "none", "popart_beta": 0.02,
        "feature_out_layer_size": 32, "save_model_period": 10**6, "lr_scheduler_steps": steps,
        "environment_max_steps": steps, "replay_parameters": replay(kind),
    }  # fmt: skip
    env = ",".join(f"tests.{module}:tests/{game}-v0" for game in games)
    blueprint = make_blueprint(env, **{**recipe, **flags})
    with closing(Tee([])) as sink:
        trainer = Trainer(Run(blueprint, RunFolder.create(results, games[0])), sink)
        trainer.run()
    return trainer


@torch.no_grad()
def look(trainer, rows, task=0):
    """Return what the model says of observations that are shown one after another.

    Args:
      trainer: from `train`.
      rows: [T, B, D]; each of the B columns is the beginning of a game.
      task: the game.

    Returns:
      (probabilities [T, B, A], values [T, B]).
    """
    model = trainer._learner.model
    obs = torch.as_tensor(np.asarray(rows), dtype=torch.float32)
    steps, columns = obs.shape[:2]
    batch = _inputs(obs, task)
    hidden, _ = model.hidden(model.torso(obs, batch.task_id), batch, model.initial_state(columns))
    heads = model.heads(hidden, batch.task_id)
    assert heads.value.shape == (steps, columns)
    return heads.params.softmax(-1).numpy(), heads.value.numpy()


def _inputs(obs, task):
    steps, columns = obs.shape[:2]
    first = torch.zeros(steps, columns, dtype=torch.bool)
    first[0] = True
    return Inputs(
        obs,
        first,
        torch.zeros(steps, columns, dtype=torch.int64),
        torch.zeros(steps, columns),
        torch.full((columns,), task),
    )
