"""Why does it not learn? Ranges of healthy metrics, and a Diagnosis that says when one is left.

Takes Records, as the sinks do, and gives findings: which metric is out of its range for good, what
probably causes it, and which flags to turn. The numbers stand in RANGES and nowhere else;
docs/health.md and the column "healthy" of docs/metrics.md are made from it.

The limits are set so that runs which learn (Pong and CartPole, with and without replay) stay
silent, and runs which do not are told why. They are rules of thumb, not laws.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from ritornello.metrics.record import Record
from ritornello.metrics.text import short

RETURN = "episode/return_mean"  # of the one game of a run
RETURN_OF_GAME = "episode/return_mean_*"  # of each of several
# A metric must be out of its range in so many records in a row, over so many updates, to be
# reported, and back in it for as long before it can be reported again. One noisy record says
# nothing, and where there is a record for each update (--reproducible), five say nothing either.
PATIENCE_RECORDS = 5
PATIENCE_UPDATES = 200
WARM_UP_STEPS = 50_000  # agent steps: values start as noise, buffers fill
START_GAMES = 100  # the mean return after so many games is the start of a run ...
LAST_START_GAMES = 500  # ... but not one that is first seen later than this
JUDGED_GAMES = 1000  # Pong without --normalise_pixels needs 400 to 800 to rise above its start


@dataclass(frozen=True)
class Range:
    """Where a metric is when a run is healthy, and what it means to be outside."""

    metric: str  # name, or pattern: `*` stands for the name of a buffer or the number of a game
    low: float | None = None
    high: float | None = None
    too_low: str = ""  # cause; what to turn. `{buffer}` stands for what `*` stands for
    too_high: str = ""
    after_steps: int = WARM_UP_STEPS  # agent steps before which nothing is said
    above_start: bool = False  # the lower limit is what the metric was at the start of the run

    @property
    def healthy(self) -> str:
        """The range in words: "below 0.5"."""
        if self.above_start:
            return f"above its start after {JUDGED_GAMES} games"
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return f"above {self.low:g}" if self.low is not None else f"below {self.high:g}"


# The first range that fits a name counts.
RANGES: tuple[Range, ...] = (
    Range(
        RETURN,
        above_start=True,
        after_steps=200_000,
        too_low="nothing has been learned yet. If no other finding says why, the steps are too "
        "small or too large: try another --lr or a lower --entropy_loss_weight, and check that "
        "--reward_clipping_method does not remove the rewards",
    ),
    Range(
        RETURN_OF_GAME,
        above_start=True,
        after_steps=200_000,
        too_low="nothing has been learned in this game yet. If the returns of other games rise, "
        "they may dominate: give --use_popart=True if the sizes of rewards differ, or a larger "
        "share of the environments with --env_shares",
    ),
    Range(
        "policy/entropy_fraction",
        low=0.05,
        high=0.98,
        too_low="the policy has collapsed: it tries nothing new. Raise --entropy_loss_weight or "
        "lower --lr",
        too_high="the policy is still almost random: the entropy bonus outweighs the policy "
        "gradient. Lower --entropy_loss_weight, or give --advantage_normalisation=rms",
        after_steps=200_000,
    ),
    Range(
        "replay/queue*/kl_behaviour_target",
        high=0.2,
        too_high="even new data comes from a different policy: the policy changes too much in one "
        "lag. "
        "Lower --lr, or --shared_queue_size and --cache_output_buffer_size",
    ),
    Range(
        "replay/*/kl_behaviour_target",
        high=0.7,
        too_high="replay is too old for the present policy. Lower the capacity or the "
        "sample_ratio of '{buffer}' in --replay_parameters, lower --lr, or ignore steps that are "
        "too far from the policy with --kl_mask_kind=implied",
    ),
    Range(
        "replay/*/masked_fraction",
        high=0.5,
        too_high="the trust region ignores most of its steps. Lower the capacity of '{buffer}' in "
        "--replay_parameters, or raise --kl_div_threshold",
    ),
    Range(
        "vtrace/rho_mean",
        low=0.8,
        high=1.25,
        too_low="data and policy hardly overlap; the mean would be 1 if they did. Use less or "
        "younger replay (--replay_parameters), or a lower --lr",
        too_high="a few steps have very large weights. Use less or younger replay "
        "(--replay_parameters), or a lower --lr",
    ),
    Range(
        "vtrace/rho_clipped_fraction",
        high=0.7,
        too_high="most importance weights are clipped, and with them the correction. Use less or "
        "younger replay (--replay_parameters), a lower --lr, or a higher --rho_const",
    ),
    Range(
        "vtrace/ess",
        low=0.4,
        too_low="a few steps decide each update. Use less or younger replay (--replay_parameters), "
        "a lower --lr, or --kl_mask_kind=implied",
    ),
    Range(
        "impact/ratio_clipped_fraction",
        high=0.6,
        too_high="the policy has left its target so far that most steps teach it nothing. Lower "
        "--lr, or use each unroll less often (`uses` or the capacity of the circular buffer in "
        "--replay_parameters), or raise surrogate_clip in --algorithm_kwargs",
    ),
    Range(
        "value/explained_variance",
        low=-0.5,
        too_low="the values predict far worse than a constant would, so advantages are noise. "
        "Lower --lr, give --use_popart=True, or raise --value_loss_weight",
        after_steps=100_000,
    ),
    Range(
        "value/share_of_bound",
        high=1.0,
        too_high="the values promise more than clipped rewards can pay: they diverge. What is "
        "replayed and not played any more has nothing that contradicts them: let a few "
        "environments go on playing it, or give CLEAR's losses, "
        "--value_cloning_loss_weight=0.005 and "
        "--policy_cloning_loss_weight=0.01. Else lower --lr, or replay less (--replay_parameters)",
    ),
    Range(
        "grad/norm_before_clip",
        low=1e-6,
        high=1e4,
        too_low="hardly any gradient: everything is masked, or the network is dead. Look at "
        "vtrace/masked_fraction and the rewards, lower --lr and start anew",
        too_high="gradients explode. Lower --lr, or give --reward_clipping_method=abs_one_sign "
        "or --use_popart=True",
    ),
    Range(
        "weights/norm",
        # New networks have 25 to 60, and the shipped agent 29.
        high=1e4,
        too_high="the weights have exploded. All numbers are still finite, but nothing is left "
        "of the learned policy. Lower --lr and go on from an earlier checkpoint",
    ),
    Range(
        "popart/sigma_*",
        # The bounds of sigma are 1e-4 and 1e6 (agent/models/popart.py): at one it is pinned.
        low=2e-4,
        high=9e5,
        too_low="sigma is at its lower bound: all value targets are equal. No reward was ever "
        "found, or --reward_clipping_method removes it",
        too_high="sigma is at its upper bound: rewards are enormous, or the values of a game that "
        "is only replayed diverge. Give --reward_clipping_method=abs_one_sign, "
        "or for the other case CLEAR's losses, "
        "--value_cloning_loss_weight=0.005 and --policy_cloning_loss_weight=0.01",
    ),
    Range(
        "lag/mean_updates",
        high=50,
        too_high="new data is old when it is learned from. Lower --shared_queue_size, "
        "--cache_output_buffer_size, the capacity of the queue (--replay_parameters), or the "
        "number of environments (--worker_count, --envs_per_worker)",
    ),
    Range(
        "replay/ratio",
        high=32,  # robots learn well with IMPACT's 20 uses of each unroll, a ratio of 19
        too_high="new data is a very small part of the batch. Raise the queue's sample_ratio, or "
        "lower the uses of a circular buffer, in --replay_parameters",
    ),
)


@dataclass(frozen=True)
class Finding:
    """A metric has left its healthy range and stays outside."""

    agent_steps: int  # when it was noticed
    metric: str
    value: float
    healthy: str  # the range, in words
    cause: str  # the probable one, and the flags to turn

    def __str__(self) -> str:
        return f"{self.metric} is {short(self.value)} (healthy: {self.healthy}): {self.cause}"


@dataclass
class _Watch:
    """What is remembered about one metric: how long it has been outside or inside."""

    range: Range
    was_out: bool = False
    records: int = 0  # in a row on this side
    since_updates: int = 0  # when it came to this side
    reported: bool = False

    def turns_bad(self, out: bool, updates: int) -> bool:
        """Take the newest value; whether it must be reported now."""
        if out != self.was_out:
            self.was_out, self.records, self.since_updates = out, 0, updates
        self.records += 1
        patience = self.records >= PATIENCE_RECORDS
        patience = patience and updates - self.since_updates >= PATIENCE_UPDATES
        if not patience or out == self.reported:
            return False
        self.reported = out
        return out


class Diagnosis:
    """Follows the records of a run and says what is wrong with it, each thing once.

    Feed it every record from the first on: a resumed run reads its metrics.jsonl back. Not
    thread-safe, on purpose: the thread that makes records owns it.
    """

    def __init__(self, ranges: tuple[Range, ...] = RANGES) -> None:
        """Start knowing nothing.

        Args:
          ranges: the healthy range of each metric that is watched.
        """
        self._ranges = ranges
        self._watches: dict[str, _Watch | None] = {}
        self._starts: dict[str, float] = {}  # by the name of the metric

    def add(self, record: Record) -> list[Finding]:
        """Take the next record; return what has just turned out to be wrong, mostly nothing."""
        checked = (self._check(name, value, record) for name, value in record.values.items())
        return [finding for finding in checked if finding is not None]

    def _start(self, name: str, value: float, games: int) -> float | None:
        """Return what a metric was at the start of the run, None as long as that says nothing."""
        # A run that went on in another folder has no start here, and is not judged by it.
        if START_GAMES <= games <= LAST_START_GAMES:
            self._starts.setdefault(name, value)
        return self._starts.get(name) if games >= JUDGED_GAMES else None

    def _check(self, name: str, value: float, record: Record) -> Finding | None:
        if name not in self._watches:
            fitting = (range for range in self._ranges if fnmatchcase(name, range.metric))
            found = next(fitting, None)
            self._watches[name] = None if found is None else _Watch(found)
        watch = self._watches[name]
        if watch is None:
            return None
        wanted, low, healthy = watch.range, watch.range.low, watch.range.healthy
        if wanted.above_start:
            low = self._start(name, value, _games(name, record))
            if low is None:
                return None
            healthy = f"above {short(low)}, its start"
        if record.agent_steps < wanted.after_steps:
            return None
        is_low = low is not None and value <= low
        is_high = wanted.high is not None and value >= wanted.high
        if not watch.turns_bad(is_low or is_high, record.updates):
            return None
        cause = wanted.too_low if is_low else wanted.too_high
        cause = cause.format(buffer=name.split("/")[1])
        return Finding(record.agent_steps, name, value, healthy, cause)


def _games(name: str, record: Record) -> int:
    """Return how many games were finished of the one that a metric is of, or in all."""
    task = name.rpartition("_")[2]
    return int(record.values.get(f"episode/count_{task}", record.episodes))


def healthy_text(metric: str) -> str:
    """Return the range of a metric in words; empty if it has none."""
    return next((range.healthy for range in RANGES if range.metric == metric), "")
