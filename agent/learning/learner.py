"""`Learner` turns batches into new weights.

agent/learning/feed.py makes the batches. The owner of the learner, agent/run/trainer.py, passes the
weights on to the workers. The learner uses one thread, no files and no clock of its own.

Next to read: agent/run/experience.py, which makes batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm, Loss
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.learning.gradients import Gradient, error_of
from ritornello.agent.learning.layer_gradients import LayerGradients
from ritornello.agent.learning.optim import load_moments
from ritornello.agent.learning.recorded import make_runner
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.pixels import shown_steps
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.core import faults
from ritornello.core.saved_state import item, whole, within

WEIGHTS_MEASURED_EACH = 100  # updates; a sum over all weights, so not for each


class Learner:
    """Owns model, algorithm and optimiser, and takes one optimiser step per `step`.

    Not thread-safe: `step` and `state_dict` belong to one thread.
    """

    def __init__(
        self,
        model: ActorCritic,
        algorithm: Algorithm,
        optimiser: torch.optim.Optimizer,
        schedule: Callable[[float], float],
        *,
        max_grad_norm: float = 0.5,
        precision: str = "fp32",
        channels_last: bool = False,
        compile: bool = False,
        cuda_graph: bool = True,
        threads: int = 1,
        gradients_due: Callable[[], bool] | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Prepare for training; `model` stays on its device.

        Args:
          model: the network, with all parameters on the device of the batches.
          algorithm: computes the loss of a batch.
          optimiser: optimiser of the parameters of `model`.
          schedule: function from progress in [0, 1] to the learning rate.
          max_grad_norm: upper bound of the global L2 norm of the gradient; 0 does not clip.
          precision: number format of the torso, "fp32" or "bf16". Everything else is fp32.
          channels_last: keep images and convolution weights in NHWC order (for tensor cores).
          threads: on a CPU, number of threads that compute shares of the torso's rows.
          compile: run the torso through torch.compile; the first step then takes a minute.
          cuda_graph: on a GPU, replay what an update computes (agent/learning/recorded.py).
          gradients_due: whether an update also reports the gradient of each layer; None: never.
          group: sums over the batches of all learners of the run.
        """
        algorithm.check(model)
        self.model = model
        self.algorithm = algorithm
        self.group = algorithm.group = group
        self.optimiser = optimiser
        self.version = 0  # updates done
        self.errors: Tensor | None = None  # of the last update, see `Loss.errors`
        self._schedule = schedule
        self._lr_factor = 1.0
        self._gradients_due = gradients_due
        self._max_grad_norm = max_grad_norm or float("inf")
        self._parameters = list(model.parameters())
        self._run = make_runner(model, may_record=cuda_graph)
        # PopArt scales the value head with the rewards, so its size says nothing.
        heads = {id(parameter) for parameter in model.value_head.parameters()}
        self._measured = [p for p in self._parameters if id(p) not in heads]
        self._observes = True  # whether the statistics of some observations may still move
        for network in (model, *algorithm.networks()):
            network.set_precision(precision)
            network.set_threads(threads)
            if channels_last:
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if compile:
                network.torso_net.compile(dynamic=False)

    def scale_lr(self, factor: float) -> None:
        """Multiply the learning rate of the schedule by a factor from now on, instead of by 1."""
        self._lr_factor = factor

    def step(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Learn from one batch: loss, gradient, clip, optimiser step.

        The loss needs the statistics of pixels and of PopArt, so both move before it is known
        whether the update is finite. If it is not, or if anything raises before the optimiser's
        step, they are restored: `state_dict` is then bit by bit as before.

        Args:
          batch: the batch, on the model's device.
          progress: share of the annealing that is done, in [0, 1].

        Returns:
          Metrics: name -> 0-d tensor, detached, on the model's device; reading one waits for the
          device.

        Raises:
          NonFiniteUpdate: if the loss or a gradient is not finite. It names the first bad quantity.
        """

        @torch.enable_grad()  # whatever an environment that plays in this process has set
        def loss_and_gradient(batch: Batch) -> Loss:
            self.optimiser.zero_grad(set_to_none=True)
            loss = self.algorithm.loss(self.model, batch, self.optimiser, progress)
            loss.total.backward()
            return loss

        with self._undone_unless_complete() as undo:
            self._observe(batch)
            loss = self._run(loss_and_gradient, self.algorithm, batch)  # on a GPU, replayed
            norm = self._finite_norm(loss, batch, undo)
            layers = self._layers_if_due()
            faults.at("learner.step")
            torch.nn.utils.clip_grads_with_norm_(
                self._parameters, self._max_grad_norm, norm, foreach=True
            )
        lr = self._set_lr(progress)
        self.optimiser.step()

        self.errors = loss.errors
        metrics = loss.metrics | self._metrics(batch, norm, lr)
        self.version += 1
        return metrics if layers is None else metrics | layers.metrics()

    def _finite_norm(self, loss: Loss, batch: Batch, undo: Callable[[], None]) -> Tensor:
        """Sum the gradient over all learners; return its norm, or raise NonFiniteUpdate.

        It is the only wait for the device in a step: a bad gradient must not reach the weights.
        """
        gradient = Gradient(self._parameters, loss, self.group)
        if not gradient.is_finite:
            undo()  # the search for the culprit starts from the state before the update
            raise error_of(loss, batch, self.algorithm, self.model, self.version, self.group)
        gradient.hand_over()
        return gradient.norm

    def _layers_if_due(self) -> LayerGradients | None:
        is_due = self._gradients_due is not None and self._gradients_due()
        return LayerGradients(self.model) if is_due else None

    def _set_lr(self, progress: float) -> float:
        lr = self._schedule(progress) * self._lr_factor
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = lr
        return lr

    def _observe(self, batch: Batch) -> None:
        """Move the statistics of observations, as long as they may still move."""
        if self._observes:
            length, size = batch.first.shape
            rows, columns = shown_steps(length, size, self.version, self.group.rank)
            self.model.observe(batch.obs[rows, columns], batch.task_id[columns], self.group)

    def _metrics(self, batch: Batch, norm: Tensor, lr: float) -> dict[str, Tensor]:
        """Return the metrics of an update, besides those of its loss."""
        lag = (self.version - batch.version) * batch.is_online
        metrics = {
            "grad/norm_before_clip": norm,
            "grad/clipped_fraction": (norm > self._max_grad_norm).float(),
            "optimiser/lr": norm.new_tensor(lr),
            "lag/mean_updates": lag.sum() / batch.is_online.sum(),
            "lag/max_updates": torch.where(batch.is_online.any(), lag.max(), torch.nan),
        }
        if (self.version + 1) % WEIGHTS_MEASURED_EACH == 0:
            weights = [parameter.detach() for parameter in self._measured]
            metrics["weights/norm"] = torch.nn.utils.get_total_norm(weights, foreach=True)
        return metrics

    @contextmanager
    def _undone_unless_complete(self) -> Iterator[Callable[[], None]]:
        """Undo what moves before the optimiser's step if the block raises; yield what undoes it."""
        parts = [self.model.value_head.snapshot(self.optimiser), self.algorithm.snapshot()]
        if self._observes:
            unsettled = self.model.unsettled()
            parts += [statistics.snapshot() for statistics in unsettled.values()]
            self._observes = bool(unsettled)

        def undo() -> None:
            for restore in parts:
                restore()

        try:
            yield undo
        except BaseException:
            undo()
            self.optimiser.zero_grad(set_to_none=True)
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return all that was learned; "algorithm" is there if that has a state.

        Tensors are the learner's own, as in torch's state dicts: write or copy them before the
        next `step`.
        """
        state = {
            "model": dict(self.model.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "version": self.version,
        }
        own = self.algorithm.state_dict()
        return state | ({"algorithm": own} if own else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, whose moments of the optimiser become the learner's own.

        Settings of the optimiser, such as its epsilon, stay those that the flags have given.

        Raises:
          StateError: if it is of another network, optimiser or algorithm.
        """
        with within("model"):
            self.model.load_state_dict(item(state, "model", dict))
        with within("optimiser"):
            load_moments(self.optimiser, item(state, "optimiser", dict))
        self.version = whole(state, "version")
        own = item(state, "algorithm", dict, default={})
        if own or self.algorithm.state_dict():
            with within("algorithm"):
                self.algorithm.load_state_dict(own)
        self._observes = True
        self._run.forget()
