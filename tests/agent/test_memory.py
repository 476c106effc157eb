from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ritornello.agent.assembly import build_model
from ritornello.agent.run import memory
from ritornello.agent.run.memory import (
    FIRST_UNROLLS,
    ITEM_BYTES,
    OF_ITEMS,
    OF_MEMORY,
    CapacityWatch,
    check_memory,
    memory_needs,
)
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from ritornello.replay.parameters import most_unrolls_held, parse_replay_parameters
from ritornello.replay.several_games import split_by_task
from tests.agent.runs import make_blueprint
from tests.replay.builders import SCHEMA, context, make_manager, make_record, queue, standard


def needs_of(**flags):
    blueprint = make_blueprint(**flags)
    model = build_model(blueprint.flags, blueprint.env_spec)
    return {need.part.split(" (")[0]: need.nbytes for need in memory_needs(blueprint, model)}


def free(monkeypatch, machine, container=None):
    """Let this machine have so many free bytes, and its container so many more to give."""
    own = SimpleNamespace(available=int(machine), total=int(machine))
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: own)
    limit = None if container is None else int(container)
    monkeypatch.setattr(memory, "container_free_bytes", lambda: limit)


def replay_of(capacity):
    return [queue(4, 0.5), standard(capacity, 0.5)]


def refusal(**flags):
    blueprint = make_blueprint(**flags)
    with pytest.raises(ConfigError) as caught:
        check_memory(blueprint, build_model(blueprint.flags, blueprint.env_spec))
    return str(caught.value)


@pytest.mark.parametrize(
    ("buffers", "strategy", "held"),
    [
        ([queue(4, 0.5), standard(30, 0.25), standard(50, 0.25)], "block", 50),
        ([queue(4, 0.5), standard(50, 0.25), standard(50, 0.25, reservoir=True)], "block", 100),
        ([queue(4, 0.5), standard(50, 0.5)], "keep_oldest", 54),
        ([queue(60, 0.5), standard(50, 0.5)], "keep_latest", 60),
    ],
)
def test_buffers_that_drop_alike_share_and_others_add_up(buffers, strategy, held):
    configs = parse_replay_parameters(buffers)
    assert most_unrolls_held(configs, strategy, batch_size=8) == held + 16
    parts = split_by_task(parse_replay_parameters([queue(4, 0.5), standard(50, 0.5)]), (1, 1))
    assert most_unrolls_held(parts, "block", 8) == 25 + 25 + 4 + 16


BUFFERS = st.lists(
    st.builds(
        lambda capacity, reservoir: standard(capacity, 0.1, reservoir=reservoir),
        st.integers(1, 30),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(
    others=BUFFERS,
    queue_capacity=st.integers(1, 10),
    strategy=st.sampled_from(["block", "keep_latest", "keep_oldest", "alternating"]),
    batches_per_insert=st.sampled_from([0.02, 0.1, 0.5]),
)
def test_no_mixture_ever_holds_more_than_is_reckoned_with(
    others, queue_capacity, strategy, batches_per_insert
):
    buffers = [queue(queue_capacity, 1 - 0.1 * len(others)), *others]
    most = most_unrolls_held(parse_replay_parameters(buffers), strategy, 10)
    manager = make_manager(buffers, 10, discarding_strategy=strategy, fill_in_factor=0)
    due = 0.0
    for seq in range(300):
        if not manager.insert(make_record(seq), seq, timeout_s=0):
            manager.sample(context(), 0)
        due += batches_per_insert
        if due >= 1:
            due -= 1
            manager.sample(context(), 0)
        held = round(manager.stats()["replay/memory_mb"] * 1e6 / SCHEMA.nbytes)
        assert held <= most


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"replay_parameters": replay_of(5000)}, "replay of"),
        ({"worker_count": 9}, "9 rings"),
        ({"worker_count": 9}, "9 worker processes"),
        ({"shared_queue_size": 100}, "1 rings"),
        ({"batch_size": 400}, "9 batches"),
        ({"cache_output_buffer_size": 100}, "101 batches"),
        ({"feature_out_layer_size": 2000}, "weights of"),
        ({"inference": "server"}, "1 mailboxes"),
        ({"inference": "server"}, "the inference server"),
    ],
)
def test_each_flag_that_takes_memory_is_in_the_sum(flags, part):
    small, large = needs_of(), needs_of(**flags)
    (name,) = [name for name in large if name.startswith(part)]
    assert sum(large.values()) > sum(small.values())
    assert large[name] > small.get(name, 0)


def test_the_limit_of_a_container_counts_where_it_is_tighter(monkeypatch):
    flags = {"replay_parameters": replay_of(30_000_000)}
    free(monkeypatch, 1e12)
    blueprint = make_blueprint(**flags)
    check_memory(blueprint, build_model(blueprint.flags, blueprint.env_spec))
    free(monkeypatch, 1e12, container=4e9)
    assert "4.00 GB are free" in refusal(**flags)
    free(monkeypatch, 3e9, container=1e12)
    assert "3.00 GB are free" in refusal(**flags)
    # Compressed replay is refused only where it cannot fit whatever the frames are like.
    packed = {"use_replay_compression": True}
    blueprint = make_blueprint(**flags, **packed)
    check_memory(blueprint, build_model(blueprint.flags, blueprint.env_spec))
    assert "replay of" in refusal(replay_parameters=replay_of(10**12), **packed)


def test_agents_that_run_at_once_are_counted_together(monkeypatch):
    own = SimpleNamespace(available=100e9, total=100e9)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: own)
    monkeypatch.setattr(memory, "container_free_bytes", lambda: None)
    monkeypatch.setattr(memory, "container_limit_bytes", lambda: None)
    one = make_blueprint(agent_count=3)
    model = build_model(one.flags, one.env_spec)
    needed = sum(need.nbytes for need in memory_needs(one, model))
    own.total = own.available = 3 * needed
    check_memory(one, model)
    own.total = 3 * needed - 1
    message = refusal(agent_count=3)
    assert f"and 3 like it {3 * needed / 1e9:.2f} GB" in message
    assert "let fewer run at once" in message
    # One that starts again finds the memory of the others taken, and needs only its own.
    own.total, own.available = 3 * needed, needed
    check_memory(one, model)
    monkeypatch.setattr(memory, "container_limit_bytes", lambda: 2 * needed)
    assert "let fewer run at once" in refusal(agent_count=3)


KB = 1000


def watch(unrolls, **flags):
    return CapacityWatch(unrolls, Flags(**flags))


def figures(unrolls, each_bytes):
    return {OF_ITEMS: float(unrolls), OF_MEMORY: unrolls * each_bytes / 1e6}


def test_the_first_unrolls_are_weighed_once(caplog, monkeypatch):
    caplog.set_level("INFO")
    free(monkeypatch, 10e9)
    weighs = watch(1_000_000, use_replay_compression=True)
    weighs.look({})
    weighs.look(figures(FIRST_UNROLLS - 1, 8 * KB))
    assert not caplog.messages
    weighs.look(figures(FIRST_UNROLLS, 8 * KB))
    (line,) = caplog.messages
    assert f"will take {1e6 * (8 * KB + ITEM_BYTES) / 1e9:.2f} GB" in line
    weighs.look(figures(250, 12 * KB))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("is_compressed", [False, True])
def test_what_will_not_fit_is_refused_with_the_arithmetic(monkeypatch, is_compressed):
    free(monkeypatch, 4e9)
    weighs = watch(1_000_000, use_replay_compression=is_compressed)
    with pytest.raises(ConfigError) as caught:
        weighs.look(figures(100, 8 * KB))
    message = str(caught.value)
    assert "1,000,000 unrolls of 8.0 kB will take 8.60 GB" in message
    assert "4.00 GB are free" in message
    assert "to 47 % of what they are" in message
    assert ("--use_replay_compression=True" in message) != is_compressed
    weighs.look(figures(100, 8 * KB))  # while the run ends it is asked again


def test_what_is_there_already_is_not_needed_once_more_and_agents_fill_up_together(monkeypatch):
    """A resumed replay is nearly full, and the memory that it takes is not free any more."""
    for free_bytes, held in ((0.1e6, 1000), (0.9e6, 900)):
        free(monkeypatch, free_bytes)
        watch(1000).look(figures(held, 8 * KB))
    free(monkeypatch, 0.8e6)
    with pytest.raises(ConfigError):
        watch(1000).look(figures(900, 8 * KB))
    free(monkeypatch, 9e9)
    watch(1_000_000).look(figures(100, 8 * KB))
    with pytest.raises(ConfigError, match=r"25\.80 GB are still needed for 3 agents"):
        watch(1_000_000, agent_count=3).look(figures(100, 8 * KB))


def test_the_figures_are_those_of_the_manager():
    manager = make_manager([queue(4, 0.5), standard(20, 0.5)], 2)
    for seq in range(4):
        manager.insert(make_record(seq), 0, 0.0)
    stats = manager.stats()
    assert stats[OF_ITEMS] == 4
    assert stats[OF_MEMORY] == 4 * len(make_record(0)) / 1e6
