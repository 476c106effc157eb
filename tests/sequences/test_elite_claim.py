from __future__ import annotations

from collections import Counter

import pytest

from ritornello.flags.options import Flags
from ritornello.sequences.plan import load_plan

# Where the runs of a claim may differ; whatever else differed would be compared with it.
VARIED = {"env", "seed", "replay_parameters", "batch_size", "use_kl_mask"}


@pytest.fixture(scope="module")
def claim():
    return load_plan("elite_claim")


@pytest.fixture(scope="module")
def small():
    return load_plan("elite_claim_small")


@pytest.mark.parametrize(("name", "count"), [("elite_claim", 144), ("elite_claim_small", 30)])
def test_every_group_has_its_seeds_and_games_and_differs_in_nothing_else(name, count):
    plan = load_plan(name)
    assert len(plan.runs) == count
    assert set(Counter(run.group for run in plan.runs).values()) == {3}
    flags = [Flags(**run.flags).to_json() for run in plan.runs]
    for other in flags[1:]:
        assert {key for key in other if other[key] != flags[0][key]} <= VARIED
    assert flags[0]["environment_max_steps"] == 1_000_000
    assert {f["env"] for f in flags} == {"PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"}


def test_the_claim_covers_every_strategy_and_distance_with_and_without_the_mask(claim):
    seen = Counter()
    for run in claim.runs:
        flags = Flags(**run.flags)
        for buffer in flags.replay_parameters:
            if buffer["type"] == "elite":
                assert buffer["lambda_batch_multiplier"] == 6.0
                strategy, distance = buffer["elite_sampling_strategy"], buffer["dist_function"]
                assert f"elite {strategy} " in run.group
                assert ("policy" in run.group) == (distance == "policy_kl")
                seen[strategy, distance, flags.use_kl_mask] += 1
    assert len(seen) == 4 * 2 * 2
    assert set(seen.values()) == {2 * 3}  # games x seeds


def test_replay_adds_to_new_data_and_does_not_take_its_place(claim):
    """Each update takes 4 new unrolls, so equal steps are equal updates; one control aside."""
    new = {
        run.group.split(" env=")[0]: Flags(**run.flags).batch_size
        * Flags(**run.flags).replay_parameters[0]["sample_ratio"]
        for run in claim.runs
    }
    assert new.pop("queue batch 8") == 8
    assert len(new) == 11
    assert set(new.values()) == {4}


def test_the_small_claim_is_a_part_of_the_large_one(claim, small):
    def key(run):
        group = run.group.replace(" use_kl_mask=false", "")
        return group, run.seed, tuple(sorted(Flags(**run.flags).to_json().items(), key=repr))

    whole = {repr(key(run)) for run in claim.runs}
    assert all(repr(key(run)) in whole for run in small.runs)
