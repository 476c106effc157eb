from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.analysis.compare import main
from ritornello.analysis.runs import find_runs
from ritornello.analysis.statistics import Estimate
from ritornello.analysis.to_score import (
    Arrival,
    arrival,
    half_time,
    half_time_estimate,
    time_text,
    to_score_page,
)
from tests.analysis.builders import curve_of, write_run
from tests.reference.statistics_loops import median_time_loops

PONG, BREAKOUT, POLE = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "CartPole-v1"

# Few different moments, so that runs arrive and end together.
observed = st.lists(st.tuples(st.integers(1, 5).map(float), st.booleans()), min_size=1, max_size=7)


@given(observed)
def test_half_the_runs_arrive_when_kaplan_and_meier_say(runs):
    times, reached = (np.array(column) for column in zip(*runs, strict=True))
    expected = median_time_loops(times.tolist(), reached.tolist())
    assert float(half_time(times, reached)) == pytest.approx(expected)


def half(*runs):
    return half_time_estimate(*zip(*runs, strict=True))


def test_without_runs_that_ended_early_it_is_the_median():
    assert half((3.0, True), (1.0, True), (9.0, True)).value == 3.0
    assert half((3.0, True), (1.0, True)).value == 2.0
    assert half((7.0, True)) == Estimate(7.0)  # one run: no interval


def test_runs_that_never_arrive_are_neither_left_out_nor_counted_as_arrived():
    # The two that arrived did so at 1 and 2. Left out, the others would make this 1.5.
    late = half((1.0, True), (2.0, True), (5.0, False), (5.0, False), (5.0, False))
    assert late.value == inf
    assert time_text(late) == "not reached [1, not reached]"
    # One that was stopped at 0.5 says nothing about what came later.
    assert half((1.0, True), (2.0, True), (3.0, True), (0.5, False)).value == 2.0
    assert time_text(half(*[(5.0, False)] * 5)) == "not reached [not reached, not reached]"


def test_a_score_is_reached_between_two_records_and_for_the_first_time():
    curve = curve_of([(100, 0.0), (200, 10.0), (300, 4.0), (400, 20.0)])
    assert arrival(curve, 5.0) == Arrival(True, 150.0, 15.0)
    assert arrival(curve, 10.0) == Arrival(True, 200.0, 20.0)
    assert arrival(curve, -1.0) == Arrival(True, 100.0, 10.0)  # at its first record, or before
    assert arrival(curve, 21.0) == Arrival(False, 400.0, 40.0)


def test_runs_of_all_lengths_are_compared(tmp_path):
    write_run(tmp_path / "a1", seed=0, slope=0.1)
    write_run(tmp_path / "a2", seed=2, slope=0.1, end=300, finished=False)
    write_run(tmp_path / "b1", seed=0, slope=0.2)
    write_run(tmp_path / "b2", seed=4, slope=0.2)
    runs, _ = find_runs([f"{x}={tmp_path}/{x}?" for x in "ab"])
    text = to_score_page(runs, 50.0)
    assert "## PongNoFrameskip-v4, score 50.0" in text
    fastest, slowest = "| b | 2 of 2 | 240 | 0.4 | 0: 250 (0.4 min), 4: 230", "| a | 1 of 2 | 500 |"
    assert 0 < text.index(fastest) < text.index(slowest)
    assert "2: > 300 (> 0.5 min) |" in text


def test_a_share_of_human_play_is_a_raw_score_of_each_game(tmp_path, capsys):
    for env, slope in ((PONG, 0.05), (BREAKOUT, 0.05), (POLE, 0.05)):
        for seed in (1, 2):
            write_run(tmp_path / f"{env}{seed}", seed=seed, slope=slope, env=env)
    out = tmp_path / "out"
    options = [f"--runs=mine={tmp_path}/*v?[12]", f"--output={out}"]
    assert main([*options, "--to_score=100%"]) == 0
    text = (out / "to_score.md").read_text()
    assert text in capsys.readouterr().out
    # Human play scores 14.6 in Pong and 30.5 in Breakout.
    assert "## PongNoFrameskip-v4, score 14.6" in text
    assert "| mine | 2 of 2 | 262 |" in text
    assert "## BreakoutNoFrameskip-v4, score 30.5" in text
    assert "| mine | 2 of 2 | 580 |" in text
    assert f"* {POLE}: the table of" in text
