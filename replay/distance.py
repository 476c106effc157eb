"""How far two moments of a policy are apart, as numbers. Pure functions.

Smaller always means closer, and identical arguments are at distance 0 (cosine is therefore
1 - similarity). C is the number of candidates, R of scored rows, Q of queries, F of features,
P of parameters of a policy.

Next to read: replay/scored.py, which ranks candidates by these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ritornello.core.errors import ShapeError
from ritornello.core.spec import CHOICE, ActionSpec
from ritornello.replay.evidence import Evidence, Floats


def ln_norm(new: Floats, old: Floats, p: int = 2) -> Floats:
    """Return the p-norm of new - old over all rows and features: [C, R, F] twice -> [C]."""
    gap = _flat(new, old, np.subtract)
    if p == 2:
        return np.asarray(np.sqrt(np.einsum("cd,cd->c", gap, gap)))
    gap = np.abs(gap)
    # Divided by the largest entry first, so that a high p can not overflow.
    largest = gap.max(axis=1, keepdims=True)
    scaled = gap / np.where(largest == 0, 1, largest)
    return np.asarray(largest[:, 0] * (scaled**p).sum(axis=1) ** (1 / p))


def cos_dist(new: Floats, old: Floats) -> Floats:
    """Return 1 - cosine of the flattened candidates: [C, R, F] twice -> [C] in [0, 2].

    A zero vector is at distance 1 from everything but another zero vector.
    """
    both = _flat(new, old, np.multiply).sum(axis=1, dtype=np.float64)
    new_square = _flat(new, new, np.multiply).sum(axis=1, dtype=np.float64)
    old_square = _flat(old, old, np.multiply).sum(axis=1, dtype=np.float64)
    lengths = np.sqrt(new_square * old_square)
    similarity = np.where(
        lengths == 0, new_square == old_square, both / np.maximum(lengths, 1e-300)
    )
    return np.asarray(np.clip(1 - similarity, 0, 2))


def kl_div(new: Floats, old: Floats) -> Floats:
    """Return the sum over rows of KL(softmax(new) || softmax(old)): [C, R, F] twice -> [C].

    Features are taken as logits. This is the direction of the older platform.
    """
    _check_same_shape(new, old)
    log_new, log_old = _log_softmax(new), _log_softmax(old)
    return np.asarray(np.maximum((np.exp(log_new) * (log_new - log_old)).sum(axis=(1, 2)), 0))


def policy_kl(
    behaviour_params: Floats, target_params: Floats, actions: ActionSpec | None = None
) -> Floats:
    """Return the sum over rows of KL(mu || pi) of the action distributions: [C, R, P] -> [C].

    `behaviour_params` are the parameters of mu, `target_params` those of pi. Without `actions` both
    are logits of one choice.
    """
    if actions is None or actions.is_single_choice:
        return kl_div(behaviour_params, target_params)
    _check_same_shape(behaviour_params, target_params)
    total = np.zeros(len(behaviour_params))
    start = 0
    for part in actions.parts:
        own = slice(start, start + part.param_count)
        divergence = kl_div if part.kind == CHOICE else _normal_kl
        total += divergence(behaviour_params[..., own], target_params[..., own])
        start = own.stop
    return total


def _normal_kl(mu: Floats, pi: Floats) -> Floats:
    """Return the sum over rows of KL(mu || pi) of normal distributions: [C, R, 2D] -> [C].

    Parameters are D means, and then D logarithms of standard deviations.
    """
    mean_then, log_std_then = np.split(mu.astype(np.float64), 2, axis=-1)
    mean_now, log_std_now = np.split(pi.astype(np.float64), 2, axis=-1)
    difference = log_std_then - log_std_now
    standard = (mean_then - mean_now) * np.exp(-log_std_now)
    terms = 0.5 * (np.exp(2 * difference) + standard**2 - 1) - difference
    return np.asarray(np.maximum(terms.sum(axis=(1, 2)), 0))


@dataclass(frozen=True)
class Distance:
    """One of the distances above by its name in the flags, with its parameter."""

    name: str = "ln_norm"
    p: int = 2  # order of ln_norm

    @property
    def needs_stored_features(self) -> bool:
        """Whether `drift` reads the features that were stored when the unroll was made."""
        return self.name != "policy_kl"

    def drift(self, evidence: Evidence) -> Floats:
        """Return how far each candidate's rows have moved since it was made: [C]."""
        if self.name == "policy_kl":
            return policy_kl(evidence.params_then, evidence.params_now, evidence.actions)
        assert evidence.features_then is not None, "the manager has seen to that"
        new, old = evidence.features_now, evidence.features_then
        if self.name == "ln_norm":
            return ln_norm(new, old, self.p)
        return cos_dist(new, old) if self.name == "cos_dist" else kl_div(new, old)

    def to_nearest(self, evidence: Evidence) -> Floats:
        """Return the mean over a candidate's rows of the distance to the nearest query: [C]."""
        assert evidence.queries is not None, "nothing is drawn before there are some"
        count, rows, width = evidence.features_now.shape
        flat = evidence.features_now.reshape(count * rows, width)
        nearest = self.pairwise(flat, evidence.queries).min(axis=1)
        return np.asarray(nearest.reshape(count, rows).mean(axis=1))

    def pairwise(self, rows: Floats, queries: Floats) -> Floats:
        """Return the distance of each row to each query: [M, F], [Q, F] -> [M, Q] float64.

        Where the formula allows it this is one matrix product, so no [M, Q, F] array is made.
        """
        rows, queries = rows.astype(np.float64), queries.astype(np.float64)
        if self.name == "ln_norm" and self.p == 2:
            squares = (rows**2).sum(axis=1)[:, None] + (queries**2).sum(axis=1)
            return np.asarray(np.sqrt(np.maximum(squares - 2 * rows @ queries.T, 0)))
        if self.name == "ln_norm":
            return np.stack(
                [ln_norm(rows, np.broadcast_to(q, rows.shape), self.p) for q in queries], axis=1
            )
        if self.name == "cos_dist":
            row_lengths = np.linalg.norm(rows, axis=1)[:, None]
            query_lengths = np.linalg.norm(queries, axis=1)
            lengths = row_lengths * query_lengths
            similarity = rows @ queries.T / np.maximum(lengths, 1e-300)
            both_zero = (row_lengths == 0) & (query_lengths == 0)
            return np.asarray(np.clip(1 - np.where(both_zero, 1, similarity), 0, 2))
        assert self.name == "kl_div", "attentive sampling has refused a distance of policies"
        log_rows, log_queries = _log_softmax(rows), _log_softmax(queries)
        probabilities = np.exp(log_rows)
        own = (probabilities * log_rows).sum(axis=1)[:, None]
        return np.asarray(np.maximum(own - probabilities @ log_queries.T, 0))


def _flat(a: Floats, b: Floats, combine: np.ufunc) -> Floats:
    _check_same_shape(a, b)
    return np.asarray(combine(a, b)).reshape(len(a), -1)


def _check_same_shape(a: Floats, b: Floats) -> None:
    if a.shape != b.shape:  # broadcasting would give a number, and a wrong one
        raise ShapeError(f"distance of arrays of shape {a.shape} and {b.shape}, expected equal.")


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
