"""The present model's view of stored unrolls, asked for once per batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError, ShapeError
from core.unroll import Record, UnrollSchema
from replay.buffer import Buffer, Proposal
from replay.distance import Evidence, Floats
from replay.item import Item

Rows: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True)
class Evaluation:
    """What the present model pi says of n records at R rows each."""

    features: Floats  # [n, R, F] float32
    params: Floats  # [n, R, A] float32, logits


@dataclass(frozen=True)
class SampleContext:
    """What the learner's side knows when a batch is drawn."""

    update: int  # updates done
    progress: float  # share of training done, 0 to 1
    # (records, rows) -> their evaluation under the present weights. Called without any lock, maybe
    # by several cache threads at once. None if no buffer scores its candidates.
    evaluate: Callable[[list[Record], Rows], Evaluation] | None = None


class RecordReader:
    """Decodes each item at most once. Made anew for each batch; used by one thread."""

    def __init__(self) -> None:
        """Start empty."""
        self._records: dict[int, Record] = {}

    def __call__(self, item: Item) -> Record:
        """Return the item's record, read-only."""
        record = self._records.get(item.id)
        if record is None:
            record = self._records[item.id] = item.record()
        return record


def scored_rows(unroll_length: int, stride: int) -> Rows:
    """Return the rows to score: each stride-th, counted back from the last, ascending."""
    return np.arange(unroll_length - 1, -1, -stride)[::-1]


@dataclass(frozen=True)
class Claim:
    """A batch in the making: taken from the buffers, not yet chosen from. One list per buffer."""

    proposals: list[Proposal]
    examinations: list[list[Item]]  # items whose drift a remover wants measured; mostly none
    newest: list[Item]  # newest unroll of each environment


@dataclass(frozen=True)
class Choice:
    """What became of a claim."""

    items: list[list[Item]]  # per buffer, as many as it was to give
    drifts: dict[int, Floats]  # index of a buffer -> drift of each item of its examination


def choose(
    buffers: Sequence[Buffer],
    claim: Claim,
    context: SampleContext,
    schema: UnrollSchema,
    read: RecordReader,
) -> Choice:
    """Score what must be scored, all buffers together, and let each buffer choose.

    Needs no lock: it reads nothing but the claim.
    """
    jobs = [proposal.items if proposal.leaves_a_choice else [] for proposal in claim.proposals]
    asks = any(job and b.sampler.needs_queries for job, b in zip(jobs, buffers, strict=True))
    evidence = gather_evidence(
        [*jobs, *claim.examinations],
        claim.newest if asks else [],
        context,
        schema,
        common_stride(buffers),
        read,
    )
    of_draws, of_examinations = evidence[: len(buffers)], evidence[len(buffers) :]
    triples = zip(buffers, claim.proposals, of_draws, strict=True)
    pairs = enumerate(zip(buffers, of_examinations, strict=True))
    return Choice(
        items=[buffer.choose(proposal, found) for buffer, proposal, found in triples],
        drifts={i: buffer.measure(found) for i, (buffer, found) in pairs if found is not None},
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
    jobs: Sequence[Sequence[Item]],
    newest: Sequence[Item],
    context: SampleContext,
    schema: UnrollSchema,
    stride: int,
    read: RecordReader,
) -> list[Evidence | None]:
    """Return the evidence about each job's items; None for an empty job.

    The items of all jobs are evaluated in one call, an item that is in several of them once. The
    queries, if any, are a second call on a single row each. No jobs, no call.

    Args:
      jobs: lists of items to be scored.
      newest: items whose last row is a query; empty if no job needs queries.
      context: holds the function that evaluates.
      schema: of the records.
      stride: score each stride-th row.
      read: decodes items.
    """
    items = {item.id: item for job in jobs for item in job}
    if not items:
        return [None] * len(jobs)
    if context.evaluate is None:
        raise ConfigError(
            "a replay buffer scores its candidates, so SampleContext.evaluate must be given."
        )
    rows = scored_rows(schema.unroll_length, stride)
    records = [read(item) for item in items.values()]
    now = _checked(context.evaluate(records, rows), len(records), len(rows))
    queries = None
    if newest:
        last_row = rows[-1:]
        states = _checked(
            context.evaluate([read(item) for item in newest], last_row), len(newest), 1
        )
        queries = states.features[:, 0]

    def stored(name: str) -> Floats:
        views = [schema.view(record, name)[rows] for record in records]
        return np.stack(views).astype(np.float32)

    features_then = stored("features") if schema.feature_count else None
    params_then = stored("behaviour_params")
    place = {item_id: index for index, item_id in enumerate(items)}

    def about(job: Sequence[Item]) -> Evidence:
        of_job = [place[item.id] for item in job]
        return Evidence(
            features_now=now.features[of_job],
            params_now=now.params[of_job],
            features_then=None if features_then is None else features_then[of_job],
            params_then=params_then[of_job],
            queries=queries,
        )

    return [about(job) if job else None for job in jobs]


def _checked(evaluation: Evaluation, count: int, rows: int) -> Evaluation:
    for name in ("features", "params"):
        got = getattr(evaluation, name).shape
        if got[:2] != (count, rows) or len(got) != 3:
            raise ShapeError(
                f"SampleContext.evaluate returned {name} of shape {got}, "
                f"expected ({count}, {rows}, ...) = [records, rows, width]."
            )
    return evaluation
