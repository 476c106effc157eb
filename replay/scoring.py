"""The present model's view of stored unrolls, asked for once per batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import ConfigError
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.buffer import Buffer
from ritornello.replay.evidence import Evidence, Floats
from ritornello.replay.item import Item, Proposal

Rows: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True)
class Evaluation:
    """What the present model pi says of n records at R rows each."""

    features: Floats  # [n, R, F] float32
    params: Floats  # [n, R, P] float32, parameters of the policy
    queries: Floats | None = None  # [Q, F] float32, features of the queries, if there were any


# Evaluates stored unrolls under the present weights, the same ones for all of a call:
# (n records, [R] rows of each, Q records of which the features of the last row are wanted). Called
# without any lock, maybe by several cache threads at once (agent/learning/scorer.py).
Evaluate: TypeAlias = Callable[[Sequence[Record], Rows, Sequence[Record]], Evaluation]


@dataclass(frozen=True)
class SampleContext:
    """What the learner's side knows when a batch is drawn."""

    update: int  # updates done
    progress: float  # share of training done, 0 to 1
    evaluate: Evaluate | None = None  # None if no buffer scores its candidates


Read: TypeAlias = Callable[[Item], Record]  # decodes an item, at most once for a batch


def scored_rows(unroll_length: int, stride: int) -> Rows:
    """Return the rows to score, ascending: the last one, and every `stride`-th before it."""
    return np.arange((unroll_length - 1) % stride, unroll_length, stride)


@dataclass(frozen=True)
class Claim:
    """Candidates for one batch, before scoring. Each field has one list per buffer."""

    proposals: list[Proposal]
    examinations: list[list[Item]]  # items whose drift a remover wants measured; mostly none
    newest: list[list[Item]]  # newest unroll of each environment that feeds it, if it has queries


@dataclass(frozen=True)
class Job:
    """Items to be scored together."""

    items: Sequence[Item]
    newest: Sequence[Item] = ()  # the last row of each is a query


def choose(
    buffers: Sequence[Buffer],
    claim: Claim,
    context: SampleContext,
    schema: UnrollSchema,
    read: Read,
) -> tuple[list[Proposal], dict[int, Floats]]:
    """Score what must be scored, all buffers together, and let each buffer choose.

    This needs no lock: it reads nothing but the claim.

    Returns:
      Per buffer the proposal, reduced to as many items as draws; and, by the index of a buffer, the
      drift of each item of its examination.
    """
    draws = [
        Job(proposal.items, newest) if proposal.leaves_a_choice else Job([])
        for proposal, newest in zip(claim.proposals, claim.newest, strict=True)
    ]
    jobs = [*draws, *map(Job, claim.examinations)]
    evidence = gather_evidence(jobs, context, schema, common_stride(buffers), read)
    of_draws, of_examinations = evidence[: len(buffers)], evidence[len(buffers) :]
    triples = zip(buffers, claim.proposals, of_draws, strict=True)
    pairs = enumerate(zip(buffers, of_examinations, strict=True))
    return (
        [buffer.choose(proposal, found) for buffer, proposal, found in triples],
        {i: buffer.measure(found) for i, (buffer, found) in pairs if found is not None},
    )


def common_stride(buffers: Sequence[Buffer]) -> int:
    """Return the stride of the scored rows: one for all, since one forward pass scores them all.

    Raises:
      ConfigError: if the buffers that score want different ones.
    """
    wanted = {b.name: b.score_stride for b in buffers if b.needs_evaluation}
    if len(set(wanted.values())) > 1:
        raise ConfigError(
            f"score_stride differs between replay buffers: {wanted}. "
            "One forward pass scores all candidates; give them the same."
        )
    return next(iter(wanted.values()), 1)


def gather_evidence(
    jobs: Sequence[Job],
    context: SampleContext,
    schema: UnrollSchema,
    stride: int,
    read: Read,
) -> list[Evidence | None]:
    """Return the evidence about the items of each job; None for a job without items.

    All items are evaluated in one call of `context.evaluate`, at every `stride`-th row. Each job
    sees only its own queries.
    """
    items = {item.id: item for job in jobs for item in job.items}
    if not items:
        return [None] * len(jobs)
    assert context.evaluate is not None, "a buffer scores its candidates"
    rows = scored_rows(schema.unroll_length, stride)
    records = [read(item) for item in items.values()]
    newest = {item.id: item for job in jobs for item in job.newest if item.id not in items}
    now = context.evaluate(records, rows, [read(item) for item in newest.values()])
    place = {item_id: index for index, item_id in enumerate(items)}
    # The last scored row is the last row, so a newest unroll that is also an item has its query.
    present = {item_id: now.features[index, -1] for item_id, index in place.items()}
    if now.queries is not None:
        present |= zip(newest, now.queries, strict=True)

    def stored(name: str) -> Floats:
        views = [schema.view(record, name)[rows] for record in records]
        return np.stack(views).astype(np.float32)

    features_then = stored("features") if schema.feature_count else None
    params_then = stored("behaviour_params")

    def about(job: Job) -> Evidence:
        of_job = [place[item.id] for item in job.items]
        return Evidence(
            features_now=now.features[of_job],
            params_now=now.params[of_job],
            features_then=None if features_then is None else features_then[of_job],
            params_then=params_then[of_job],
            queries=np.stack([present[i.id] for i in job.newest]) if job.newest else None,
            actions=schema.env_spec.actions,
        )

    return [about(job) if job.items else None for job in jobs]
