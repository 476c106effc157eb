import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ritornello.core.errors import ConfigError
from ritornello.replay.parameters import (
    automatic_fill_in,
    make_buffers,
    normal_form,
    parse_replay_parameters,
)
from ritornello.replay.several_games import split_by_task
from tests.replay.builders import (
    attentive,
    elite,
    prioritised,
    queue,
    standard,
)


@pytest.mark.parametrize(
    "text",
    [
        "queue:16:0.5,elite:2000:0.5:score_stride=4:insert_strategy=elite_insertion",
        "[{type: queue, capacity: 16, sample_ratio: 0.5}, {type: elite, capacity: 2000, "
        "sample_ratio: 0.5, score_stride: 4, insert_strategy: elite_insertion}]",
        "[{'type': 'Queue', 'capacity': 16, 'sample_ratio': 0.5}, {'type': 'elite', 'capacity': "
        "2000, 'sample_ratio': 0.5, 'score_stride': 4, 'insert_strategy': 'elite_insertion'}]",
    ],
)
def test_a_mixture_can_be_written_in_several_ways(text):
    more = {"score_stride": 4, "insert_strategy": "elite_insertion"}
    expected = [queue(16, 0.5), {**elite(2000, 0.5), **more}]
    assert parse_replay_parameters(text) == parse_replay_parameters(expected)


def test_kinds_have_both_spellings_and_keys_have_hints():
    assert parse_replay_parameters("prioritized:9:1") == parse_replay_parameters("prioritised:9:1")
    with pytest.raises(ConfigError, match="did you mean lambda_batch_multiplier"):
        parse_replay_parameters("elite:9:1:lambda=3")


@pytest.mark.parametrize(
    ("given_ratios", "exact"),
    [
        ([0.7, 0.2, 0.1], [Fraction(7, 10), Fraction(1, 5), Fraction(1, 10)]),
        ([0.333333, 0.333333, 0.333334], None),
        ([1 / 3, 1 / 3, 1 / 3], [Fraction(1, 3)] * 3),
        ([0.333333, 0.333333, 0.333333], [Fraction(1, 3)] * 3),
        ([0.1] * 10, [Fraction(1, 10)] * 10),
    ],
)
def test_ratios_become_exact_fractions_of_sum_one(given_ratios, exact):
    configs = parse_replay_parameters([queue(1, ratio) for ratio in given_ratios])
    ratios = [config.sample_ratio for config in configs]
    assert sum(ratios) == 1
    assert exact is None or ratios == exact


def test_each_game_has_its_part_of_every_buffer_but_the_queue():
    configs = parse_replay_parameters([standard(10, 0.25), queue(4, 0.5), standard(5, 0.25)])
    parts = split_by_task(configs, (2, 1, 1))
    buffers = make_buffers(parts, 0.5)
    assert [(buffer.name, buffer.task, buffer.capacity, buffer.min_size) for buffer in buffers] == [
        ("standard_0", 0, 5, 3),
        ("standard_1", 1, 3, 2),
        ("standard_2", 2, 2, 1),
        ("queue", None, 4, 1),
        ("standard_2_0", 0, 3, 2),
        ("standard_2_1", 1, 1, 1),
        ("standard_2_2", 2, 1, 1),
    ]
    eighth, sixteenth = Fraction(1, 8), Fraction(1, 16)
    ratios = [eighth, sixteenth, sixteenth]
    assert [part.sample_ratio for part in parts] == [*ratios, Fraction(1, 2), *ratios]


@given(
    st.lists(st.integers(1, 50) | st.floats(0.01, 50), min_size=1, max_size=9), st.integers(0, 80)
)
def test_capacities_and_ratios_are_divided_without_rest(shares, spare):
    capacity = len(shares) + spare
    configs = parse_replay_parameters([queue(4, 0.3), standard(capacity, 0.7)])
    parts = split_by_task(configs, shares)[1:]
    assert sum(part.capacity for part in parts) == capacity
    assert sum(part.sample_ratio for part in parts) == Fraction(7, 10)
    starved = sum(capacity * share / sum(shares) < 1 for share in shares)
    for part, share in zip(parts, shares, strict=True):
        exact = capacity * share / sum(shares)
        assert float(part.sample_ratio) == pytest.approx(0.7 * share / sum(shares))
        assert part.capacity >= 1
        assert part.capacity == 1 or -1 - starved < part.capacity - exact < 1.001


def test_the_fill_threshold_is_exact():
    (buffer,) = make_buffers(parse_replay_parameters([standard(35)]), 0.2)
    assert buffer.min_size == 7  # 0.2 * 35 is 7.000000000000001 in floating point
    (buffer,) = make_buffers(parse_replay_parameters([standard(1001)]), 0.05)
    assert buffer.min_size == 51


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ("[{'type'", "not valid YAML"),
        ("", "Write queue:16|expected a list"),
        (json.dumps([queue(16)])[:-2] + ', "capacity": 32}]', "'capacity' is given twice"),
        ("circular:16:1:uses=2:uses=3", "circular:16:1:uses=2:uses=3.*'uses' twice"),
        ("queue:16:1:capacity=8", "queue:16:1:capacity=8.*'capacity' twice"),
        ("{}", "expected a list"),
        ([{**queue(1), "capcity": 3}], "did you mean capacity"),
        ([{**queue(1), "type": "standart"}], "expected queue, .* did you mean standard"),
        ([queue(0)], "capacity of replay buffer 1 is 0"),
        ("queue:1__0:1", "capacity of replay buffer 1 is '1__0', expected whole number >= 1"),
        ("queue:1.5e0:1", "capacity of replay buffer 1 is '1.5e0', expected whole number >= 1"),
        ("queue:4:0.5.5", "sample_ratio of replay buffer 1 is '0.5.5', expected number"),
        ("queue:1e99999:1", "capacity of replay buffer 1 is"),
        ([queue(1, 0)], "sample_ratio"),
        ([queue(1, 1e-9), queue(1)], "sample_ratio"),
        ([{**queue(1), "p": 2}], "queue, which has no p"),
        ([prioritised(1, eta=float("nan"))], r"expected number in \[0, 1\]"),
        ([{**queue(1), "type": "mine"}], "or <module>:<name> for a kind of your own"),
        ([elite(1, dist_function="cosine")], "ln_norm, cos_dist"),
        ([elite(1, elite_sampling_strategy="strategy5")], "strategy1"),
        ([elite(1, alfa_annealing_factor=0)], "number > 0"),
        ([elite(1, reservoir=True, insert_strategy="elite_insertion")], "both"),
        ([attentive(1, dist_function="policy_kl")], "policy_kl"),
        ([elite(9, 0.5, score_stride=2), attentive(9, 0.5)], "score_stride differs"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_possible(buffers, message):
    with pytest.raises(ConfigError, match=message):
        parse_replay_parameters(buffers)


@pytest.mark.parametrize(
    "text",
    [
        "standard:1e3:10e-1",
        "[{type: standard, capacity: 1e3, sample_ratio: 10e-1}]",
        '[{"type": "standard", "capacity": 1e3, "sample_ratio": 10e-1}]',
    ],
)
def test_numbers_may_be_scientific(text):
    given = parse_replay_parameters(text)
    assert given == parse_replay_parameters([standard(1000)])


OPTIONS = {
    "dist_function": st.sampled_from(["ln_norm", "cos_dist", "kl_div"]),
    "p": st.integers(1, 4),
    "insert_strategy": st.just("elite_insertion"),
    "elite_batch_size": st.integers(1, 30),
    "lambda_batch_multiplier": st.integers(1, 9) | st.floats(1, 9),
    "alfa_annealing_factor": st.floats(0.1, 3),
    "elite_sampling_strategy": st.sampled_from([1, 4, "strategy2", "strategy3"]),
}


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["elite", "attentive"]),
                "capacity": st.integers(1, 100),
            },
            optional=OPTIONS,
        ),
        min_size=1,
        max_size=7,
    )
)
def test_the_normal_form_is_json_and_parses_to_the_same_configs(buffers):
    given_buffers = [{**buffer, "sample_ratio": 1 / len(buffers)} for buffer in buffers]
    configs = parse_replay_parameters(given_buffers)
    text = json.dumps(normal_form(configs))
    assert parse_replay_parameters(text) == configs
    assert normal_form(parse_replay_parameters(text)) == normal_form(configs)


HALVES = [queue(4, 0.5), standard(1000, 0.5)]


@pytest.mark.parametrize(
    ("buffers", "environments", "unrolls", "held"),
    [
        (HALVES, 16, 10**5, [1, 50]),  # a twentieth is enough
        (HALVES, 120, 10**5, [1, 360]),
        ([queue(4, 0.5), standard(1000, 0.25), elite(200, 0.25)], 120, 10**5, [1, 360, 72]),
        ([queue(4, 0.5), standard(300, 0.5)], 120, 10**5, [1, 300]),  # more than it can hold
        (HALVES, 120, 1000, [1, 100]),  # a tenth of a short run
        (HALVES, 120, 100, [1, 50]),
        ([queue(4, 1)], 120, 10**5, [1]),
    ],
)
def test_learning_waits_until_each_environment_has_played_three_unrolls(
    buffers, environments, unrolls, held
):
    configs = parse_replay_parameters(buffers)
    share = automatic_fill_in(configs, environments=environments, unrolls=unrolls)
    assert [buffer.min_size for buffer in make_buffers(configs, share)] == held


def test_a_run_with_a_circular_buffer_alone_says_that_it_waits_until_that_is_full():
    configs = parse_replay_parameters("circular:8:1:uses=2")
    assert automatic_fill_in(configs, environments=4, unrolls=100) == 1.0
