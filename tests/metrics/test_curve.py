from ritornello.metrics.curve import curve_of
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import last_record


def record(steps, wall_s, **values):
    named = {name.replace("_", "/", 1): value for name, value in values.items()}
    return Record(agent_steps=steps, wall_s=wall_s, values=named)


def test_a_curve_drops_what_lies_beyond_the_checkpoint_of_a_resume_with_its_time():
    first = [record(10 * n, n, episode_return_mean=n) for n in (1, 2, 3)]
    # In another folder, from a checkpoint of 15 steps and 1.5 s: the clock goes on from there.
    second = [record(20, 2.5, episode_return_mean=5), record(40, 3.5, episode_return_mean=6)]
    curve = curve_of([*first, *second])
    assert curve.agent_steps.tolist() == [10, 20, 40]
    assert curve.mean_return.tolist() == [1, 5, 6]
    assert curve.wall_s.tolist() == [1, 2.5, 3.5]
    assert (curve.at_steps(30), curve.at_seconds(3.0)) == (5.5, 5.5)
    assert [curve.covers(steps) for steps in (9, 10, 40, 41)] == [False, True, True, False]


def test_a_run_that_was_begun_anew_has_the_curve_of_its_last_attempt():
    first = [record(10, 60.0, episode_return_mean=1), record(30, 80.0, episode_return_mean=2)]
    second = [record(20, 5.0, episode_return_mean=3), record(40, 10.0, episode_return_mean=4)]
    curve = curve_of([*first, *second])
    assert (curve.agent_steps.tolist(), curve.wall_s.tolist()) == ([20, 40], [5, 10])


def test_the_curve_of_several_games_is_their_score():
    records = [record(5, 1.0, episode_score_mean=0.25, episode_return_mean_1=7.0)]
    (score,), (return_,) = (
        curve.mean_return.tolist()
        for curve in (curve_of(records), curve_of(records, ["episode/return_mean_1"]))
    )
    assert (score, return_) == (0.25, 7.0)
    assert not len(curve_of([record(5, 1.0)]).agent_steps), "no game was finished"


def test_the_last_record_is_found_behind_lines_that_are_none(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [record(n, n, episode_return_mean=n).to_json() for n in range(5000)]
    path.write_text("\n".join([*lines, '{"values": null}', '{"agent_steps": 9, "wal']))
    found = last_record(tmp_path)
    assert found is not None
    assert found.agent_steps == 4999
    assert last_record(tmp_path / "absent") is None
