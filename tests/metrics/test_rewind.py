from dataclasses import replace
from pathlib import Path

from core.episode import EpisodeEnd
from metrics.record import Record
from metrics.rewind import TEXT_FILES, rewind
from metrics.sinks import JsonLinesSink, TextFilesSink


def at(updates):
    return Record(
        agent_steps=updates * 100,
        frames=updates * 400,
        updates=updates,
        episodes=updates,
        wall_s=float(updates),
        values={
            "loss/policy": 0.1, "loss/value": 0.2, "loss/entropy": 0.3, "optimiser/lr": 0.001,
        },
    )  # fmt: skip


def write_run(folder: Path, updates):
    sinks = [JsonLinesSink(folder / "metrics.jsonl")]
    sinks.append(TextFilesSink(folder, batch_size=2, unroll_length=5))
    for update in updates:
        for sink in sinks:
            sink.episode(EpisodeEnd(0, float(update), 10, 40), at(update))
            sink.write(at(update))
    for sink in sinks:
        sink.close()


def test_lines_after_the_checkpoint_go_and_the_others_stay(tmp_path):
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    write_run(tmp_path / "short", range(1, 5))
    write_run(tmp_path / "long", range(1, 9))
    dropped = rewind(tmp_path / "long", updates=4, agent_steps=400)
    assert dropped == 4 * (1 + len(TEXT_FILES))
    for name in ("metrics.jsonl", *TEXT_FILES):
        assert (tmp_path / "long" / name).read_text() == (tmp_path / "short" / name).read_text()


def test_lines_of_later_updates_go_also_where_no_agent_step_was_made_since(tmp_path):
    """A batch may be made of unrolls that wait, or of replay alone."""
    sink = TextFilesSink(tmp_path, batch_size=2, unroll_length=5)
    for updates, steps in ((1, 100), (2, 300), (3, 300), (4, 300), (5, 400)):
        sink.write(replace(at(updates), agent_steps=steps))
    sink.close()
    rewind(tmp_path, updates=3, agent_steps=300, training_steps=3 * 2 * 5)
    for name in ("Loss_file.txt", "lr_file.txt"):
        lines = (tmp_path / name).read_text().splitlines()
        assert [int(line.split(",")[-3]) for line in lines] == [10, 20, 30]


def test_a_line_that_was_cut_off_by_a_crash_goes(tmp_path):
    write_run(tmp_path, range(1, 4))
    whole = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(whole + '{"agent_steps": 12')
    assert rewind(tmp_path, updates=99, agent_steps=9900) == 1
    assert (tmp_path / "metrics.jsonl").read_text() == whole


def test_nothing_is_rewritten_when_there_is_nothing_to_drop(tmp_path):
    write_run(tmp_path, range(1, 4))
    before = (tmp_path / "metrics.jsonl").stat().st_ino
    assert rewind(tmp_path, updates=3, agent_steps=300) == 0
    assert (tmp_path / "metrics.jsonl").stat().st_ino == before


def test_a_run_without_files_can_be_rewound(tmp_path):
    assert rewind(tmp_path, updates=3, agent_steps=300) == 0
