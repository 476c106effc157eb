"""`Run`: what all parts of a training session share, and what of it a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learning.bad_updates import BadUpdates
from ritornello.agent.learning.feed import Feed
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.worker_pool import WorkerPool
from ritornello.agent.run.coordinator import SINGLE_LEARNER, Coordinator
from ritornello.agent.run.experience import Experience, Serial
from ritornello.agent.run.status import Status
from ritornello.agent.run.tally import new_tally
from ritornello.agent.run.threaded import Threaded
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.saved_state import item, restoring, within
from ritornello.core.stop_signals import StopSignals
from ritornello.transport.weights import WeightBoard

if TYPE_CHECKING:
    from ritornello.agent.stored.checkpoint import Checkpoint

# (flags and shapes, where the newest weights are, the life of the workers) -> what is started.
MakeExperience = Callable[[Blueprint, WeightBoard, int], Experience]
MakePool = Callable[[Blueprint, WeightBoard, int], WorkerPool]
LIVES_PER_UPDATE = 1_000_000  # no worker is restarted so often, so no session repeats a life


class Run:
    """A run during one session. Belongs to the main thread."""

    def __init__(
        self,
        blueprint: Blueprint,
        folder: RunFolder,
        checkpoint: Checkpoint | None = None,
        *,
        weights: dict[str, Tensor] | None = None,
        stop: StopSignals | None = None,
        status: Status | None = None,
        coordinator: Coordinator = SINGLE_LEARNER,
        experience: MakeExperience | None = None,
    ) -> None:
        """Build all that learns, in the state of the checkpoint; start nothing.

        Args:
          blueprint: flags and shapes.
          folder: folder of the run.
          checkpoint: the run continues from it; None: a new run begins.
          weights: state dict of the model with which a new run begins; by default freshly
            initialised.
          stop: requests of the user to stop; None: there are none.
          status: writes the status files; None: nobody reads them.
          coordinator: keeps the learners of the run in step.
          experience: makes the source of batches; by default the one that the flags ask for.
        """
        self.blueprint, self.flags, self.folder = blueprint, blueprint.flags, folder
        self.stop, self.coordinator = stop or StopSignals(), coordinator
        self.status = status or Status(folder.path, None)
        self.checkpoint = checkpoint
        self.learner = blueprint.learner(coordinator.group)
        if weights is not None:
            self.learner.model.load_state_dict(weights)
        self.tally = new_tally(blueprint)
        self.bad_updates = BadUpdates(
            folder.path, self.flags.max_bad_updates, rank=blueprint.place.rank
        )
        self.board = WeightBoard(blueprint.acting_weights.nbytes)
        # After a resume the games are others than after the first start.
        done = 0 if checkpoint is None else checkpoint.updates
        make = experience or make_experience
        self.experience = make(blueprint, self.board, done * LIVES_PER_UPDATE)
        # Further parts of the state, by their keys; an empty one is left out.
        self.more_state: dict[str, Callable[[], dict[str, Any]]] = {}
        if checkpoint is not None:
            self._restore(checkpoint)

    def saved(self, key: str) -> dict[str, Any] | None:
        """Return the part `key` of the checkpoint's state, unchecked."""
        return None if self.checkpoint is None else self.checkpoint.state.get(key)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, without the contents of replay."""
        return {
            "flags": self.flags.to_json(),
            "env_spec": self.blueprint.env_spec.to_dict(),
            "learner": self.learner.state_dict(),
            "tally": self.tally.state_dict(),
            "bad_updates": self.bad_updates.state_dict(),
            **self.experience.state_dict(),
            **{key: part for key, state in self.more_state.items() if (part := state())},
        }

    def _restore(self, checkpoint: Checkpoint) -> None:
        checkpoint.check_spec(self.blueprint.env_spec)
        exact = self.experience.is_exact and "serial" in checkpoint.state
        contents = checkpoint.load_replay(exact=exact) if self.flags.load_replay else None
        with restoring(str(checkpoint.path)):
            learner = dict(checkpoint.state["learner"])
            if not self.flags.load_optimizer_save:
                learner["optimiser"] = self.learner.state_dict()["optimiser"]
            with within("learner"):
                self.learner.load_state_dict(learner)
            with within("tally"):
                self.tally.load_state_dict(checkpoint.state["tally"])
            bad_updates = item(checkpoint.state, "bad_updates", dict, default=None)
            if bad_updates is not None:  # not in an earlier version's
                with within("bad_updates"):
                    self.bad_updates.load_state_dict(bad_updates)
            if self.blueprint.place.speaks:  # the other learners draw other random numbers
                self.experience.load_state_dict(checkpoint.state, contents)


def make_experience(
    blueprint: Blueprint, board: WeightBoard, life: int, make_pool: MakePool | None = None
) -> Experience:
    """Return the source of batches that the flags ask for, not started.

    Workers and servers of different `life` play different games. `make_pool` makes the worker pool,
    by default the one that the flags ask for.
    """
    flags, device = blueprint.flags, blueprint.choices.device
    replay, feed = blueprint.replay(), Feed(blueprint.schema, device)
    evaluate = None
    if replay.needs_evaluation:
        from ritornello.agent.learning.scorer import Scorer

        model, _ = blueprint.acting_model()
        scorer = Scorer(model, blueprint.acting_weights, board, blueprint.schema, device)
        evaluate = scorer.evaluate
    if flags.reproducible and make_pool is None:
        from ritornello.agent.pools.serial_pool import SerialPool

        return Serial(SerialPool(blueprint.workers(), board), replay, feed, evaluate)
    depth = flags.cache_output_buffer_size
    return Threaded(
        (make_pool or _own_pool)(blueprint, board, life), replay, feed, evaluate,
        cache_depth=0 if not flags.caching_threads else None if depth == "auto" else int(depth),
        cache_threads=max(1, flags.caching_threads),
    )  # fmt: skip


def _own_pool(blueprint: Blueprint, board: WeightBoard, life: int) -> WorkerPool:
    flags = blueprint.flags
    if flags.multiprocessing_backend == "ray":
        from ritornello.agent.cluster.gateway_pool import GatewayPool

        return GatewayPool(blueprint.gateway(life=life), board)
    return ProcessPool(
        blueprint.workers(life=life),
        board,
        slots=flags.shared_queue_size,
        max_restarts=flags.max_worker_restarts,
        worker_timeout_s=flags.worker_timeout,
        server=blueprint.server(life=life),
    )
