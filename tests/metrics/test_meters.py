import pytest

from ritornello.core.episode import EpisodeEnd
from ritornello.metrics.meters import EpisodeMeter, Rate, Speed
from ritornello.metrics.record import Record
from ritornello.metrics.text import duration


def test_a_rate_is_growth_over_time_since_the_last_read(clock):
    rate = Rate(count=1000)
    assert rate.read(1000) is None  # no time has passed
    clock.now_s += 4
    assert rate.read(1200) == 50.0
    clock.now_s += 1
    assert rate.read(1210) == 10.0


def play(meter, *returns):
    for value in returns:
        meter.add(EpisodeEnd(0, value, length_steps=int(value) + 50, length_frames=400))


def test_games_are_averaged_since_the_last_read_and_over_the_window():
    meter = EpisodeMeter(window=3)
    assert meter.read() == {}
    play(meter, -3.0, -1.0)
    values = meter.read()
    assert values["episode/return_raw"] == values["episode/return_mean"] == -2.0
    assert values["episode/return_best"] == -1.0  # negative scores have a best, too
    assert (values["episode/length_steps"], values["episode/length_frames"]) == (48.0, 400.0)
    assert meter.best_mean is None  # three games are not yet there
    play(meter, 4.0, 9.0)
    values = meter.read()
    assert values["episode/return_raw"] == 6.5
    assert values["episode/return_mean"] == meter.best_mean == 4.0
    play(meter, -30.0)
    meter.read()
    assert (meter.best, meter.best_mean, meter.count) == (9.0, 4.0, 5)
    assert meter.read().keys() == {"episode/return_mean", "episode/return_best"}


def test_a_resumed_game_meter_goes_on_and_its_state_is_a_copy():
    meter, other = EpisodeMeter(3), EpisodeMeter(3)
    play(meter, 1.0, 2.0)
    state = meter.state_dict()
    play(meter, 6.0)
    other.load_state_dict(state)
    play(other, 6.0)
    assert other.state_dict() == meter.state_dict()
    assert state["window"] == [1.0, 2.0]


def learning(target_steps):
    """Return a speed that waits for the second record of learning."""
    speed = Speed(target_steps)
    speed.add(Record(values={"loss/total": 1.0}))
    return speed


def test_what_was_done_before_is_no_part_of_the_speed():
    speed = Speed(5600)
    # While replay fills, the clock moves only as far as writing a record takes.
    filling = [Record(n, wall_s=s) for n, s in ((0, 899.9), (0, 899.901), (4500, 899.902))]
    for record in (*filling, Record(5000, wall_s=900.0, values={"loss/total": 1.0})):
        speed.add(record)
        assert (speed.steps_per_s, speed.seconds_left()) == (None, None)
    speed.add(Record(agent_steps=5100, wall_s=901.0))
    assert (speed.steps_per_s, speed.seconds_left()) == (100.0, 5.0)
    speed.add(Record(agent_steps=5700, wall_s=907.0))
    assert speed.seconds_left() == 0


def test_the_time_left_is_that_to_the_first_of_two_limits():
    speed = Speed(2000, training_seconds=60.0)
    for at_s, steps, left_s in ((500, 0, 60), (510, 100, 50), (540, 1600, 8), (560, 1610, 0)):
        speed.add(Record(agent_steps=steps, wall_s=at_s, values={"loss/total": 1.0}))
        assert speed.seconds_left() == left_s


def test_a_change_is_followed_within_about_half_a_minute():
    speed = learning(2000)
    speed.add(Record(agent_steps=1000, wall_s=10.0))
    speed.add(Record(agent_steps=1000, wall_s=20.0))  # nothing is done any more
    assert speed.steps_per_s == pytest.approx(100 * 2 / 3)
    speed.add(Record(agent_steps=1000, wall_s=20.0))  # a second one of the same moment
    assert speed.steps_per_s == pytest.approx(100 * 2 / 3)
    speed.add(Record(agent_steps=1000, wall_s=50.0))
    assert (speed.steps_per_s, speed.seconds_left()) == (0, None)


def test_a_run_that_stands_still_has_no_known_end():
    speed = learning(10**15)
    for seconds in range(5, 1205, 5):
        speed.add(Record(agent_steps=1000, wall_s=float(seconds)))
        left_s = speed.seconds_left()
        assert left_s is None or duration(left_s)
