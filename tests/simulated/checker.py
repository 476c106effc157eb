"""What must hold at every moment of a simulated run, and over its whole history.

The checker keeps counters of its own, of every block that was taken over, inserted and learned
from.
What it finds is a line that begins with the name of the promise (those of rings and of replay are
kept by the state machines of tests/transport and tests/replay):

| name | promise |
|---|---|
| sequence | Unrolls of an environment come without gap or repetition, unless the worker died. |
| streams | No worker plays the random streams of another life that is part of the run. |
| steps | Agent steps and games are those of the blocks that were taken in. |
| alive | An update comes within a bounded number of moves. |
| updates | Updates go up by one, once for each batch that was sound. |
| journals | Records and games are in the files once each, over all sessions. |
| saved | Checkpoints are finite, loadable, and the newest is as new as the save period promises. |
| resumes | A session goes on with the counters of its checkpoint. |
| ends | A session ends in one of the ways that are documented. |
"""

import contextlib
from dataclasses import dataclass, replace

import numpy as np

from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_file import DamagedFile, read_tree
from ritornello.agent.stored.checkpoint_tree import first_not_finite
from ritornello.core.errors import CheckpointError
from ritornello.metrics.run_files import read_records

# How long there may be no update. A worker that is hardly ever drawn makes few unrolls in many
# moves, and some of these may hold NaN: so many have to be there too, or ten times as many moves.
MAX_MOVES_WITHOUT_UPDATE = 20_000
MANY_UNROLLS = 40
NAMES = (
    "sequence", "streams", "steps", "alive", "updates", "journals", "saved", "resumes", "ends",
)  # fmt: skip


class Violation(BaseException):
    """A promise is broken in a way that makes it pointless to go on."""


@dataclass
class Counters:
    """What is part of the run up to a moment; a copy of it belongs to each checkpoint."""

    steps: int = 0
    games: int = 0
    items: int = 0  # unrolls inserted
    streams: frozenset = frozenset()  # (worker, life)


class Checker:
    """Looks at one simulated run. `broken` has what it found."""

    def __init__(self, plan, world):
        self.broken = []
        self.updates = 0
        self._plan = plan
        self._world = world
        self._bad_items = set()  # of unrolls that hold NaN
        self._saved = {}  # update -> Counters, one for each time that it was saved
        self.counters = Counters()
        self._begin_session()

    def _begin_session(self):
        self._next = {}  # (worker, env) -> (life, seq) that is due
        self._pool = None
        self._moved_at = self._world.moves
        self._unrolls_since = 0  # inserted
        self._handed_over = None  # whether the batch that was handed over is sound; None: no batch
        self._session_updates = 0

    def fail(self, name, text):
        assert name in NAMES
        if len(self.broken) < 20:
            self.broken.append(f"{name}: {text} (move {self._world.moves})")

    # --- at every move ---------------------------------------------------------------------------

    def watch(self, pool):
        self._pool = pool

    def after_move(self):
        moves = self._world.moves - self._moved_at
        if moves > MAX_MOVES_WITHOUT_UPDATE * (1 if self._unrolls_since >= MANY_UNROLLS else 10):
            self.fail("alive", f"no update in {moves} moves, with {self._unrolls_since} unrolls")
            raise Violation("alive")
        if self.broken:
            raise Violation(self.broken[0])

    # --- workers ---------------------------------------------------------------------------------

    def life_begins(self, config):
        stream = (config.worker_id, config.life)
        if stream in self.counters.streams:
            self.fail("streams", f"worker {stream[0]} plays life {stream[1]} a second time")
        self.counters.streams |= {stream}

    def taken(self, block):
        first = self._pool.workers[0].schema.view(block.records, "first")[:, 1:]
        steps = int(first.size - first.sum())
        if block.stats.steps != steps:
            self.fail("steps", f"a block of {steps} steps came as {block.stats.steps}")

    # --- replay ----------------------------------------------------------------------------------

    def inserted(self, block, record):
        self._unrolls_since += 1
        schema = self._pool.workers[block.worker_id].schema
        worker, env, seq = (int(schema.view(record, n)) for n in ("worker_id", "env_id", "seq"))
        life, due = self._next.get((worker, env), (None, 0))
        if life != block.life:
            due = 0
        if (worker, seq) != (block.worker_id, due):
            self.fail("sequence", f"worker {worker}, environment {env}, life {block.life}: unroll "
                      f"{seq} came, expected {due}")  # fmt: skip
        self._next[(worker, env)] = (block.life, seq + 1)
        if np.isnan(np.array(schema.view(record, "reward"))).any():
            self._bad_items.add(self.counters.items)
        else:
            self._bad_items.discard(self.counters.items)
        self.counters.items += 1

    # --- the learner -----------------------------------------------------------------------------

    def handed_over(self, batch):
        self._handed_over = not self._bad_items.intersection(batch.item.tolist())

    def advanced(self, moment):
        step = moment.update - self.updates
        sound, self._handed_over = self._handed_over, None
        if step not in (0, 1) or (step and sound is None) or (sound and not step):
            self.fail("updates", f"update {moment.update} follows {self.updates}, and the batch in "
                      f"between was {sound}")  # fmt: skip
        if step:
            self._moved_at = self._world.moves
            self._unrolls_since = 0  # inserted
            self._session_updates += 1
        self.updates = moment.update

    def _updates_made(self):
        """Return how many there are, if the batch that was handed over last has become one."""
        return self.updates + int(self._handed_over is True)

    def booked(self, news):
        self.counters.steps += sum(one.stats.steps for one in news)
        self.counters.games += sum(len(one.episodes) for one in news)

    def recorded(self, record):
        found = (record.agent_steps, record.episodes)
        if found != (self.counters.steps, self.counters.games):
            self.fail("steps", f"a record has {found} steps and games, the blocks "
                      f"{self.counters.steps} and {self.counters.games}")  # fmt: skip

    # --- checkpoints -----------------------------------------------------------------------------

    def state_taken(self):
        self._saved.setdefault(self._updates_made(), []).append(replace(self.counters))

    # --- sessions --------------------------------------------------------------------------------

    def session_begins(self, checkpoint, run):
        """Judge what a session goes on from; None: a new run begins."""
        self._begin_session()
        if checkpoint is None:
            self.counters, self.updates = Counters(), 0
            self._saved, self._bad_items = {}, set()
            return
        tally = checkpoint.state["tally"]
        self.updates = int(tally["updates"])
        unrolls = int(checkpoint.state["replay"]["counters"]["next_id"])
        counters = (int(tally["agent_steps"]), int(tally["games"]["count"]), unrolls)
        saved = self._saved.get(self.updates, [])
        for one in saved:
            if counters == (one.steps, one.games, one.items):
                self._saved = {n: b for n, b in self._saved.items() if n < self.updates}
                self._saved[self.updates] = [one]
                self.counters = replace(one)
                break
        else:
            expected = [(one.steps, one.games, one.items) for one in saved]
            self.fail("resumes", f"{checkpoint.path.name} has {counters} steps, games, "
                      f"unrolls, expected one of {expected}")  # fmt: skip
            raise Violation("resumes")
        if int(checkpoint.state["learner"]["version"]) != self.updates:
            self.fail("resumes", f"{checkpoint.path.name} has weights of another update")
        self._check_journals(run, checkpoint)

    def restored(self, unrolls):
        """Take over how many unrolls a session begins with.

        Contents of replay are saved after the weights: they may hold unrolls that came in between,
        or, if the process died there, are those of the checkpoint before.
        """
        self.counters.items = unrolls

    def _check_journals(self, run, checkpoint=None):
        updates = [record.updates for record in read_records(run)]
        if self._plan.reproducible:
            if updates != list(range(1, self.updates + 1)):
                self.fail("journals", f"metrics.jsonl has updates {updates}, expected 1 to "
                          f"{self.updates}")  # fmt: skip
        elif updates != sorted(updates) or (updates and updates[-1] > self.updates):
            self.fail("journals", f"metrics.jsonl has updates {updates} at {self.updates}")
        with contextlib.suppress(FileNotFoundError):
            games = (run / "Scores.txt").read_text(encoding="utf-8").count("\n")
            if games != self.counters.games:
                self.fail("journals", f"Scores.txt has {games} games, {self.counters.games} were "
                          "counted")  # fmt: skip

    def _check_files(self, run):
        """Return the update of the newest checkpoint that is sound; look at all of them."""
        newest = 0
        for path in (run / "checkpoints").glob("*.pt"):
            try:
                state = read_tree(path)
            except DamagedFile:
                continue  # the power went
            bad = first_not_finite(state["learner"])
            if bad:
                self.fail("saved", f"{path.name}: {bad}")
            if path.name.startswith("update_"):
                newest = max(newest, int(state["tally"]["updates"]))
        return newest

    def session_ended(self, run, ending, summary):
        """Judge what a session left: `ending` is died, failed, or the reason of its summary."""
        period, newest = self._plan.period, self._check_files(run)
        made = self._session_updates
        if ending in ("died", "failed"):
            least = self.updates // period * period if made else 0
            if newest < least:
                self.fail("saved", f"the newest checkpoint is of update {newest}, expected {least} "
                          f"or later of {self.updates}")  # fmt: skip
            return
        self.updates, self._handed_over = self._updates_made(), None
        if made + int(newest == self.updates) and newest != self.updates:
            self.fail("saved", f"the newest checkpoint is of update {newest} of {self.updates}")
        self._check_journals(run)
        found = (summary.updates, summary.agent_steps, summary.episodes)
        expected = (self.updates, self.counters.steps, self.counters.games)
        if found != expected:
            self.fail("resumes", f"the summary has {found} updates, steps, games, not {expected}")


def newest_update(run):
    try:
        return int(load(run).state["tally"]["updates"])
    except CheckpointError:
        return 0
