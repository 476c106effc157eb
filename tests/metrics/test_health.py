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
)
from ritornello.metrics.record import Record, check_declared

KL = "replay/standard/kl_behaviour_target"  # healthy below 0.7
RETURN = "episode/return_mean"


class Feeder:
    """Gives a diagnosis one record after the other."""

    def __init__(self, *, agent_steps=10 * WARM_UP_STEPS, updates=100, renewal_updates=1):
        self.diagnosis = Diagnosis(renewal_updates)
        self.steps, self.updates, self.per_record = agent_steps, 5000, updates

    def feed(self, metric, *values, games=0):
        findings = []
        for value in values:
            self.updates += self.per_record
            record = Record(self.steps, 0, self.updates, games, 0.0, {metric: value})
            findings += self.diagnosis.add(record)
        return findings


def test_a_metric_that_leaves_its_range_and_stays_outside_is_reported_once():
    feeder = Feeder()
    assert feeder.feed(KL, *[0.1] * 9, *[0.9] * (PATIENCE_RECORDS - 1)) == []
    (finding,) = feeder.feed(KL, 0.912)
    assert finding.metric == KL
    assert finding.agent_steps == feeder.steps
    assert str(finding).startswith(f"{KL} is 0.912 (healthy: below 0.7): replay is too old")
    assert "capacity or the sample_ratio of 'standard' in --replay_parameters" in str(finding)
    assert feeder.feed(KL, *[0.9] * 50) == []


def test_it_is_reported_again_only_after_it_has_recovered():
    feeder = Feeder()
    bad = [0.9] * PATIENCE_RECORDS
    assert feeder.feed(KL, *[0.9, 0.9, 0.1] * 20) == []  # noise
    assert len(feeder.feed(KL, *bad)) == 1
    # Too short to be a recovery.
    assert feeder.feed(KL, *[0.1] * (PATIENCE_RECORDS - 1), *bad, *bad) == []
    assert feeder.feed(KL, *[0.1] * PATIENCE_RECORDS) == []
    assert len(feeder.feed(KL, *bad)) == 1


def test_where_each_update_has_a_record_patience_is_counted_in_updates():
    feeder = Feeder(updates=1)
    assert feeder.feed(KL, *[0.9] * PATIENCE_UPDATES) == []
    assert len(feeder.feed(KL, 0.9)) == 1


@pytest.mark.parametrize("wanted", RANGES, ids=lambda wanted: wanted.metric)
def test_each_limit_of_each_range_gives_a_finding_with_its_own_cause(wanted):
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


def test_new_data_may_be_older_where_a_circular_buffer_is_used_up_before_it_is_learned_from():
    """Eight batches, each used 20 times: the learner makes 160 updates while they are played."""
    assert Feeder(renewal_updates=160).feed("lag/mean_updates", *[208] * 20) == []
    (finding,) = Feeder(renewal_updates=160).feed("lag/mean_updates", *[210] * 20)
    assert finding.healthy == "below 209"


def test_a_run_whose_return_is_where_it_began_is_told_so():
    feeder = Feeder()
    feeder.feed(RETURN, -20.3, games=120)
    assert feeder.feed(RETURN, *[-20.5] * 20, games=JUDGED_GAMES - 1) == []
    (finding,) = feeder.feed(RETURN, *[-20.5] * 20, games=JUDGED_GAMES)
    assert finding.healthy == "above -20.3, its start"
    risen = Feeder()
    risen.feed(RETURN, -20.3, games=120)
    assert risen.feed(RETURN, *[-20.2] * 20, games=JUDGED_GAMES) == []


def test_the_causes_name_flags_that_exist():
    named = set()
    for wanted in RANGES:
        for text in (wanted.too_low, wanted.too_high):
            flags = re.findall(r"--([A-Za-z_]+)", text)
            assert flags or not text, f"{wanted.metric}: what to turn?"
            named |= set(flags)
    assert named <= set(Flags.model_fields)
