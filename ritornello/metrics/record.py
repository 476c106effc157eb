"""Record: the measurements of one moment; METRICS: the one list of what may be measured.

All parts hand their measurements to the trainer as plain numbers. Every `--log_interval_s` seconds
the trainer makes a Record of them and gives it to the sinks (metrics/sinks.py, metrics/console.py).
The name of a metric has the form `group/quantity_unit`. It is declared here with its meaning (those
of the machine, `system/...`, in metrics/machine_metrics.py; those of other agents and machines in
metrics/distributed_metrics.py), and docs/metrics.md is generated from
this list (`python -m ritornello.metrics`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ritornello.core.errors import PlatformError
from ritornello.core.nearest_names import did_you_mean
from ritornello.metrics.distributed_metrics import DISTRIBUTED_METRICS
from ritornello.metrics.machine_metrics import MACHINE_METRICS, MetricInfo
from ritornello.metrics.machine_metrics import metric as _info

# Means are over the time since the previous record, unless the sentence says otherwise. A `*`
# stands for a name that is not known here: a replay buffer or the number of a game.
METRICS: dict[str, MetricInfo] = {
    "throughput/agent_steps_per_s": _info("1/s", "Decisions of the agent, all environments."),
    "throughput/frames_per_s": _info("1/s", "Simulator frames: agent steps x action repeat."),
    "throughput/updates_per_s": _info("1/s", "Optimiser steps of the learner."),
    "episode/return_raw": _info(
        "points", "Mean return of the games that ended since the previous record, not clipped."
    ),
    "episode/return_mean": _info(
        "points",
        "Mean return of the last --avg_buff_size games.",
        "rises; this is the curve to look at",
    ),
    "episode/return_best": _info("points", "Best return of a single game so far."),
    "episode/score_mean": _info(
        "",
        "Several games: mean over the games of their mean returns, each human-normalised (0: "
        "random play, 1: human play). Games without known human scores are left out. If no game "
        "has one, the unit is points.",
        "rises; this is the curve to look at",
    ),
    "episode/return_mean_*": _info(
        "points", "Several games: mean return of the last --avg_buff_size of one game.", "rises"
    ),
    "episode/return_best_*": _info("points", "Several games: best return of one game so far."),
    "episode/length_steps_*": _info(
        "agent steps", "Several games: mean length of the finished episodes of one game."
    ),
    "episode/agent_steps_*": _info(
        "agent steps",
        "Several games: agent steps of one game so far, by how many environments play it.",
    ),
    "episode/count_*": _info("games", "Several games: finished episodes of one game so far."),
    "episode/length_steps": _info("agent steps", "Mean length of the games that ended."),
    "episode/length_frames": _info("frames", "Mean length of the games, in simulator frames."),
    "evaluation/return_sampled": _info(
        "points",
        "Mean raw return of the whole games of the newest evaluation, with actions drawn from the "
        "policy (--evaluate_every_steps).",
        "rises",
    ),
    "evaluation/return_greedy": _info(
        "points", "The same with the most probable actions, in other games.", "rises"
    ),
    "evaluation/return_sampled_*": _info("points", "Several games: the same of one game.", "rises"),
    "evaluation/return_greedy_*": _info("points", "Several games: the same of one game.", "rises"),
    "evaluation/score": _info(
        "",
        "By what the best model is chosen: the mean return with drawn actions; of several games "
        "the mean of those that are human-normalised, where these are known.",
        "rises",
    ),
    "evaluation/score_best": _info(
        "", "The highest score so far, of the model in best_evaluated/."
    ),
    "evaluation/agent_steps": _info("agent steps", "Of the weights that were evaluated."),
    "evaluation/time_s": _info("s", "Time that the newest evaluation took, beside the training."),
    "evaluation/left_out": _info(
        "evaluations",
        "Evaluations of this session that fell due while another one was played.",
        "few: otherwise raise --evaluate_every_steps",
    ),
    "evaluation/lost": _info(
        "evaluations", "Evaluations of this session that were lost with their process.", "0"
    ),
    "loss/total": _info("", "What is minimised: the weighted sum of the losses below."),
    "loss/policy": _info("", "Policy gradient loss with V-trace advantages.", "noisy, around 0"),
    "loss/value": _info("", "Squared error of the (normalised) value against its V-trace target."),
    "loss/entropy": _info("", "Minus the entropy of the policy, as it enters the total."),
    "loss/policy_cloning": _info("", "CLEAR: KL(behaviour || policy) on replayed steps."),
    "loss/value_cloning": _info("", "CLEAR: squared change of the value on replayed steps."),
    "policy/entropy": _info(
        "nats", "Mean entropy of the policy.", "falls slowly from log(actions)"
    ),
    "policy/entropy_fraction": _info(
        "fraction", "The entropy divided by log(actions); 1 means that the policy is random."
    ),
    "policy/kl_behaviour_target": _info(
        "nats",
        "Mean KL(behaviour || policy): how far the data is from the policy.",
        "judged for each buffer: replay/*/kl_behaviour_target",
    ),
    "vtrace/rho_mean": _info("", "Mean importance weight, not clipped.", "its expectation is 1"),
    "vtrace/rho_clipped_fraction": _info(
        "fraction", "Importance weights that were clipped.", "about half where policies are near"
    ),
    "vtrace/ess": _info(
        "fraction",
        "Effective sample size of the importance weights as a share of the batch.",
        "near 0 means that a few steps decide everything",
    ),
    "vtrace/masked_fraction": _info(
        "fraction", "LASER: steps ignored because their data is too far from the policy."
    ),
    "vtrace/reset_fraction": _info(
        "fraction", "Rows that are masked because an environment was reset."
    ),
    "impact/ratio_mean": _info("", "IMPACT: mean ratio of policy and target policy.", "near 1"),
    "impact/ratio_clipped_fraction": _info(
        "fraction", "IMPACT: steps that teach nothing: their ratio is beyond --impact_clip."
    ),
    "impact/kl_target_policy": _info("nats", "IMPACT: mean KL(target || policy)."),
    "impact/target_age_updates": _info("updates", "IMPACT: updates since the target was renewed."),
    "value/explained_variance": _info(
        "",
        "1 - Var(target - value) / Var(target). It flatters, because targets are partly made of "
        "the network's own values.",
        "rises towards 1; around 0 again when all returns have become equal",
    ),
    "value/mean": _info("points", "Mean value, unnormalised (discounted transformed reward)."),
    "value/target_mean": _info("points", "Mean V-trace target, same unit.", "close to value/mean"),
    "value/share_of_bound": _info(
        "",
        "Largest absolute V-trace target of a batch, divided by the most that clipped rewards can "
        "be worth: the largest of them over 1 - gamma. Not there if they are not clipped, or gamma "
        "is 1.",
        "far below 1; above it the values diverge",
    ),
    "grad/norm_before_clip": _info("", "Norm of the gradient of all parameters, before clipping."),
    "grad/clipped_fraction": _info(
        "fraction",
        "Updates whose gradient was clipped.",
        "any; always 1 matters with RMSProp (raise the clip), not with Adam",
    ),
    "weights/norm": _info(
        "",
        "Norm of all weights but the value head's, at each hundredth update.",
        "tens; grows slowly",
    ),
    "gradient/*/norm": _info(
        "",
        "Norm of a layer's gradient before clipping, in one update per record "
        "(--gradient_metrics=True).",
    ),
    "gradient/*/mean_abs": _info(
        "", "Mean absolute gradient of a layer's weights, before clipping."
    ),
    "gradient/*/update_ratio": _info(
        "",
        "Size of a layer's step: |new weights - old| over |old weights|.",
        "around 1e-3; 0.1 is a jump",
    ),
    "gradient/*/zero_fraction": _info(
        "fraction",
        "Weights of a layer whose gradient is exactly 0.",
        "near 1: the units of the layer, or of the next, are dead",
    ),
    "popart/mu_*": _info(
        "points",
        "PopArt: running mean of the value targets of a game.",
        "follows value/target_mean",
    ),
    "popart/sigma_*": _info("points", "PopArt: running standard deviation of a game's targets."),
    "optimiser/lr": _info("", "Learning rate."),
    "learner/bad_updates": _info(
        "updates", "Updates skipped because loss or gradient was not finite, since the start.", "0"
    ),
    "lag/mean_updates": _info(
        "updates",
        "Mean number of updates between acting and learning, over new unrolls; absent without any.",
    ),
    "lag/max_updates": _info(
        "updates", "Largest number of updates between acting and learning in the batch."
    ),
    "replay/ratio": _info(
        "", "Replayed draws per new draw since the start.", "what --replay_parameters asks for"
    ),
    "replay/draws_per_unroll": _info("", "Mean number of times that an unroll is learned from."),
    "replay/unrolls": _info("unrolls", "Unrolls in all buffers, each counted once."),
    "replay/memory_mb": _info("MB", "Size of the items in all buffers, each counted once."),
    "replay/*/fill": _info("fraction", "Unrolls in the buffer over its capacity."),
    "replay/*/mean_age_updates": _info(
        "updates", "Mean number of updates since the unrolls in the buffer came in."
    ),
    "replay/*/drawn_age_updates": _info(
        "updates",
        "Mean number of updates since the unrolls that were drawn came in.",
        "any that leaves kl_behaviour_target in its range",
    ),
    "replay/*/kl_behaviour_target": _info(
        "nats",
        "Mean KL(behaviour || policy) of the unrolls drawn from the buffer.",
        "far less in a queue: health.md",
    ),
    "replay/*/masked_fraction": _info(
        "fraction", "LASER: steps drawn from the buffer that were ignored."
    ),
    "replay/*/draws": _info("draws", "Draws since the start."),
    "replay/*/dropped": _info(
        "unrolls",
        "Unrolls that left, or never got in, without having been drawn; those of the next line "
        "are not among them.",
        "0 for a queue with --discarding_strategy=block",
    ),
    "replay/*/dropped_while_filling": _info(
        "unrolls",
        "Unrolls that a full queue dropped at the start, while other buffers filled up. They are "
        "in those buffers.",
    ),
    "cache/wait_s": _info("s", "Time that the learner waited for batches."),
    "cache/wait_fraction": _info(
        "fraction", "Share of its time that the learner waited.", "near 0: workers are enough"
    ),
    "cache/waits": _info("", "Times that the learner found no batch ready, since the start."),
    "cache/depth": _info("batches", "Capacity of the cache of ready batches."),
    "cache/fill": _info("batches", "Mean number of batches ready when the learner asked."),
    "ring/wait_fraction": _info(
        "fraction",
        "Share of the workers' time spent waiting for a free slot.",
        "near 0; high means that the learner is the bottleneck",
    ),
    "workers/alive": _info("processes", "Workers running.", "--worker_count"),
    "workers/restarts": _info(
        "processes", "Workers (and inference servers) restarted since the start.", "0"
    ),
    "workers/hung": _info(
        "processes", "Workers and servers that were killed because they gave no sign of life.", "0"
    ),
    "workers/lost_unrolls": _info(
        "unrolls", "Unrolls lost with dead workers: half written, or not yet handed over.", "0"
    ),
    "workers/env_fraction": _info("fraction", "Share of the workers' time in environments."),
    "workers/act_fraction": _info("fraction", "Share of the workers' time choosing actions."),
    **DISTRIBUTED_METRICS,
    **MACHINE_METRICS,
}


MAX_COUNT = 2**62  # a counter beyond it is damage, and no array could hold it


_DECLARED: dict[str, MetricInfo] = {}  # those of users, by `declare`


class UndeclaredMetricError(PlatformError, ValueError):
    """A metric was recorded that nobody has declared."""


def declare(name: str, unit: str, doc: str, healthy: str = "") -> None:
    """Declare a metric of one's own, so that it may be recorded: its unit, and what it means.

    Args:
      name: as `group/quantity_unit`; a `*` stands for what is not known beforehand.
      unit: the unit in which it is measured; "" for a number without one.
      doc: what the metric means, one sentence.
      healthy: what one hopes to see, such as "near 1"; "" where that cannot be said.

    Raises:
      UndeclaredMetricError: if the name stands for another metric already.
    """
    info = MetricInfo(unit, doc, healthy)
    known = METRICS.get(name) or _DECLARED.setdefault(name, info)
    if known != info:
        raise UndeclaredMetricError(
            f"metric {name!r} is declared already, as: {known.doc} Choose another name."
        )


def check_declared(name: str) -> MetricInfo:
    """Return what a metric means.

    Raises:
      UndeclaredMetricError: nobody declared the name; the message has the nearest one.
    """
    if name in METRICS:
        return METRICS[name]
    for pattern, info in (*METRICS.items(), *_DECLARED.items()):
        if name == pattern:
            return info
        if "*" in pattern and fnmatchcase(name, pattern):
            return info
    hint = did_you_mean(name, METRICS)
    raise UndeclaredMetricError(
        f"metric {name!r} is not declared: add it to METRICS in metrics/record.py, or call "
        f"ritornello.metrics.record.declare beside what records it{'; ' + hint if hint else '.'}"
    )


@dataclass(frozen=True)
class Record:
    """The counters of a run at one moment, and what was measured since the moment before.

    A missing value is absent: NaN and infinity are left out here, so no sink ever meets them. A
    Record without values is just the counters; sinks get one with each finished game.
    """

    agent_steps: int = 0
    frames: int = 0
    updates: int = 0
    episodes: int = 0
    wall_s: float = 0.0  # seconds of training, earlier sessions included
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        finite = {k: float(v) for k, v in self.values.items() if math.isfinite(v)}
        object.__setattr__(self, "values", finite)

    def to_json(self) -> str:
        """Return one line of metrics.jsonl, without the line end."""
        return json.dumps({**self.__dict__, "wall_s": round(self.wall_s, 3)})

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Read back a line of metrics.jsonl.

        Raises:
          ValueError: if it is not what `to_json` wrote, whatever it is.
        """
        try:
            data = json.loads(line)
            counters = {n: data[n] for n in ("agent_steps", "frames", "updates", "episodes")}
            if not all(type(n) is int and 0 <= n <= MAX_COUNT for n in counters.values()):
                raise ValueError(f"counters are {counters!r:.100}")
            wall_s = float(data["wall_s"])
            if not math.isfinite(wall_s):
                raise ValueError(f"wall_s is {wall_s}")
            values = {str(name): float(value) for name, value in data["values"].items()}
            return cls(**counters, wall_s=wall_s, values=values)
        except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a line of metrics.jsonl: {error!r:.100}") from error
