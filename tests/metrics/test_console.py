import io
from dataclasses import replace
from unittest import mock

import pytest
from rich.console import Console

from ritornello.metrics.console import ConsoleSink, Goal, View
from ritornello.metrics.record import Record
from ritornello.metrics.text import BLOCKS

GOAL = Goal("Pong", "results/Pong_1", max_agent_steps=1000)
VALUES = {
    "throughput/agent_steps_per_s": 5512.3,
    "episode/return_mean": 17.94,
    "episode/return_best": 21.0,
    "loss/policy": -0.0123,
    "loss/value": 0.41,
    "policy/entropy": 1.02,
    "lag/mean_updates": 12.1,
    "cache/wait_fraction": 0.031,
    "replay/queue/fill": 0.12,
    "replay/elite_2/fill": 1.0,
    "replay/elite_2/mean_age_updates": 4210.0,
    "replay/ratio": 1.0,
    "system/memory_mb": 2134.0,
}


class Screen:
    """A sink on a terminal or on a pipe."""

    def __init__(self, terminal):
        self.file, self.sink = io.StringIO(), ConsoleSink(GOAL)
        self.sink.console = Console(file=self.file, force_terminal=terminal, width=60)

    def text(self):
        return self.file.getvalue()


def record(step, **values):
    return Record(step, 4 * step, step // 10, 3, wall_s=step / 10, values={**VALUES, **values})


@pytest.mark.parametrize("terminal", [False, True])
def test_what_cannot_redraw_gets_one_plain_line_every_few_seconds(clock, monkeypatch, terminal):
    monkeypatch.setenv("TERM", "dumb")  # as Emacs and some runners of jobs have it
    screen = Screen(terminal)
    for step in range(0, 100, 10):  # a record each second
        screen.sink.write(record(step + 100))
        clock.now_s += 1
    assert screen.text().count("\n") == 2
    screen.sink.close()
    screen.sink.close()
    lines = screen.text().splitlines()
    assert len(lines) == 3  # the last record is always shown
    assert "\x1b" not in screen.text()
    assert lines[-1] == (
        "0:00:19  19.0% 190/1000 steps | 5512/s eta 0:01:21 | 3 games mean 17.9 best 21 | "
        "losses: policy -0.012, value 0.410, entropy 1.02 | policy lag 12.1 | learner waits 3% | "
        "queue 12% elite_2 100% | 2.1 GB"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_until_the_first_update_one_line_says_what_is_waited_for(terminal, clock):
    screen = Screen(terminal)
    for fill in (0.0, 0.0, 0.03, 0.04):
        values = {"workers/alive": 2.0, "replay/queue/fill": fill, "lag/mean_updates": 0.0}
        screen.sink.write(Record(0, 0, 0, 0, wall_s=0.0, values=values))
        clock.now_s += 6
    screen.sink.write(record(100))
    screen.sink.close()
    text = screen.text()
    assert "starting: 2 workers, nothing is played yet (0 s)" in text
    assert "filling the replay to 0%: queue 3% (12 s)" in text
    assert "0/1000" not in text.replace("100/1000", "")
    if not terminal:
        assert len(text.splitlines()) == 3


def test_a_line_of_the_first_game_speaks_of_one_game(clock):
    screen = Screen(False)
    screen.sink.write(replace(record(100), episodes=1))
    screen.sink.close()
    assert " | 1 game mean 17.9 " in screen.text()


def test_a_terminal_is_drawn_at_most_twice_a_second_and_given_back(clock):
    screen = Screen(terminal=True)
    drawn = []
    for step in range(20):  # ten records a second
        before = len(screen.text())
        screen.sink.write(record(step))
        drawn.append(len(screen.text()) > before)
        clock.now_s += 0.1
    assert sum(drawn) == 4
    assert drawn[0]
    screen.sink.close()
    assert "\x1b[?25h" in screen.text()  # the cursor is back
    length = len(screen.text())
    screen.sink.write(record(500))
    assert len(screen.text()) == length


def test_a_terminal_that_cannot_show_the_panel_is_given_back(clock):
    screen = Screen(terminal=True)
    screen.sink.write(Record())
    with mock.patch.object(View, "panel", side_effect=UnicodeEncodeError("ascii", "–", 0, 1, "no")):
        screen.sink.write(record(1))
        with pytest.raises(UnicodeEncodeError):
            screen.sink.close()
    assert "\x1b[?25h" in screen.text()


def rendered(view, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(view.panel(width))
    return console.file.getvalue()


def test_the_panel_shows_progress_figures_and_a_row_for_each_buffer():
    view = View(GOAL)
    for step in (100, 200, 300):
        view.add(record(step, **{"episode/return_mean": float(step)}))
    view.add(Record(agent_steps=300, updates=30, episodes=3, wall_s=30.0))  # values stay
    text = rendered(view)
    for expected in ("Pong", "results/Pong_1", "30.0%", "300 of 1000 steps", "0:01:10 left"):
        assert expected in text
    rows = {line.split()[1]: line for line in text.splitlines() if len(line.split()) > 2}
    assert "12%" in rows["queue"]
    assert "100%" in rows["elite_2"]
    assert "4210" in rows["elite_2"]
    assert BLOCKS[0] + BLOCKS[4] + BLOCKS[7] in text
    assert max(map(len, text.splitlines())) == 98


TWO_GAMES = Goal("2 games", "results/2games", 1000, ("Pong", "Carnival"))
OF_GAMES = {
    "episode/score_mean": 0.314,
    "episode/return_mean_0": -20.1,
    "episode/return_mean_1": 4123.0,
    "episode/return_best_1": 5555.0,
    "episode/count_0": 7.0,
    "episode/count_1": 2.0,
}


def test_several_games_have_a_row_each_and_one_score():
    view = View(TWO_GAMES)
    for score in (0.1, 0.2, 0.314):
        view.add(Record(300, 1200, 30, 9, 30.0, {**OF_GAMES, "episode/score_mean": score}))
    text = rendered(view)
    rows = {line.split()[1]: line.split() for line in text.splitlines() if len(line.split()) > 2}
    assert rows["Pong"][2:] == ["-20.1", "–", "–", "7", "│"]
    assert rows["Carnival"][2:] == ["4123", "5555", "–", "2", "│"]
    assert "mean return" not in text
    assert BLOCKS[0] + BLOCKS[3] in text  # the history is that of the score
    assert "9 games score 0.314: Pong -20.1, Carnival 4123 |" in view.line()
