"""What a seed decides: the run, how often what happens, and how each session dies."""

import random
from functools import cache
from pathlib import Path

from ritornello.agent.assembly import Blueprint
from ritornello.agent.session import family_of
from ritornello.flags.parsing import parse
from ritornello.wrappers.trusted_modules import trust_modules_of

SEEDS_FILE = Path(__file__).with_name("seeds.txt")
TWO_GAMES = "tests.fakes:tests/Counting-v0,tests.fakes:tests/Owing-v0"
STANDARD = {"type": "standard", "capacity": 8}
ATTENTIVE = {"type": "attentive", "capacity": 10}
ELITE = {"type": "elite", "capacity": 10}
INSERTION = {**ELITE, "insert_strategy": "elite_insertion", "elite_batch_size": 4}
RESERVOIR = {**STANDARD, "reservoir": True}
# Besides a queue, unless it says otherwise.
MIXES = {
    "queue": (),
    "queue and standard": (STANDARD,),
    "queue and attentive": (ATTENTIVE,),
    "queue and elite": (ELITE,),
    "queue and all others": (RESERVOIR, ATTENTIVE, INSERTION),
    "standard without a queue": (STANDARD,),
    "two games": (STANDARD,),
    "with memory": (STANDARD, ELITE),
}
UPDATES_AIMED_AT = 30
STEPS_OF_UNROLL = 5
STRATEGIES = ("block", "block", "keep_latest", "keep_oldest", "alternating")
ENDS = ("kill", "power", "lucky power", "torn", "none")
# How often a move is drawn among those that are possible: all of these are drawn from a seed, so
# that in some runs the learner starves, and in others everybody waits for it.
PACES = (0.1, 0.5, 1.0, 3.0)
RARE = {"kill": 0.004, "stall": 0.004, "nan": 0.002, "signal": 0.0002, "jump": 0.003, "depth": 0.01}


class Plan:
    """One simulated run, as a seed draws it: the same seed is the same run."""

    def __init__(self, seed):
        chance = random.Random(f"plan {seed}")
        self.seed = seed
        self.mix = mix = chance.choice(list(MIXES))
        self.envs = chance.randint(1, 2)
        self.workers = chance.randint(2 if mix == "two games" else 1, 3)
        self.weights = {
            name: chance.choice(PACES) for name in ("learner", "ingest", "cache", "worker", "files")
        }
        for name, often in RARE.items():
            self.weights[name] = chance.choice((0.0, often, 4 * often))
        self.batch_size = chance.randint(2, 6)
        updates = UPDATES_AIMED_AT // (1 + chance.randint(0, 2))
        self.reproducible = chance.random() < 0.5
        self.popart = chance.random() < 0.5
        self.save_replay = chance.random() < 0.5
        self.slots = chance.randint(2, 4)
        self.queue = chance.randint(1, 6)
        self.strategy = chance.choice(
            ("block", "block", "keep_latest", "keep_oldest", "alternating")
        )
        self.period = chance.randint(1, 6)
        self.keep = chance.randint(1, 3)
        self.steps = max(100, updates * self.batch_size * STEPS_OF_UNROLL // len(_kinds(mix)))
        self.cache_depth = chance.randint(0, 3)
        self.cache_threads = chance.randint(1, 2)
        self.max_restarts = chance.choice((0, 3, 1000))
        self.worker_timeout_s = chance.choice((5.0, 120.0))
        self.stall_s = chance.choice((0.5, 20.0, 200.0))
        self.interruptions = chance.choice((0.0, 0.1, 0.5))
        # Of each session that dies: what happens, at which passage of a fault point.
        self.deaths = [
            (chance.choice(ENDS), int(chance.expovariate(1 / 400)) + 1)
            for _ in range(chance.randint(0, 4))
        ]

    def blueprint(self):
        """Return the blueprint of the run."""
        kinds = [
            {**kind, "capacity": self.queue} if kind["type"] == "queue" else kind
            for kind in _kinds(self.mix)
        ]
        parameters = [{**kind, "sample_ratio": 1 / len(kinds)} for kind in kinds]
        values = {
            "seed": self.seed % 2**31,
            "batch_size": self.batch_size,
            "worker_count": self.workers,
            "envs_per_worker": self.envs,
            "reproducible": self.reproducible,
            "use_popart": self.popart,
            "save_replay": self.save_replay,
            "save_model_period": self.period,
            "keep_checkpoints": self.keep,
            "environment_max_steps": self.steps,
            "replay_parameters": parameters,
            "discarding_strategy": self.strategy,
        }
        return Blueprint.draw(_flags(self.mix).model_copy(update=values))


@cache
def _flags(mix):
    """Return the flags that all runs of a mix have; to read a command line takes a while."""
    line = [
        f"--env={TWO_GAMES if mix == 'two games' else 'CartPole-v1'}",
        "--model=mlp", "--feature_out_layer_size=8", f"--r_f_steps={STEPS_OF_UNROLL}",
        "--learner_thread_count=1", "--inference=worker", "--device=cpu",
        "--training_fill_in_factor=0.5", "--avg_buff_size=4", "--max_bad_updates=3",
        "--log_interval_s=0.5", "--lr_scheduler_steps=1000", "--tensorboard=False",
        "--charts=False", "--basic_verbose=False", "--worker_count=2", "--envs_per_worker=2",
    ]  # fmt: skip
    if mix == "standard without a queue":
        line.append("--max_draws_per_unroll=2")
    if mix == "two games":
        line.append("--use_task_id=True")
    if mix == "with memory":
        line += ["--use_lstm=True", "--lstm_size=4", "--burn_in_steps=2"]
    trust_modules_of(TWO_GAMES)
    return parse(line, lambda *_: {}, family_of)


def _kinds(mix):
    queue = () if mix == "standard without a queue" else ({"type": "queue"},)
    return (*queue, *MIXES[mix])


def known_seeds():
    """Return the seeds that have broken a promise once."""
    lines = SEEDS_FILE.read_text(encoding="utf-8").splitlines()
    return [int(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
