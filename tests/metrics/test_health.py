from __future__ import annotations

import re

import pytest

from ritornello.flags.options import Flags
from ritornello.metrics.health import (
    JUDGED_GAMES,
    PATIENCE_RECORDS,
    PATIENCE_UPDATES,
    RANGES,
    WARM_UP_STEPS,
    Diagnosis,
    Finding,
)
from ritornello.metrics.record import Record, check_declared

KL = "replay/standard/kl_behaviour_target"  # healthy below 0.7
RETURN = "episode/return_mean"
COLUMNS = (
    RETURN, "policy/entropy_fraction", KL, "vtrace/ess", "vtrace/rho_clipped_fraction",
    "value/explained_variance",
)  # fmt: skip
# Some records of a run that learned Pong, and successive ones of a run that drew three quarters of
# each batch from replay and whose policy ran away from it: agent steps, updates, games, then
# COLUMNS. The KL is that of the whole batch, as if all of it came from the replayed part.
LEARNS = """
43325 529 35 -20 0.999 0.003 0.997 0.505 0.080
195477 2433 203 -20.4 0.832 0.050 0.948 0.449 0.824
345867 4316 373 -20.4 0.921 0.018 0.983 0.488 0.771
499942 6242 538 -20.3 0.882 0.065 0.938 0.469 0.851
647305 8087 695 -20 0.932 0.058 0.936 0.45 0.791
787490 9841 830 -19.7 0.876 0.063 0.944 0.478 0.754
930731 11631 949 -18.5 0.871 0.059 0.931 0.455 0.718
1069526 13369 1034 -18.3 0.876 0.025 0.977 0.477 0.634
1353536 16921 1184 -17.5 0.787 0.278 0.799 0.446 0.721
1620612 20261 1308 -15.8 0.793 0.117 0.890 0.446 0.689
1911053 23893 1427 -9.4 0.524 0.113 0.881 0.438 0.863
2093846 26179 1514 -8.02 0.647 0.798 0.730 0.396 0.848
"""
RUNS_AWAY = """
366972 9138 388 -19.8 0.196 6.616 0.347 0.351 0.566
373363 9291 397 -19.8 0.191 8.024 0.236 0.269 0.545
379756 9451 404 -19.8 0.627 2.363 0.312 0.231 0.296
386147 9611 413 -19.9 0.862 0.833 0.432 0.271 0.163
391900 9755 420 -19.9 0.595 1.153 0.461 0.318 0.657
397977 9911 423 -19.9 0.446 2.833 0.211 0.219 0.871
403410 10045 430 -19.9 0.440 2.630 0.210 0.210 0.880
408844 10181 436 -19.9 0.397 3.174 0.221 0.261 0.880
414921 10331 439 -19.9 0.512 1.747 0.270 0.272 0.876
421313 10493 447 -19.9 0.562 1.431 0.277 0.277 0.886
"""


def recorded(table: str) -> list[Record]:
    """The records of such a table."""
    records = []
    for line in table.strip().splitlines():
        steps, updates, games, *values = line.split()
        named = dict(zip(COLUMNS, map(float, values), strict=True))
        records.append(Record(int(steps), 0, int(updates), int(games), 0.0, named))
    return records


class Feeder:
    """Gives a diagnosis one record after the other."""

    def __init__(self, *, agent_steps: int = 10 * WARM_UP_STEPS, updates: int = 100) -> None:
        self.diagnosis = Diagnosis()
        self.steps, self.updates, self.per_record = agent_steps, 5000, updates

    def feed(self, metric: str, *values: float, games: int = 0) -> list[Finding]:
        findings = []
        for value in values:
            self.updates += self.per_record
            record = Record(self.steps, 0, self.updates, games, 0.0, {metric: value})
            findings += self.diagnosis.add(record)
        return findings


def test_a_metric_that_leaves_its_range_and_stays_outside_is_reported_once() -> None:
    feeder = Feeder()
    assert feeder.feed(KL, *[0.1] * 9, *[0.9] * (PATIENCE_RECORDS - 1)) == []
    (finding,) = feeder.feed(KL, 0.912)
    assert finding.metric == KL
    assert finding.agent_steps == feeder.steps
    assert str(finding).startswith(f"{KL} is 0.912 (healthy: below 0.7): replay is too old")
    assert "capacity or the sample_ratio of 'standard' in --replay_parameters" in str(finding)
    assert feeder.feed(KL, *[0.9] * 50) == []


def test_it_is_reported_again_only_after_it_has_recovered() -> None:
    feeder = Feeder()
    bad = [0.9] * PATIENCE_RECORDS
    assert feeder.feed(KL, *[0.9, 0.9, 0.1] * 20) == []  # noise
    assert len(feeder.feed(KL, *bad)) == 1
    # Too short to be a recovery.
    assert feeder.feed(KL, *[0.1] * (PATIENCE_RECORDS - 1), *bad, *bad) == []
    assert feeder.feed(KL, *[0.1] * PATIENCE_RECORDS) == []
    assert len(feeder.feed(KL, *bad)) == 1


def test_where_each_update_has_a_record_patience_is_counted_in_updates() -> None:
    feeder = Feeder(updates=1)
    assert feeder.feed(KL, *[0.9] * PATIENCE_UPDATES) == []
    assert len(feeder.feed(KL, 0.9)) == 1


def test_nothing_is_said_during_the_warm_up() -> None:
    assert Feeder(agent_steps=WARM_UP_STEPS - 1).feed(KL, *[0.9] * 50) == []
    assert Feeder(agent_steps=WARM_UP_STEPS).feed(KL, *[0.9] * 50) != []


@pytest.mark.parametrize("wanted", RANGES, ids=lambda wanted: wanted.metric)
def test_each_limit_of_each_range_gives_a_finding_with_its_own_cause(wanted) -> None:  # type: ignore[no-untyped-def]
    metric = wanted.metric.replace("/queue*/", "/queue_2/").replace("/*/", "/elite/")
    metric = metric.replace("_*", "_0")
    assert check_declared(metric)
    if wanted.above_start:
        return
    for limit, direction, cause in ((wanted.low, -1, "too_low"), (wanted.high, 1, "too_high")):
        text = getattr(wanted, cause)
        assert bool(text) == (limit is not None)
        if limit is None:
            continue
        margin = 1e-6 * abs(limit)
        inside = Feeder().feed(metric, *[limit - direction * margin] * 20)
        outside = Feeder().feed(metric, *[limit + direction * margin] * 20)
        assert inside == []
        assert [finding.cause for finding in outside] == [text.format(buffer="elite")]


def test_a_run_whose_return_is_where_it_began_is_told_so() -> None:
    feeder = Feeder()
    feeder.feed(RETURN, -20.3, games=120)
    assert feeder.feed(RETURN, *[-20.5] * 20, games=JUDGED_GAMES - 1) == []
    (finding,) = feeder.feed(RETURN, *[-20.5] * 20, games=JUDGED_GAMES)
    assert finding.healthy == "above -20.3, its start"
    risen = Feeder()
    risen.feed(RETURN, -20.3, games=120)
    assert risen.feed(RETURN, *[-20.2] * 20, games=JUDGED_GAMES) == []


def test_each_of_several_games_is_judged_by_its_own_start_and_count() -> None:
    diagnosis, findings = Diagnosis(), []
    for number, games in enumerate((60, 120, *[JUDGED_GAMES - 1] * 20, *[JUDGED_GAMES] * 20)):
        values = {
            "episode/return_mean_0": -20.3,  # stays
            "episode/count_0": float(games),
            "episode/return_mean_1": 700.0 + number,  # rises
            "episode/count_1": float(games),
            "episode/return_mean_2": 5.0,  # stays, but few games were played
            "episode/count_2": float(games // 10),
        }
        record = Record(10**6, 0, 5000 + 100 * number, 3 * games, 0.0, values)
        found = diagnosis.add(record)
        assert not found or games == JUDGED_GAMES
        findings += found
    (finding,) = findings
    assert finding.metric == "episode/return_mean_0"
    assert finding.healthy == "above -20.3, its start"
    assert "--use_popart" in finding.cause


def test_a_run_that_learns_is_met_with_silence() -> None:
    diagnosis = Diagnosis()
    # Three times each: the longest time that this run's KL was outside was three records.
    records = [record for record in recorded(LEARNS) for _ in range(3)]
    assert [finding for record in records for finding in diagnosis.add(record)] == []


def test_a_run_whose_policy_runs_away_from_its_replay_is_told_so() -> None:
    diagnosis = Diagnosis()
    found = [finding for record in recorded(RUNS_AWAY) for finding in diagnosis.add(record)]
    assert [finding.metric for finding in found] == [KL, "vtrace/ess"]


def test_the_causes_name_flags_that_exist() -> None:
    named = set()
    for wanted in RANGES:
        for text in (wanted.too_low, wanted.too_high):
            flags = re.findall(r"--([A-Za-z_]+)", text)
            assert flags or not text, f"{wanted.metric}: what to turn?"
            named |= set(flags)
    assert named <= set(Flags.model_fields)
