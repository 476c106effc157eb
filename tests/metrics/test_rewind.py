import os
import time
import tracemalloc
from dataclasses import replace
from datetime import datetime

import pytest

from ritornello.metrics.rewind import JOURNALS, Point, rewind
from ritornello.metrics.run_files import MAX_LINE_BYTES, read_records
from ritornello.metrics.sinks import TensorBoardSink, TextFilesSink
from tests.metrics.builders import at, write_run

NOW = datetime(2026, 11, 22, 13, 45)
CUT = "20261122-134500.cut"


def rewound(folder, updates=4):
    return rewind(folder, Point(updates, 100 * updates), NOW)


def test_lines_after_the_checkpoint_are_set_aside_and_the_others_stay(tmp_path):
    write_run(tmp_path / "short", range(1, 5))
    write_run(tmp_path / "long", range(1, 9))
    whole = {path.name: path.read_bytes() for path in (tmp_path / "long").iterdir()}
    cuts = rewound(tmp_path / "long")
    assert [(cut.name, cut.lines) for cut in cuts] == [
        (name, 4) for name in JOURNALS if (tmp_path / "short" / name).exists()
    ]
    for cut in cuts:
        kept = (tmp_path / "long" / cut.name).read_bytes()
        assert kept == (tmp_path / "short" / cut.name).read_bytes()
        assert cut.aside == tmp_path / "long" / f"{cut.name}.{CUT}"
        assert kept + cut.aside.read_bytes() == whole[cut.name]


def test_lines_of_later_updates_go_also_where_no_agent_step_was_made_since(tmp_path):
    """A batch may be made of unrolls that wait, or of replay alone."""
    sink = TextFilesSink(tmp_path, batch_size=2, unroll_length=5)
    for updates, steps in ((1, 100), (2, 300), (3, 300), (4, 300), (5, 400)):
        sink.write(replace(at(updates), agent_steps=steps))
    sink.close()
    rewind(tmp_path, Point(3, 300, training_steps=3 * 2 * 5), NOW)
    for name in ("Loss_file.txt", "lr_file.txt"):
        lines = (tmp_path / name).read_text().splitlines()
        assert [int(line.split(",")[-3]) for line in lines] == [10, 20, 30]


@pytest.mark.parametrize("name", ["scores.csv", "scores_per_life.csv"])
def test_games_of_later_weights_leave_the_tables_of_tests(tmp_path, name):
    """Updates 40 and 50 needed no new agent step."""
    models = [("step_000000000300", 300), ("update_000000030", 400), ("update_000000040", 400)]
    models += [("update_000000050", 400), ("best", 200), ("best", 500), ("step_000000000600", 600)]
    head = "model_id,model_steps,env,episode_steps,episode_return\n"
    rows = [f'{model},{steps},"a,b",5,1.0\n' for model, steps in models]
    (tmp_path / name).write_text(head + "".join(rows))
    rewind(tmp_path, Point(40, 400), NOW)
    assert (tmp_path / name).read_text() == head + "".join([*rows[:3], rows[4]])
    assert (tmp_path / f"{name}.{CUT}").read_text() == "".join([rows[3], *rows[5:]])


def test_a_table_of_later_weights_alone_is_set_aside_whole(tmp_path):
    """A comparison refuses a table without a game."""
    whole = "model_id,model_steps,env,episode_steps,episode_return\nbest,500,a,5,1.0\n"
    (tmp_path / "scores.csv").write_text(whole)
    rewound(tmp_path)
    assert not (tmp_path / "scores.csv").exists()
    assert (tmp_path / f"scores.csv.{CUT}").read_text() == whole


def test_a_record_of_the_same_update_goes_if_steps_went_on(tmp_path):
    """Steps are counted after the last save as well: they will be made again."""
    write_run(tmp_path, range(1, 5))
    late = replace(at(4), agent_steps=450)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(late.to_json() + "\n")
    assert [(cut.name, cut.lines) for cut in rewound(tmp_path)] == [("metrics.jsonl", 1)]
    assert [record.agent_steps for record in read_records(tmp_path)] == [100, 200, 300, 400]


@pytest.mark.parametrize("name", ["metrics.jsonl", f"metrics.jsonl.{CUT}"])
def test_a_failure_while_a_journal_is_cut_leaves_all_of_it(tmp_path, monkeypatch, name):
    write_run(tmp_path, range(1, 9))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    replace = os.replace

    def fail(source, target):
        if target.name == name:
            raise OSError("the disk is gone")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="the disk is gone"):
            rewound(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert not list(tmp_path.glob(".*"))
    rewound(tmp_path)
    assert [record.updates for record in read_records(tmp_path)] == [1, 2, 3, 4]


GOOD = at(2).to_json().encode()


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


UPDATES = b'"updates": 2'
BAD_LINES = [
    b"\xff\xfe\x00", b"[" * 100_000, changed(UPDATES, b'"updates": ' + b"9" * 5000),
    changed(b'"wall_s": 2.0', b'"wall_s": NaN'), GOOD[:-1],
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
def test_no_line_of_metrics_can_stop_a_resume(tmp_path, bad):
    write_run(tmp_path, range(1, 9))
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], bad + b"\n", *lines[2:]]))
    assert [record.updates for record in read_records(tmp_path)] == list(range(1, 9))
    cut = rewound(tmp_path)[0]
    assert path.read_bytes() == b"".join(lines[:4])
    assert cut.aside.read_bytes() == b"".join([bad + b"\n", *lines[4:]])


def test_a_line_longer_than_the_memory_cannot_stop_a_resume(tmp_path):
    write_run(tmp_path, range(1, 4))
    path = tmp_path / "metrics.jsonl"
    good = path.read_bytes()
    hole_bytes = 60 * MAX_LINE_BYTES
    os.truncate(path, len(good) + hole_bytes)
    tracemalloc.start()
    rewound(tmp_path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.read_bytes() == good
    assert peak_bytes < hole_bytes / 2


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_journal_is_moved_out_of_the_way_and_never_followed(tmp_path, kind):
    name = "metrics.jsonl"
    run = write_run(tmp_path / "run", range(1, 4))
    path, victim = run / name, tmp_path / "victim"
    victim.write_text("precious\n")
    path.unlink()
    if kind == "folder":
        (path / "in it").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)
    if kind in ("folder", "pipe"):
        assert read_records(run) == []
    (cut,) = rewound(run)
    assert (cut.name, cut.lines, cut.aside.name) == (name, 0, f"{name}.{CUT}")
    write_run(run, [4])
    assert len(read_records(run)) == 1
    assert victim.read_text() == "precious\n"


def shown_steps(folder):
    """The steps of one curve, as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder)).Reload()
    return [event.step for event in accumulator.Scalars("loss/policy")]


def write_events(folder, updates, resumed_at=None):
    sink = TensorBoardSink(folder, resumed_at)
    for update in updates:
        sink.write(at(update))
    sink.close()


def test_the_curves_of_tensorboard_do_not_fold_back(tmp_path):
    write_events(tmp_path, range(1, 9))
    second = int(time.time())
    while int(time.time()) == second:  # TensorBoard reads files by the second of their making
        time.sleep(0.01)
    write_events(tmp_path, range(5, 7), resumed_at=400)
    assert shown_steps(tmp_path) == [100, 200, 300, 400, 500, 600]
