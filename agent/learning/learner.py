"""`Learner` turns batches into new weights.

agent/learning/feed.py makes the batches. The owner of the learner, agent/run/trainer.py, passes the
weights on to the workers. The learner uses one thread, no files and no clock of its own.

Next to read: agent/run/experience.py, which makes batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm, Loss, check_loss
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.learning import recorded
from ritornello.agent.learning.feed import PackedBatch
from ritornello.agent.learning.optim import load_moments, rate_is_tensor, set_rate, state_of
from ritornello.agent.learning.recorded import Recorded
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.pixels import shown_steps
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.core import faults
from ritornello.core.saved_state import item, whole, within

if TYPE_CHECKING:
    from ritornello.agent.learning.layer_gradients import LayerGradients

Restores = list[Callable[[], None]]
WEIGHTS_MEASURED_EACH = 100  # updates; a sum over all weights, so not for each


@dataclass(frozen=True, eq=False)
class UpdateMetrics(Mapping[str, Tensor]):
    """Metrics of an update by name, most of them in one row on the learner's device."""

    names: tuple[str, ...]  # names of the numbers in `row`
    row: Tensor  # [names] float32
    more: Mapping[str, Tensor]  # metrics that not every update has, 0-d

    def __getitem__(self, name: str) -> Tensor:
        return self.row[self.names.index(name)] if name in self.names else self.more[name]

    def __iter__(self) -> Iterator[str]:
        yield from (*self.names, *self.more)

    def __len__(self) -> int:
        return len(self.names) + len(self.more)


class Computed(NamedTuple):
    """The loss of a batch and its gradient, before it is known whether they are finite."""

    loss: Loss
    gradients: list[Tensor | None]  # for each parameter, from this learner's batch
    summed: list[Tensor]  # `gradients` summed over all learners, without None
    norm: Tensor  # [], norm of `summed`
    is_finite: Tensor  # [] bool: an update can be made
    names: tuple[str, ...]  # names of the metrics in `row`
    row: Tensor  # [names] float32
    restores: Restores  # functions that restore all that has moved


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
        games: Collection[int] | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Prepare for training; `model` stays on its device.

        Args:
          model: the network, with all parameters on the device of the batches.
          algorithm: computes the loss of a batch.
          optimiser: optimiser of the parameters of `model`.
          schedule: function from progress in [0, 1] to the learning rate.
          max_grad_norm: upper bound of the global L2 norm of the gradient; inf does not clip.
          precision: number format of the torso, "fp32" or "bf16". Everything else is fp32.
          channels_last: keep images and convolution weights in NHWC order (for tensor cores).
          threads: on a CPU, number of threads that compute shares of the torso's rows.
          compile: run the torso through torch.compile; the first step then takes a minute.
          cuda_graph: on a GPU, replay what an update computes (agent/learning/recorded.py).
          gradients_due: whether an update also reports the gradient of each layer; None: never.
          games: those that are played, whose images are waited for; None: all of the model.
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
        self._max_grad_norm = max_grad_norm
        self._parameters = list(model.parameters())
        self._device = self._parameters[0].device
        is_on_gpu = self._device.type == "cuda"
        self._finished = torch.cuda.Event(blocking=True) if is_on_gpu else None
        self.record_with(recorded.cuda_graph if is_on_gpu and cuda_graph else None)
        # PopArt scales the value head with the rewards, so its size says nothing.
        heads = {id(parameter) for parameter in model.value_head.parameters()}
        self._measured = [p for p in self._parameters if id(p) not in heads]
        self._games = games
        self._observes = True  # whether the statistics of some observations may still move
        for network in (model, *algorithm.networks()):
            network.set_precision(precision)
            network.set_threads(threads)
            if channels_last:
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if compile:
                network.torso_net.compile(dynamic=False)

    def record_with(self, record: recorded.Record | None) -> None:
        """Record the updates from packed batches with `record`; None: compute each of them."""
        self._compute_packed, self._move_weights = Recorded(record), Recorded(record)

    def scale_lr(self, factor: float) -> None:
        """Multiply the learning rate of the schedule by `factor`, instead of 1, from now on."""
        self._lr_factor = factor

    def step(self, batch: Batch | PackedBatch, progress: float) -> UpdateMetrics:
        """Learn from one batch: loss, gradient, clip, optimiser step.

        The loss needs the statistics of pixels and of PopArt, so both move before it is known
        whether the update is finite. If it is not, or if anything raises before the optimiser's
        step, they are restored: `state_dict` is then bit by bit as before. `progress` is the share
        of the annealing that is done, 0 to 1.

        Returns:
          Metrics: name -> 0-d tensor, detached, on the model's device; reading one waits for the
          device.

        Raises:
          NonFiniteUpdate: if the loss or a gradient is not finite. It names the first bad quantity.
        """
        lr = self._schedule(progress) * self._lr_factor
        moment = torch.tensor([self.version, progress, lr], dtype=torch.float64).to(self._device)
        computed = self._compute(batch, moment, progress)
        try:
            self._check_finite(computed, batch)  # the only wait for the device in a step
            if self.group.world_size > 1:
                own = [gradient for gradient in computed.gradients if gradient is not None]
                torch._foreach_copy_(own, computed.summed)
            layers = self._layers_if_due()
            faults.at("learner.step")
        except BaseException:
            self._undo(computed.restores)
            raise
        set_rate(self.optimiser, lr)
        move, kind = self._step_of_optimiser, self._kind_of_move(computed)
        self._move_weights(move, kind, computed.norm, moment[2])

        self.errors = computed.loss.errors
        self.version += 1
        more = {} if layers is None else layers.metrics()
        if self.version % WEIGHTS_MEASURED_EACH == 0:
            weights = [parameter.detach() for parameter in self._measured]
            more["weights/norm"] = torch.nn.utils.get_total_norm(weights, foreach=True)
        return UpdateMetrics(computed.names, computed.row.clone(), more)

    def _compute(self, batch: Batch | PackedBatch, moment: Tensor, progress: float) -> Computed:
        """Return the loss of a batch, its gradient in the parameters; a GPU may replay this."""
        if isinstance(batch, Batch):
            return self._loss_and_gradient(batch, moment, progress)
        algorithm = self.algorithm

        def work(packed: Tensor, moment: Tensor) -> Computed:
            known = moment[1] if algorithm.is_pure() else progress
            return self._loss_and_gradient(batch.layout.unpack(packed), moment, known)

        kind = None  # what the recorded work depends on besides tensors
        if algorithm.is_pure() and not (self._observes and self.model.unsettled(self._games)):
            kind = (algorithm, algorithm.config, batch.layout, len(batch.packed))
        computed: Computed = self._compute_packed(work, kind, batch.packed, moment)
        for parameter, gradient in zip(self._parameters, computed.gradients, strict=True):
            parameter.grad = gradient  # a recording writes to memory, and knows no parameters
        return computed

    @torch.enable_grad()  # whatever an environment that plays in this process has set
    def _loss_and_gradient(
        self, batch: Batch, moment: Tensor, progress: float | Tensor
    ) -> Computed:
        """Compute the loss of a batch, and leave its gradient in the parameters.

        `moment`, [3] float64, holds the number of updates done, progress and learning rate, for the
        metrics; `progress` is for the loss.
        """
        restores = self._snapshots()
        try:
            self._observe(batch)
            self.optimiser.zero_grad(set_to_none=True)
            loss = self.algorithm.loss(self.model, batch, self.optimiser, progress)
            check_loss(loss, self.algorithm, batch.reward.shape)
            loss.total.backward()
            gradients = [parameter.grad for parameter in self._parameters]
            summed, total = self._sum_over_learners(gradients, loss.total.detach())
            norm = torch.nn.utils.get_total_norm(summed, foreach=True)
            metrics = loss.metrics | self._metrics(batch, norm, moment)
            row = torch.stack([value.detach().float() for value in metrics.values()])
        except BaseException:
            self._undo(restores)
            raise
        errors = None if loss.errors is None else loss.errors.detach()
        loss = loss._replace(total=loss.total.detach(), errors=errors)
        is_finite = torch.isfinite(norm + total)
        return Computed(loss, gradients, summed, norm, is_finite, tuple(metrics), row, restores)

    def _sum_over_learners(
        self, gradients: list[Tensor | None], loss: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return gradients and loss [] of all learners together: one sum of one flat tensor.

        All learners see the same sum, so all of them make an update, or all leave it out.
        """
        own = [gradient for gradient in gradients if gradient is not None]
        if self.group.world_size == 1:
            return own, loss
        flat = torch.cat([*(part.flatten() for part in own), loss.reshape(1)])
        self.group.sum_(flat, "gradient")
        *pieces, total = torch.split(flat, [*(part.numel() for part in own), 1])
        return [piece.view_as(part) for piece, part in zip(pieces, own, strict=True)], total

    def _check_finite(self, computed: Computed, batch: Batch | PackedBatch) -> None:
        """Raise NonFiniteUpdate on a bad gradient: it must not reach the weights."""
        if self._finished is not None:
            self._finished.record()
            self._finished.synchronize()  # asleep: other threads and workers have the core
        if not computed.is_finite:
            from ritornello.agent.learning.non_finite import error_of

            _restore_all(computed.restores)  # the search for the culprit starts from there
            raise error_of(
                computed.loss,
                batch.unpacked(),
                self.algorithm,
                self.model,
                self.version,
                self.group,
            )

    def _step_of_optimiser(self, norm: Tensor, lr: Tensor) -> None:
        """Clip the gradient in the parameters, and move the weights by it."""
        torch.nn.utils.clip_grads_with_norm_(
            self._parameters, self._max_grad_norm, norm, foreach=True
        )
        set_rate(self.optimiser, lr)
        self.optimiser.step()

    def _kind_of_move(self, computed: Computed) -> Any:
        """Return the recording that made `computed`, if the optimiser's step can be recorded.

        A recorded step reads the gradient of that recording, and of no other.
        """
        recording = self._compute_packed.recording
        is_replayed = recording is not None and computed is recording.result
        return recording if is_replayed and rate_is_tensor(self.optimiser) else None

    def _layers_if_due(self) -> LayerGradients | None:
        is_due = self._gradients_due is not None and self._gradients_due()
        if not is_due:
            return None
        from ritornello.agent.learning.layer_gradients import LayerGradients

        return LayerGradients(self.model)

    def _observe(self, batch: Batch) -> None:
        """Move the statistics of observations, as long as they may still move."""
        if self._observes:
            length, size = batch.first.shape
            rows, columns = shown_steps(length, size, self.version, self.group.rank)
            self.model.observe(batch.obs[rows, columns], batch.task_id[columns], self.group)

    def _metrics(self, batch: Batch, norm: Tensor, moment: Tensor) -> dict[str, Tensor]:
        """Return the metrics of an update, besides those of its loss."""
        version, _, lr = moment
        lag = (version - batch.version) * batch.is_online
        return {
            "grad/norm_before_clip": norm,
            "grad/clipped_fraction": norm > self._max_grad_norm,
            "optimiser/lr": lr,
            "lag/mean_updates": lag.sum() / batch.is_online.sum(),
            "lag/max_updates": torch.where(batch.is_online.any(), lag.max(), torch.nan),
        }

    def _snapshots(self) -> Restores:
        """Return what restores all that moves before the optimiser's step."""
        parts = [self.model.value_head.snapshot(self.optimiser), self.algorithm.snapshot()]
        if self._observes:
            parts += [statistics.snapshot() for statistics in self.model.unsettled().values()]
            self._observes = bool(self.model.unsettled(self._games))
        return parts

    def _undo(self, restores: Restores) -> None:
        _restore_all(restores)
        self.optimiser.zero_grad(set_to_none=True)
        if not self.optimiser.state:
            self._compute_packed.forget()  # nothing may be recorded before there are moments

    def state_dict(self) -> dict[str, Any]:
        """Return all that was learned; "algorithm" is only there if the algorithm has a state.

        Tensors are the learner's own, as in torch's state dicts: write or copy them before the next
        `step`.
        """
        state = {
            "model": dict(self.model.state_dict()),
            "optimiser": state_of(self.optimiser),
            "version": self.version,
        }
        own = self.algorithm.state_dict()
        return state | ({"algorithm": own} if own else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`; the optimiser's moments become the learner's own.

        Settings of the optimiser, such as its epsilon, stay those that the flags have given.

        Raises:
          StateError: if the state is of another network, optimiser or algorithm.
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
        self._compute_packed.forget()
        self._move_weights.forget()


def _restore_all(restores: Restores) -> None:
    for restore in restores:
        restore()
