"""IMPALA: the loss of V-trace actor-critic, with the options of its successors.

One class holds the flow of an update; the formulas are in vtrace.py, losses.py and rewards.py:

    torso over T+1 rows, once -> hidden units, row after row if the model has a memory -> values ->
    V-trace -> PopArt moves its statistics and rewrites the value head -> value head again -> losses
    in normalised units

Options: LASER's trust region (drop states whose policy has moved too far), CLEAR's cloning of
replayed behaviour, PopArt (a property of the model), value rescaling. Sizes: T steps, B unrolls, A
actions. Next to read: agent/learner.py, which differentiates the loss.

A recurrent model starts each unroll from the state that the actor was in. In a replayed unroll that
state comes from weights of long ago; with *burn-in* (Kapturowski et al., "Recurrent Experience
Replay in Distributed Reinforcement Learning", R2D2, 2019, section 3) its first rows only bring the
state up to date: nothing is learned there, and no gradient flows back into them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agent.algorithms import losses
from agent.algorithms.rewards import REWARD_TRANSFORMS, rescale, unrescale
from agent.algorithms.vtrace import VTrace, vtrace
from agent.batch import Batch
from agent.models.base import ActorCritic, Heads
from agent.non_finite import Stage, given_stages
from core.errors import ConfigError

TRUST_REGIONS = ("none", "implied", "kl_pi_mu", "kl_mu_pi")
MAX_LOG_RATIO = 20.0  # for metrics only: keeps the square of a ratio finite


@dataclass(frozen=True)
class ImpalaConfig:
    """Everything that decides the loss. Costs are per step; see `loss_reduction`."""

    discount: float = 0.99  # gamma
    rho_bar: float = 1.0  # clip of importance ratios in the value targets
    c_bar: float = 1.0  # clip of importance ratios in the trace
    rho_pg_bar: float = 1.0  # clip of importance ratios in the policy gradient
    lambda_: float = 1.0  # 1: full V-trace, 0: one-step targets
    policy_cost: float = 1.0
    value_cost: float = 0.5  # times 0.5 (v - V)^2, as in IMPALA's released code
    entropy_cost: float = 0.01
    entropy_end_cost: float | None = None  # at the end of training, linearly; None: no change
    entropy_online_only: bool = False  # LASER: True; CLEAR: False
    policy_cloning_cost: float = 0.0  # CLEAR: 0.01
    value_cloning_cost: float = 0.0  # CLEAR: 0.005
    cloning_on_online: bool = False  # CLEAR clones replayed data only
    trust_region: str = "none"  # one of TRUST_REGIONS; LASER: implied
    trust_threshold: float = 0.3  # b in nats: states at or above it are dropped
    trust_masks_cloning: bool = False  # cloning is for just those states, so not by default
    reward_transform: str = "abs_one_sign"  # a key of REWARD_TRANSFORMS
    value_rescaling: bool = False  # the value head predicts h(V); not together with PopArt
    advantage_normalisation: str = "none"  # none | rms: divide by their root mean square
    loss_reduction: str = "sum"  # sum | mean over valid steps; published costs assume sum
    burn_in_steps: int = 0  # k, first rows of replayed unrolls that only warm the memory up

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        choices = {
            "trust_region": TRUST_REGIONS,
            "reward_transform": tuple(REWARD_TRANSFORMS),
            "advantage_normalisation": ("none", "rms"),
            "loss_reduction": ("sum", "mean"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}."
                )
        for name in ("discount", "lambda_"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected in [0, 1].")
        for name in ("rho_bar", "c_bar", "rho_pg_bar", "trust_threshold"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected above 0.")
        if self.burn_in_steps < 0:
            raise ConfigError(f"burn_in_steps is {self.burn_in_steps}, expected 0 or more.")
        if self.c_bar > self.rho_bar:
            raise ConfigError(
                f"c_bar is {self.c_bar}, expected at most rho_bar ({self.rho_bar}), as V-trace "
                "assumes. Lower c_bar or raise rho_bar."
            )


class Loss(NamedTuple):
    """What one batch says about the model."""

    total: Tensor  # 0-d, carries the gradient
    metrics: dict[str, Tensor]  # 0-d, detached; names as declared in metrics/record.py
    # [T, B] |value target - value| as learned, NaN where no step was learned from: what replay by
    # priorities draws by. None: the algorithm has no such thing.
    errors: Tensor | None = None


class Impala:
    """The V-trace actor-critic loss. Stateless: everything learned is in the model."""

    def __init__(self, config: ImpalaConfig, buffers: Sequence[str] = ()) -> None:
        """Keep the config.

        Args:
          config: everything that decides the loss.
          buffers: names of the replay buffers, in the order of `Batch.source`; each gets metrics of
            its own. None: only those of the whole batch.
        """
        self.config = config
        self.buffers = tuple(buffers)

    def check(self, model: ActorCritic) -> None:
        """Raise ConfigError if config and model contradict each other."""
        if self.config.value_rescaling and model.value_head.enabled:
            raise ConfigError(
                "value_rescaling and PopArt are both on, expected at most one: both make the "
                "size of returns bearable. Turn one off."
            )
        if self.config.burn_in_steps and not model.state_count:
            raise ConfigError(
                f"burn_in_steps is {self.config.burn_in_steps}, expected 0 for a model without "
                "memory: there is nothing to warm up. Use --use_lstm=True, or leave it out."
            )

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float = 0.0,
    ) -> Loss:
        """Compute the loss of one batch; moves PopArt's statistics if the model has them.

        Args:
          model: on the batch's device.
          batch: T steps of B unrolls.
          optimiser: whose moments PopArt rescales along with the value head.
          progress: share of the training that is done, 0 to 1; the entropy cost depends on it.
        """
        config = self.config
        burn_in, keep_gradient = self._burn_in(batch)
        valid = ~batch.reset_row  # [T, B]
        if burn_in is not None:
            valid = valid & ~burn_in
        features = model.torso(batch.obs, batch.task_id)  # [T+1, B, F], its one pass
        hidden, _ = model.hidden(features, batch.inputs(), batch.state, keep_gradient)
        heads = model.heads(hidden, batch.task_id)
        log_pi = heads.params[:-1].log_softmax(-1)
        log_mu = batch.behaviour_params.log_softmax(-1)
        action = batch.action.unsqueeze(-1)
        log_pi_action = log_pi.gather(-1, action).squeeze(-1)

        with torch.no_grad():
            log_rhos = log_pi_action - log_mu.gather(-1, action).squeeze(-1)
            # A ratio of 0 makes V-trace cut there: nothing is learned from a reset row, and
            # nothing flows back over it.
            log_rhos = log_rhos.masked_fill(~valid, -math.inf)
            trust = self._trust(log_pi, log_mu)
            corrected = self._vtrace(batch, log_rhos, heads, trust)
            learned = valid if trust is None else valid & trust
            targets = rescale(corrected.targets) if config.value_rescaling else corrected.targets
            if model.value_head.enabled:
                model.value_head.update(targets, batch.task_id, learned, optimiser)
            targets_normalised = model.value_head.normalise(targets, batch.task_id)
            advantages = self._normalise_advantages(model, batch, corrected.advantages, learned)

        if model.value_head.enabled:
            # The head has just been rewritten, so what the losses differentiate is its new form.
            values_normalised = model.value_head(hidden, batch.task_id).value_normalised[:-1]
        else:
            values_normalised = heads.value_normalised[:-1]

        per_step = {
            "policy": config.policy_cost * losses.policy_gradient(log_pi_action, advantages),
            "value": config.value_cost * losses.value_error(values_normalised, targets_normalised),
        }
        per_step = {name: term * learned for name, term in per_step.items()}
        entropy = losses.entropy(log_pi)
        counted = learned & batch.is_online if config.entropy_online_only else learned
        per_step["entropy"] = -self._entropy_cost(progress) * entropy * counted
        per_step |= self._cloning(model, batch, log_pi, log_mu, values_normalised, valid, learned)

        sums = (torch.stack(list(per_step.values())) * batch.weight).sum((1, 2))
        if config.loss_reduction == "mean":
            sums = sums / valid.sum().clamp(min=1)
        total = sums.sum()

        metrics = {"loss/total": total.detach()}
        metrics |= {
            f"loss/{name}": term
            for name, term in zip(per_step, sums.detach().unbind(), strict=True)
        }
        with torch.no_grad():
            metrics |= self._health(batch, valid, log_rhos, log_pi, log_mu, entropy, trust)
            metrics |= _value_health(valid, heads.value[:-1], targets)
        if model.value_head.enabled:
            statistics = {"mu": model.value_head.mu.clone(), "sigma": model.value_head.sigma}
            for name, of_task in statistics.items():
                metrics |= {f"popart/{name}_{task}": x for task, x in enumerate(of_task.unbind())}
        errors = (targets_normalised - values_normalised.detach()).abs()
        return Loss(total, metrics, errors.masked_fill(~learned, math.nan))

    def stages(self, model: ActorCritic, batch: Batch) -> Iterator[Stage]:
        """Yield what the loss is made of, for who asks why it is not finite."""
        both, config = "row, unroll", self.config
        reward = REWARD_TRANSFORMS[config.reward_transform](batch.reward)
        params = batch.behaviour_params
        if not config.policy_cloning_cost:  # then what acted on a reset row does not matter
            params = params.masked_fill(batch.reset_row.unsqueeze(-1), 0)
        values = batch.behaviour_value if config.value_cloning_cost else None
        yield from given_stages(model, batch, reward, params, values)
        features = model.torso(batch.obs, batch.task_id)
        hidden, _ = model.hidden(features, batch.inputs(), batch.state)
        heads = model.heads(hidden, batch.task_id)
        log_pi = heads.params[:-1].log_softmax(-1)
        yield Stage("ratio", "log_pi", log_pi, both)
        yield Stage("value", "value", heads.value, both)
        log_mu = batch.behaviour_params.log_softmax(-1)
        log_rhos = (log_pi - log_mu).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        log_rhos = log_rhos.masked_fill(batch.reset_row, -math.inf)
        corrected = self._vtrace(batch, log_rhos, heads, self._trust(log_pi, log_mu))
        yield Stage("value", "value target", corrected.targets, both)

    def _burn_in(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Return the rows without loss [T, B], and `keep_gradient` for the model [T+1, B].

        Both None without burn-in. V-trace looks ahead only, so what it says of the rows after the
        burn-in does not depend on those before.
        """
        steps = self.config.burn_in_steps
        if not steps:
            return None, None
        row = torch.arange(batch.steps + 1, device=batch.is_online.device).unsqueeze(-1)
        replayed = ~batch.is_online
        # To cut all that is before row `steps`, cutting the state that enters it is enough.
        return (row[:-1] < steps) & replayed, ~((row == steps) & replayed)

    def _entropy_cost(self, progress: float) -> float:
        """Return the cost at `progress`: in a straight line from the first to the last."""
        first, last = self.config.entropy_cost, self.config.entropy_end_cost
        return first if last is None else first + (last - first) * progress

    def _vtrace(self, batch: Batch, log_rhos: Tensor, heads: Heads, trust: Tensor | None) -> VTrace:
        """Run V-trace in reward units."""
        config = self.config
        return vtrace(
            log_rhos,
            config.discount * ~batch.terminated,
            REWARD_TRANSFORMS[config.reward_transform](batch.reward),
            unrescale(heads.value) if config.value_rescaling else heads.value,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            rho_pg_bar=config.rho_pg_bar,
            lambda_=config.lambda_,
            trust=trust,
        )

    def _trust(self, log_pi: Tensor, log_mu: Tensor) -> Tensor | None:
        """Return [T, B] bool, states whose policy is still near the one that acted."""
        kind = self.config.trust_region
        if kind == "none":
            return None
        if kind == "implied":
            distance = losses.implied_kl(log_pi, log_mu, self.config.rho_bar)
        elif kind == "kl_pi_mu":
            distance = losses.kl_divergence(log_pi, log_mu)
        else:
            distance = losses.kl_divergence(log_mu, log_pi)
        return distance < self.config.trust_threshold

    def _normalise_advantages(
        self, model: ActorCritic, batch: Batch, advantages: Tensor, learned: Tensor
    ) -> Tensor:
        """Divide by sigma of the game (what makes one entropy cost fit all games), then by rms.

        Each game by its own rms: one in which something happens all the time would otherwise leave
        hardly any policy gradient to one with a point now and then.
        """
        head = model.value_head
        if head.enabled:
            advantages = advantages / head.scale(batch.task_id)
        if self.config.advantage_normalisation == "rms":
            belongs = batch.task_id == torch.arange(
                head.task_count, device=batch.task_id.device
            ).unsqueeze(-1)  # [K, B]
            sums = torch.stack([advantages.square() * learned, learned.float()]).sum(1)  # [2, B]
            squares, counts = (sums.unsqueeze(1) * belongs).sum(-1)  # each [K]
            rms = (squares / counts.clamp(min=1)).sqrt()
            advantages = advantages / (rms[batch.task_id] + 1e-8)
        return advantages

    def _cloning(
        self,
        model: ActorCritic,
        batch: Batch,
        log_pi: Tensor,
        log_mu: Tensor,
        values_normalised: Tensor,
        valid: Tensor,
        learned: Tensor,
    ) -> dict[str, Tensor]:
        """Return CLEAR's terms per step, or none if their costs are 0."""
        config = self.config
        terms: dict[str, Tensor] = {}
        mask = learned if config.trust_masks_cloning else valid
        if not config.cloning_on_online:
            mask = mask & ~batch.is_online
        if config.policy_cloning_cost:
            cloning = losses.policy_cloning(log_mu, log_pi)
            terms["policy_cloning"] = config.policy_cloning_cost * cloning * mask
        if config.value_cloning_cost:
            # Stored in reward units, because the statistics have moved since; compared in today's.
            behaviour_values = model.value_head.normalise(batch.behaviour_value, batch.task_id)
            cloning = losses.value_cloning(values_normalised, behaviour_values)
            terms["value_cloning"] = config.value_cloning_cost * cloning * mask
        return terms

    def _health(
        self,
        batch: Batch,
        valid: Tensor,
        log_rhos: Tensor,
        log_pi: Tensor,
        log_mu: Tensor,
        entropy: Tensor,
        trust: Tensor | None,
    ) -> dict[str, Tensor]:
        """Return how far the data is from the policy, averaged over valid steps."""
        ratios = log_rhos.clamp(max=MAX_LOG_RATIO).exp()
        rows = {
            "policy/kl_behaviour_target": losses.kl_divergence(log_mu, log_pi),
            "policy/entropy": entropy,
            "vtrace/rho_mean": ratios,
            "vtrace/rho_clipped_fraction": (ratios > self.config.rho_bar).float(),
            "vtrace/ess": ratios.square(),
        }
        if trust is not None:
            rows["vtrace/masked_fraction"] = (~trust).float()
        sums = (torch.stack(list(rows.values())) * valid).sum(1)  # [rows, B]
        sum_of = dict(zip(rows, sums.unbind(), strict=True))
        steps = valid.sum(0)  # [B]
        means = sums.sum(1) / steps.sum().clamp(min=1)
        metrics = dict(zip(rows, means.unbind(), strict=True))
        # Effective sample size as a share of the steps: (mean rho)^2 / mean rho^2, 1 on-policy.
        mean_square = metrics["vtrace/ess"].clamp(min=1e-12)
        metrics["vtrace/ess"] = metrics["vtrace/rho_mean"].square() / mean_square
        # An environment with one action has no entropy to speak of; 2 keeps the share finite.
        highest_entropy = math.log(max(2, log_pi.shape[-1]))
        metrics["policy/entropy_fraction"] = metrics["policy/entropy"] / highest_entropy
        metrics["vtrace/reset_fraction"] = batch.reset_row.float().mean()
        if self.buffers:
            metrics |= self._buffer_health(batch, steps, sum_of)
        return metrics

    def _buffer_health(
        self, batch: Batch, steps: Tensor, sum_of: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the same for each buffer; NaN for one that the batch has nothing of.

        Args:
          batch: knows where each column is from.
          steps: [B], valid steps of each column.
          sum_of: [B] each, sums over the valid steps of each column.
        """
        numbers = torch.arange(len(self.buffers), device=batch.source.device)
        belongs = batch.source.unsqueeze(-1) == numbers  # [B, K]
        per_step = {"kl_behaviour_target": sum_of["policy/kl_behaviour_target"]}
        if "vtrace/masked_fraction" in sum_of:
            per_step["masked_fraction"] = sum_of["vtrace/masked_fraction"]
        columns = torch.stack([torch.ones_like(steps), batch.age, steps, *per_step.values()])
        draws, ages, counts, *sums = (columns.unsqueeze(-1) * belongs).sum(1).unbind()  # each [K]
        means = {"drawn_age_updates": ages / draws}
        means |= {name: total / counts for name, total in zip(per_step, sums, strict=True)}
        return {
            f"replay/{buffer}/{name}": value
            for name, of_buffers in means.items()
            for buffer, value in zip(self.buffers, of_buffers.unbind(), strict=True)
        }


def _value_health(valid: Tensor, values: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return how well values explain the targets they are regressed on."""
    count = valid.sum().clamp(min=1)
    errors = targets - values
    rows = torch.stack([values, targets, errors, targets.square(), errors.square()])
    value, target, error, target_square, error_square = (rows * valid).sum((1, 2)) / count
    target_variance = (target_square - target.square()).clamp(min=1e-8)
    return {
        "value/mean": value,
        "value/target_mean": target,
        "value/explained_variance": 1 - (error_square - error.square()) / target_variance,
    }
