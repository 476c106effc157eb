"""Planted mistakes, at least one for each promise of the checker, so that it is known to see them.

Each is a patch of the program, or of what stands in for a part of it, as a slip of the pen would
make it. `plan` says what the run must be like for the mistake to matter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from unittest import mock

import numpy as np

import ritornello.agent.run.trainer
from ritornello.agent.acting.rollout import Rollout
from ritornello.agent.learning.feed import Feed
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.saving import Saving
from ritornello.agent.run.tally import Tally
from ritornello.agent.run.trainer import Trainer
from ritornello.agent.stored.checkpoint import CheckpointWriter
from ritornello.metrics.sinks import JsonLinesSink, TextFilesSink
from ritornello.replay.mixing import Mixer
from ritornello.replay.quotas import Quotas
from ritornello.transport.ring import UnrollRing
from tests.simulated.run import LateFiles


@dataclass(frozen=True)
class Mutant:
    """One mistake."""

    name: str
    found_by: tuple[str, ...]  # promises, any of which it breaks
    patch: Callable[[], object]  # returns a context manager
    plan: dict = field(default_factory=dict)


def _wrapped(owner, name, replacement):
    """Replace a method by `replacement(original, self, ...)`."""
    original = getattr(owner, name)

    def method(self, *args, **kwargs):
        return replacement(original, self, *args, **kwargs)

    return lambda: mock.patch.object(owner, name, method)


KILLS = {"kill": 0.05}
DIES = {"deaths": [["kill", 500], ["power", 500]]}


def _lose_a_slot(reclaim, ring):
    before = ring._states.copy()
    lost = reclaim(ring)
    ring._states[before == 1] = 1
    return lost


def _overwrite(take, ring, slot):
    view = take(ring, slot)
    ring._blocks[slot][...] = 0
    return view


def _same_seq(collect, rollout, block):
    episodes = collect(rollout, block)
    if rollout._seq == 3:
        rollout._seq = 2
    return episodes


def _skip_seq(collect, rollout, block):
    rollout._seq += rollout._seq == 2
    return collect(rollout, block)


def _book_twice(book, tally, stats):
    book(tally, stats)
    if tally.agent_steps > 30:
        book(tally, stats)


def _one_too_many(next_counts, quotas):
    counts = next_counts(quotas)
    counts[0] += 1
    return counts


def _always_first(next_counts, quotas):
    return [quotas.batch_size, *[0] * (len(next_counts(quotas)) - 1)]


def _swap_ids(compose, feed, draws, update):
    batch = compose(feed, draws, update)
    batch.item.copy_(batch.item.flip(0))
    return batch


def _spoil_state(state_dict, learner):
    state = state_dict(learner)
    if learner.version >= 4:
        next(iter(state["model"].values())).view(-1)[0] = np.nan
    return state


def _throw_away(learn, trainer, batch):
    return trainer._learner.version != 3 and learn(trainer, batch)


def _drop_record(write, sink, record):
    if record.updates != 3:
        write(sink, record)


def _drop_game(episode, sink, end, at):
    if at.episodes != 2:
        episode(sink, end, at)


def _forget_a_step(load, tally, state):
    load(tally, {**state, "agent_steps": state["agent_steps"] - 1})


def _save_seldom(after_batch, saving):
    if saving._tally.updates % 2:
        after_batch(saving)


def _raise(*_):
    raise ZeroDivisionError("planted")


# fmt: off
MUTANTS = [
    Mutant("a dead worker's slot stays taken", ("slots",),
           _wrapped(UnrollRing, "reclaim", _lose_a_slot), {"weights": KILLS}),
    Mutant("a block is given back before it is copied", ("content", "sequence"),
           _wrapped(UnrollRing, "take", _overwrite)),
    Mutant("a worker repeats an unroll's number", ("sequence", "content"),
           _wrapped(Rollout, "collect", _same_seq)),
    Mutant("a worker leaves out an unroll's number", ("sequence",),
           _wrapped(Rollout, "collect", _skip_seq)),
    Mutant("lives are repeated after a resume", ("streams",),
           lambda: mock.patch.object(ritornello.agent.run.trainer, "LIVES_PER_UPDATE", 0),
           {"deaths": [["kill", 600]] * 3}),
    Mutant("steps are booked twice", ("steps",), _wrapped(Tally, "book_block", _book_twice)),
    Mutant("a batch is one draw too large", ("draws",), _wrapped(Quotas, "next", _one_too_many)),
    Mutant("a batch ignores the ratios", ("draws", "alive"),
           _wrapped(Quotas, "next", _always_first)),
    Mutant("ids in a batch are of other unrolls", ("content", "draws"),
           _wrapped(Feed, "compose", _swap_ids)),
    Mutant("insert waits also while a batch lacks an unroll", ("alive",),
           lambda: mock.patch.object(Mixer, "awaits_insert", return_value=False),
           {"strategy": "block", "queue": 1, "mix": "queue and all others"}),
    Mutant("sample waits for ever", ("alive",),
           lambda: mock.patch.object(Mixer, "can_complete", return_value=False)),
    Mutant("a batch is thrown away", ("updates",), _wrapped(Trainer, "_learn", _throw_away)),
    Mutant("a record is lost", ("journals",), _wrapped(JsonLinesSink, "write", _drop_record),
           {"reproducible": True}),
    Mutant("a game is lost", ("journals",), _wrapped(TextFilesSink, "episode", _drop_game)),
    Mutant("a checkpoint does not wait for its records", ("journals",),
           lambda: mock.patch.object(LateFiles, "flush", return_value=None),
           {"weights": {"files": 0.02}, **DIES, "reproducible": True}),
    Mutant("a checkpoint that is not finite is written", ("saved",),
           lambda: _Both(_wrapped(Learner, "state_dict", _spoil_state)(),
                         mock.patch("ritornello.agent.stored.checkpoint._first_not_finite",
                                    return_value=None))),
    Mutant("saves are left out", ("saved",), _wrapped(Saving, "after_batch", _save_seldom),
           {"period": 2, "deaths": [["kill", 200]] * 3}),
    Mutant("the last save is left out", ("saved",),
           lambda: mock.patch.object(Saving, "at_the_end", return_value=None),
           {"period": 50, "deaths": []}),
    Mutant("a step is forgotten at a resume", ("steps", "resumes"),
           _wrapped(Tally, "load_state_dict", _forget_a_step), DIES),
    Mutant("a session ends with an error of its own", ("ends",),
           lambda: mock.patch.object(CheckpointWriter, "save", _raise)),
]
# fmt: on


class _Both:
    """Two patches as one."""

    def __init__(self, *patches):
        self._patches = patches

    def __enter__(self):
        for patch in self._patches:
            patch.__enter__()

    def __exit__(self, *error):
        for patch in reversed(self._patches):
            patch.__exit__(*error)
