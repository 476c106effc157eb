"""What learners tell each other, over gloo, each in a thread of its own."""

import threading
from dataclasses import replace

import pytest
import torch.distributed as dist

from ritornello.agent.learners import group as group_module
from ritornello.agent.learners.group import Group, LearnerLost, open_store
from ritornello.agent.learners.place import Place
from ritornello.agent.run.company import COMPARED_EACH, SINGLE, LearnersDiffer, Several, join
from ritornello.agent.run.experience import News
from ritornello.core.episode import EpisodeEnd
from ritornello.transport.channel import WorkerStats
from tests.agent.learners import make_learner
from tests.deadlines import HANGS_S

KIND = {"torch": "2", "--lr": "0.1"}


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(group_module, "NOTICE_S", 1.0)


def together(work, *, timeout_s=HANGS_S, size=2):
    """Let `work(company)` run for each of some learners; return what it returns or raises."""
    store, results = dist.HashStore(), [None] * size

    def run(rank):
        try:
            group = Group(store, rank, size, timeout_s=timeout_s, first_timeout_s=timeout_s)
            results[rank] = work(Several(Place(rank, size, rank, size), group))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    assert not any(thread.is_alive() for thread in threads)
    return results


def rank_of(company):
    return company.place.rank


def nothing():
    return []


def game(score):
    return EpisodeEnd(env_id=1, return_raw=score, length_steps=9, length_frames=36, task_id=2)


def test_every_learner_hears_the_same_news_in_the_same_order():
    def work(company):
        company.begin(make_learner(), KIND)
        own = rank_of(company)
        news = [
            News(WorkerStats(steps=10 + own, total_s=own), (game(own), game(float("inf"))), 7),
            News(WorkerStats(steps=5), ()),
        ]
        return company.meet(news, True, nothing), company.meet([], True, nothing)

    (first, first_again), (second, second_again) = together(work)
    games = [episode for news in first.news for episode in news.episodes]
    assert games == [game(0), game(float("inf")), game(1), game(float("inf"))]
    assert games == [episode for news in second.news for episode in news.episodes]
    for met, own in ((first, 0), (second, 1)):
        assert met.news[0].stats == WorkerStats(steps=10 + own, total_s=own)
        assert met.news[0].worker_id == 7
        assert sum(news.stats.steps for news in met.news) == 31
        steps_first = [bool(news.episodes) for news in met.news]
        assert steps_first == sorted(steps_first), "steps are booked before the first game"
    assert sum(news.stats.steps for news in (*first_again.news, *second_again.news)) == 0


def test_an_update_begins_when_each_has_a_batch():
    def work(company):
        company.begin(make_learner(), KIND)
        has_batch = [True, rank_of(company) == 0, rank_of(company) == 1, False]
        return [company.meet([], has, nothing).is_ready for has in has_batch]

    assert together(work) == [[True, False, False, False]] * 2


def test_a_wish_of_one_is_known_to_all_once_they_have_met():
    def work(company):
        company.begin(make_learner(), KIND)
        known = [company.agreed("interrupted", rank_of(company) == 1)]
        company.meet([], True, nothing)
        known += [company.agreed("interrupted", False), company.agreed("seconds", False)]
        company.meet([], True, nothing)
        return [*known, company.agreed("interrupted", False)]

    assert together(work) == [[False, True, False, False]] * 2


def test_who_has_no_batch_for_too_long_is_named_with_what_it_waits_for():
    def work(company):
        company.begin(make_learner(), KIND)
        while True:
            threading.Event().wait(0.01)
            company.meet([], rank_of(company) == 0, lambda: ["its workers are gone", ""])

    for error in together(work, timeout_s=0.5):
        assert isinstance(error, LearnerLost)
        assert error.ranks == (1,)
        assert str(error).startswith("learner 1 had no batch for ")
        assert str(error).endswith("s while others had one: its workers are gone")


def test_nobody_is_blamed_while_nobody_has_a_batch():
    def work(company):
        company.begin(make_learner(), KIND)
        for _ in range(80):
            threading.Event().wait(0.01)
            company.meet([], False, nothing)
        return "patient"

    assert together(work, timeout_s=0.5) == ["patient"] * 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"torch": "3"}, "learner 1 has torch 3, learner 0 has 2"),
        ({"--lr": "0.2"}, "learner 1 has --lr 0.2, learner 0 has 0.1"),
    ],
)
def test_learners_of_two_kinds_do_not_begin(change, text):
    def work(company):
        company.begin(make_learner(), KIND | (change if rank_of(company) else {}))

    for error in together(work):
        assert isinstance(error, LearnersDiffer)
        assert str(error).startswith(text)


def disturbed(learner):
    next(learner.model.parameters()).data[0] += 1e-7
    return learner


def test_learners_with_other_weights_do_not_begin():
    def work(company):
        learner = make_learner()
        company.begin(disturbed(learner) if rank_of(company) else learner, KIND)

    for error in together(work):
        assert isinstance(error, LearnersDiffer)
        assert "the weights of learner 1 are not those of learner 0 before" in str(error)


def test_weights_that_drift_apart_are_found_within_some_updates():
    def work(company):
        learner = make_learner()
        company.begin(learner, KIND)
        company.meet([], True, nothing)
        if rank_of(company):
            disturbed(learner)
        for version in range(1, COMPARED_EACH + 1):
            learner.version = version
            company.meet([], True, nothing)

    for error in together(work):
        assert isinstance(error, LearnersDiffer)
        assert f"learner 1 are not those of learner 0 after update {COMPARED_EACH}" in str(error)


def test_the_sentence_of_a_learner_that_fails_reaches_the_others():
    def work(company):
        company.begin(make_learner(), KIND)
        if rank_of(company) == 1:
            company.tell(RuntimeError("out of luck"))
            company.tell(RuntimeError("and again"))
            return None
        return company.meet([], True, nothing)

    error, _ = together(work)
    assert str(error) == "learner 1 failed: RuntimeError: out of luck"


def test_a_learner_that_vanishes_is_named():
    def work(company):
        company.begin(make_learner(), KIND)
        if rank_of(company) == 1:
            company._group.leave()
            return None
        return company.meet([], True, nothing)

    first, _, third = together(work, size=3)
    for error in (first, third):
        assert isinstance(error, LearnerLost)
        assert error.ranks == (1,)
        assert str(error).startswith("learner 1 ended without a word")


def test_a_learner_that_does_not_answer_is_named():
    over = threading.Event()

    def work(company):
        company.begin(make_learner(), KIND)
        if rank_of(company) == 1:
            assert over.wait(HANGS_S)
            return None
        try:
            return company.meet([], True, nothing)
        finally:
            over.set()

    error, _ = together(work, timeout_s=0.5)
    assert str(error).startswith("learner 1 did not answer for ")
    assert error.ranks == (1,)


def test_a_store_that_nobody_serves_is_one_sentence():
    with pytest.raises(LearnerLost, match="learner 1 does not reach the others at 127.0.0.1:9"):
        open_store(Place(1, 2, 1, 2, "127.0.0.1", 9), timeout_s=0.5)


def test_a_learner_alone_is_told_what_it_says():
    news = [News(WorkerStats(steps=3), (game(1.0),))]
    assert SINGLE.meet(news, True, nothing) == (news, True)
    assert SINGLE.agreed("interrupted", True)
    assert not SINGLE.agreed("interrupted", False)
    assert SINGLE.from_first("text") == "text"
    assert join(replace(Place()), 60.0) is not None
    assert SINGLE.group.world_size == 1


def test_a_reason_with_a_path_of_any_bytes_reaches_the_others():
    store = dist.HashStore()

    def tell(rank):
        groups[rank] = Group(store, rank, 2, timeout_s=HANGS_S, first_timeout_s=HANGS_S)

    groups = {}
    threads = [threading.Thread(target=tell, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_S)
    groups[1].tell("cannot read /data/\udcff.pt")
    assert store.get("failed/1") == rb"cannot read /data/\udcff.pt"
    groups[0].leave()
