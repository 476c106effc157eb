import contextlib
import threading

import pytest

from ritornello.core.episode import EpisodeEnd
from ritornello.core.files import using
from ritornello.metrics.record import Record
from ritornello.metrics.sinks import JsonLinesSink, TensorBoardSink, TextFilesSink
from tests.exact.disks import ForgetfulDisk


def game(value):
    return EpisodeEnd(0, value, length_steps=100, length_frames=400)


LOSSES = {"loss/policy": -0.5, "loss/value": 2.0, "loss/entropy": -0.01, "optimiser/lr": 6e-4}


def test_the_text_files_have_the_older_platforms_columns(tmp_path):
    sink = TextFilesSink(tmp_path, batch_size=4, unroll_length=5, details={"Optimizer": "rmsprop"})
    sink.episode(game(-7.0), Record(agent_steps=60, updates=3, wall_s=1.5))
    sink.episode(game(3.0), Record(agent_steps=70, updates=3, wall_s=1.75))
    days_s = 3 * 86400 + 61.5  # which have no column of their own
    sink.write(Record(80, 320, 4, 2, days_s, LOSSES))
    sink.write(Record(90, 360, 5, 2, 300_000.0))
    without = {name: LOSSES[name] for name in ("loss/value", "optimiser/lr")}
    sink.write(Record(90, 360, 5, 2, 300_000.0, without))  # no policy
    read = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert read == {  # already flushed; training steps = updates x 4 x 5
        "Scores.txt": ["-7,60,60,1.500", "3,60,70,1.750"],
        "Episode_steps.txt": ["400,60,60,1.500", "400,60,70,1.750"],
        "max_reward_file.txt": ["-7,60,60,1.500", "3,60,70,1.750"],
        "Loss_file.txt": ["-0.5,2,-0.01,80,80,259261.500", "nan,2,nan,100,90,300000.000"],
        "lr_file.txt": ["0.0006,80,80,259261.500", "0.0006,100,90,300000.000"],
        "Train_time.txt": ["2,72:01:01,259261.500,4"],
    }
    sink.close()
    sink.close()
    assert (tmp_path / "training_summary.txt").read_text().splitlines() == [
        "Max_reach_reward: 3.0",
        "Total_episodes: 2",
        "Total_worker_rollout_iter: 18",
        "Total_training_steps: 100",
        "Total_environment_steps: 90",
        "Last_lr: 0.0006",
        "Total_execution_time: 3 days, 11:20:00",
        "Optimizer: rmsprop",
    ]


def test_what_is_flushed_survives_a_power_cut_and_what_is_only_written_does_not(tmp_path):
    with ForgetfulDisk(tmp_path) as disk, using(disk):
        records = JsonLinesSink(tmp_path / "metrics.jsonl")
        texts = TextFilesSink(tmp_path, batch_size=1, unroll_length=1)
        for sink in (records, texts):
            sink.episode(game(1.0), Record(agent_steps=1))
            sink.write(Record(2, 8, 1, 1, 3.0, LOSSES))
        assert disk.after_power_cut() == {}
        for sink in (records, texts):
            sink.flush()
            sink.write(Record(3, 12, 2, 1, 4.0, LOSSES))
        left = {path.name: content.count(b"\n") for path, content in disk.after_power_cut().items()}
        assert left == dict.fromkeys(("metrics.jsonl", *TextFilesSink.NAMES), 1)
        for sink in (records, texts):
            sink.close()


def test_games_that_no_record_has_counted_yet_are_counted_by_the_next_session(tmp_path):
    for counted in ([], ["3"], ["3", "2"]):
        sink = TextFilesSink(tmp_path, batch_size=1, unroll_length=1)
        if counted:
            sink.episode(game(1.0), Record())
            sink.write(Record(updates=len(counted)))
        sink.episode(game(1.0), Record())
        if not counted:
            sink.episode(game(1.0), Record())
        sink.close()
        lines = (tmp_path / "Train_time.txt").read_text().splitlines()
        assert [line.split(",")[0] for line in lines] == counted


def write_until_refused(sink):
    for _ in range(1000):
        sink.write(Record(1, 1, 1, 1, 1.0))
        sink._writer.flush()


def test_a_run_that_is_renamed_prints_no_traceback_of_tensorboards_thread(tmp_path, monkeypatch):
    printed = []
    monkeypatch.setattr(threading, "excepthook", lambda args: printed.append(args.thread.name))
    before = threading.excepthook
    sink = TensorBoardSink(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        write_until_refused(sink)
    with contextlib.suppress(FileNotFoundError):
        sink.close()  # its thread has ended then
    assert printed == []
    assert threading.excepthook is before
    other = threading.Thread(target=lambda: 1 / 0, name="other")
    other.start()
    other.join()
    assert printed == ["other"]
