import threading

import pytest
import torch.distributed as dist

from ritornello.agent.learners import group as group_module
from ritornello.agent.learners import several
from ritornello.agent.learners.group import GlooGroup, open_store
from ritornello.agent.learners.place import Place
from ritornello.agent.learners.several import COMPARED_EACH, LearnersDiffer, SeveralLearners
from ritornello.agent.process_group import LearnerLost
from ritornello.agent.run.experience import WorkerReport
from ritornello.core.episode import EpisodeEnd
from ritornello.transport.channel import WorkerStats
from tests.agent.learners import make_learner
from tests.deadlines import HANGS_S

KIND = {"torch": "2", "--lr": "0.1"}


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(group_module, "NOTICE_S", 1.0)
    monkeypatch.setattr(several, "kind_of", lambda blueprint: KIND)


def together(work, *, timeout_s=HANGS_S, size=2, begins=True):
    """Let `work(coordinator)` run for each of some learners; return what it returns or raises."""
    store, results = dist.HashStore(), [None] * size

    def run(rank):
        try:
            group = GlooGroup(store, rank, size, timeout_s=timeout_s, first_timeout_s=timeout_s)
            coordinator = SeveralLearners(Place(rank, size, rank, size), group)
            if begins:
                coordinator.begin(make_learner(), None)
            results[rank] = work(coordinator)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    assert not any(thread.is_alive() for thread in threads)
    return results


def nothing():
    return []


def game(score):
    return EpisodeEnd(env_id=1, return_raw=score, length_steps=9, length_frames=36, task_id=2)


def test_every_learner_hears_the_same_news_in_the_same_order():
    def work(coordinator):
        own = coordinator.place.rank
        reports = [
            WorkerReport(WorkerStats(steps=10 + own, total_s=own), (game(own), game(float("inf")))),
            WorkerReport(WorkerStats(steps=5), ()),
        ]
        return coordinator.synchronise(reports, True, nothing), coordinator.synchronise(
            [], True, nothing
        )

    (first, first_again), (second, second_again) = together(work)
    games = [episode for report in first.reports for episode in report.episodes]
    assert games == [game(0), game(float("inf")), game(1), game(float("inf"))]
    assert games == [episode for report in second.reports for episode in report.episodes]
    for synchronised, own in ((first, 0), (second, 1)):
        assert synchronised.reports[0].stats == WorkerStats(steps=10 + own, total_s=own)
        assert sum(report.stats.steps for report in synchronised.reports) == 31
        steps_first = [bool(report.episodes) for report in synchronised.reports]
        assert steps_first == sorted(steps_first), "steps are booked before the first game"
    assert sum(report.stats.steps for report in (*first_again.reports, *second_again.reports)) == 0


def test_an_update_begins_when_each_has_a_batch():
    def work(coordinator):
        has_batch = [True, coordinator.place.rank == 0, coordinator.place.rank == 1, False]
        return [coordinator.synchronise([], has, nothing).is_ready for has in has_batch]

    assert together(work) == [[True, False, False, False]] * 2


def test_a_wish_of_one_is_known_to_all_once_they_have_met():
    def work(coordinator):
        known = [coordinator.agreed("interrupted", coordinator.place.rank == 1)]
        coordinator.synchronise([], True, nothing)
        known += [coordinator.agreed("interrupted", False), coordinator.agreed("seconds", False)]
        coordinator.synchronise([], True, nothing)
        return [*known, coordinator.agreed("interrupted", False)]

    assert together(work) == [[False, True, False, False]] * 2


def test_who_has_no_batch_for_too_long_is_named_with_what_it_waits_for():
    def work(coordinator):
        while True:
            threading.Event().wait(0.01)
            coordinator.synchronise(
                [], coordinator.place.rank == 0, lambda: ["its workers are gone", ""]
            )

    for error in together(work, timeout_s=0.5):
        assert isinstance(error, LearnerLost)
        assert error.ranks == (1,)
        assert str(error).startswith("learner 1 had no batch for ")
        assert str(error).endswith("s while others had one: its workers are gone")


def test_learners_of_two_kinds_do_not_begin():
    def work(coordinator):
        own = {"torch": "3"} if coordinator.place.rank else {}
        coordinator._check_kind(KIND | own)

    for error in together(work, begins=False):
        assert isinstance(error, LearnersDiffer)
        assert str(error).startswith("learner 1 has torch 3, learner 0 has 2")


def test_weights_that_drift_apart_are_found_within_some_updates():
    def work(coordinator):
        learner = make_learner()
        coordinator.begin(learner, None)
        coordinator.synchronise([], True, nothing)
        if coordinator.place.rank:
            next(learner.model.parameters()).data[0] += 1e-7
        for version in range(1, COMPARED_EACH + 1):
            learner.version = version
            coordinator.synchronise([], True, nothing)

    for error in together(work, begins=False):
        assert isinstance(error, LearnersDiffer)
        assert f"learner 1 are not those of learner 0 after update {COMPARED_EACH}" in str(error)


def test_the_sentence_of_a_learner_that_fails_reaches_the_others():
    def work(coordinator):
        if coordinator.place.rank == 1:
            coordinator.announce_failure(RuntimeError("out of luck"))
            coordinator.announce_failure(RuntimeError("and again"))
            return None
        return coordinator.synchronise([], True, nothing)

    error, _ = together(work)
    assert str(error) == "learner 1 failed: RuntimeError: out of luck"


@pytest.mark.parametrize(
    ("vanishes", "said"),
    [(True, "learner 1 ended without a word"), (False, "learner 1 did not answer for ")],
)
def test_a_learner_that_vanishes_or_does_not_answer_is_named(vanishes, said):
    over = threading.Event()

    def work(coordinator):
        if coordinator.place.rank == 1:
            if vanishes:
                coordinator.group.leave()
            else:
                assert over.wait(HANGS_S)
            return None
        try:
            return coordinator.synchronise([], True, nothing)
        finally:
            over.set()

    error, *_ = together(work, timeout_s=HANGS_S if vanishes else 0.5)
    assert isinstance(error, LearnerLost)
    assert error.ranks == (1,)
    assert str(error).startswith(said)


def test_learners_that_lost_only_their_connection_say_what_it_may_have_been(monkeypatch):
    """As when all are suspended: the sum has had its time, and then each learner is there."""
    monkeypatch.setattr(group_module, "NOTICE_S", HANGS_S)
    over = threading.Event()

    def work(coordinator):
        group = coordinator.group
        if coordinator.place.rank == 1:
            assert over.wait(HANGS_S)
        else:
            leave = group.leave
            group.leave = lambda: (leave(), over.set())
        return coordinator.synchronise([], True, nothing)

    for error in together(work, timeout_s=0.5):
        assert isinstance(error, LearnerLost)
        assert error.ranks == ()
        assert "all of them were suspended" in str(error)
        assert ".cc:" not in str(error)


def test_a_store_that_nobody_serves_is_one_sentence():
    with pytest.raises(LearnerLost, match="learner 1 does not reach the others at 127.0.0.1:9"):
        open_store(Place(1, 2, 1, 2, "127.0.0.1", 9), timeout_s=0.5)
