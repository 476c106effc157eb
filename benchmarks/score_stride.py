"""How much the choice of replayed unrolls depends on how many of their rows are scored.

    python main.py --preset=elite --save_replay=True --environment_max_steps=300000
    python benchmarks/score_stride.py --load_model_url=results/<that run>

Elite and attentive replay rank six candidates for each unroll they draw, by looking at every
`score_stride`-th row of each with the present network. Looking at fewer rows is cheaper; this tells
what it changes, on the unrolls that a real run held in replay when it saved its checkpoint: the
rank correlation (Spearman) with the scores from all rows, and the share of the chosen unrolls that
are the same, over many random sets of candidates. A random choice has an overlap of 1/6.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ritornello.agent.assembly import Blueprint  # noqa: E402
from ritornello.agent.learning.scorer import Scorer  # noqa: E402
from ritornello.agent.stored.checkpoint import load  # noqa: E402
from ritornello.core.errors import ConfigError  # noqa: E402
from ritornello.core.unroll import Record  # noqa: E402
from ritornello.flags.options import Flags  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402
from ritornello.replay.distance import Distance, Evidence, Floats  # noqa: E402
from ritornello.replay.scoring import scored_rows  # noqa: E402
from ritornello.replay.snapshot import unpack_items  # noqa: E402
from ritornello.transport.weights import WeightBoard  # noqa: E402

CANDIDATES_PER_DRAW = 6
DRAWS = 4  # replayed unrolls per batch, as in the default recipe
TRIALS = 500
STRIDES = (1, 2, 4, 5, 10, 20)
QUERIES = 16  # newest states that attentive replay compares with


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load_model_url", required=True, help="run that was saved with replay")
    return parser.parse_args()


def evidence_of(url: str) -> Evidence:
    """Return what the saved network says of all rows of all saved unrolls.

    Raises:
      ConfigError: if the checkpoint has no replay contents.
    """
    checkpoint = load(url)
    contents = checkpoint.load_replay()
    if contents is None:
        raise ConfigError(f"{checkpoint.path} holds no replay: train with --save_replay=True.")
    blueprint = Blueprint.draw(Flags(**checkpoint.state["flags"]))
    schema = blueprint.schema
    items = unpack_items(contents["contents"]["items"], schema.nbytes)
    records: list[Record] = [items[key].record() for key in sorted(items)]
    learner = blueprint.learner()
    learner.load_state_dict(checkpoint.state["learner"])
    board = WeightBoard(blueprint.acting_weights.nbytes)
    with board.write(learner.version) as block:
        blueprint.acting_weights.pack(learner.model, block)
    model, _ = blueprint.acting_model()
    scorer = Scorer(model, blueprint.acting_weights, board, schema, blueprint.choices.device)
    rows = scored_rows(schema.unroll_length, 1)
    now = scorer.evaluate(records, rows)

    def stored(name: str) -> Floats:
        return np.stack([schema.view(r, name)[rows] for r in records]).astype(np.float32)

    return Evidence(
        features_now=now.features,
        params_now=now.params,
        features_then=stored("features") if schema.feature_count else None,
        params_then=stored("behaviour_params"),
        queries=now.features[-QUERIES:, -1],
    )


def thinned(evidence: Evidence, stride: int) -> Evidence:
    """Return the evidence that scoring each stride-th row would have given."""
    rows = scored_rows(evidence.features_now.shape[1], stride)
    then = evidence.features_then
    return replace(
        evidence,
        features_now=evidence.features_now[:, rows],
        params_now=evidence.params_now[:, rows],
        features_then=None if then is None else then[:, rows],
        params_then=evidence.params_then[:, rows],
    )


def spearman(a: Floats, b: Floats) -> float:
    """Return the correlation of the ranks of two rows of numbers."""
    ranks = np.stack([np.argsort(np.argsort(values)) for values in (a, b)])
    matrix = np.atleast_2d(np.corrcoef(ranks))
    return float(matrix[0, 1])


def overlap(a: Floats, b: Floats) -> float:
    """Return the mean share of equal choices, the nearest of random candidates chosen by each."""
    random = np.random.default_rng(0)
    shares = []
    for _ in range(TRIALS):
        candidates = random.choice(len(a), DRAWS * CANDIDATES_PER_DRAW, replace=False)
        chosen = [set(np.argsort(values[candidates])[:DRAWS]) for values in (a, b)]
        shares.append(len(chosen[0] & chosen[1]) / DRAWS)
    return float(np.mean(shares))


def main() -> None:
    """Print a table, and the same as one line of JSON."""
    evidence = evidence_of(parse().load_model_url)
    measures: dict[str, Any] = {"policy_kl (elite)": Distance("policy_kl").drift}
    measures["ln_norm (attentive)"] = Distance("ln_norm").to_nearest
    if evidence.features_then is not None:
        measures["ln_norm (elite)"] = Distance("ln_norm").drift
        measures["cos_dist (elite)"] = Distance("cos_dist").drift
    print(f"{len(evidence.params_now)} unrolls of {evidence.params_now.shape[1]} rows")
    print(f"{'distance':<22}{'stride':>8}{'rank correlation':>18}{'same choice':>14}")
    result: dict[str, Any] = {}
    for name, measure in measures.items():
        reference = measure(evidence)
        for stride in STRIDES:
            scores = measure(thinned(evidence, stride))
            figures = (spearman(reference, scores), overlap(reference, scores))
            result.setdefault(name, {})[stride] = [round(figure, 3) for figure in figures]
            print(f"{name:<22}{stride:>8}{figures[0]:>18.3f}{figures[1]:>14.3f}")
    print(json_text(result))


if __name__ == "__main__":
    main()
