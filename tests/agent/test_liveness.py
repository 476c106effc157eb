import threading

from ritornello.agent.run.liveness import STANDSTILL_S, Heartbeats


def in_thread(name, *calls):
    def run():
        for call in calls:
            call()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


def test_each_thread_says_what_it_does_since_when_and_whether_it_still_does():
    now = [100.0]
    beats = Heartbeats(lambda: now[0])
    assert beats.describe() == []
    in_thread("ingest", lambda: beats.beat("inserting into replay"))
    in_thread("cache 0", lambda: beats.beat("composing a batch"))
    now[0] += 71.0
    in_thread("ingest", lambda: beats.beat("inserting into replay"))  # it waits, and looks up
    now[0] += STANDSTILL_S - 1
    assert beats.describe() == [
        "cache 0: composing a batch for 75 s, and stands still for 75 s",
        "ingest: inserting into replay for 75 s",
    ]
    in_thread("ingest", lambda: beats.beat("waiting for unrolls"))
    now[0] += 3.0
    assert beats.describe()[1] == "ingest: waiting for unrolls for 3 s"
    in_thread("cache 0", lambda: beats.beat("waiting for the learner", rests=True))
    now[0] += 999.0
    assert beats.describe()[0] == "cache 0: waiting for the learner for 999 s"
