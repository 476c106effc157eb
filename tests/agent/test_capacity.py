"""Whether full replay fits is said at the start, and refused before anything is lost."""

from __future__ import annotations

import logging

import pytest

from ritornello.agent.run.capacity import (
    FIRST_UNROLLS,
    ITEM_BYTES,
    OF_ITEMS,
    OF_MEMORY,
    CapacityWatch,
)
from ritornello.core.errors import ConfigError
from tests.replay.builders import make_manager, make_record, queue, standard

KB = 1000


def figures(unrolls: int, each_bytes: float) -> dict[str, float]:
    return {OF_ITEMS: float(unrolls), OF_MEMORY: unrolls * each_bytes / 1e6}


class Memory:
    def __init__(self, free: float) -> None:
        self.free = int(free)

    def __call__(self) -> int:
        return self.free


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_the_first_unrolls_are_weighed_once_and_then_at_each_doubling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = CapacityWatch(1_000_000, 170 * KB, Memory(10e9), is_compressed=True)
    caplog.clear()
    watch.look({})
    watch.look(figures(FIRST_UNROLLS - 1, 8 * KB))
    assert not caplog.messages
    watch.look(figures(FIRST_UNROLLS, 8 * KB))
    (line,) = caplog.messages
    assert "an unroll takes 8.0 kB (21.2 times smaller)" in line
    assert f"takes {1e6 * (8 * KB + ITEM_BYTES) / 1e9:.2f} GB" in line
    caplog.clear()
    # Played better, games look different: it is said, but nothing is lost for it.
    watch.look(figures(150, 12 * KB))
    assert not caplog.messages
    watch.look(figures(250, 12 * KB))
    (line,) = caplog.messages
    assert "12.60 GB" in line
    assert caplog.records[0].levelno == logging.WARNING
    watch.look(figures(400, 12 * KB))
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("is_compressed", [False, True])
def test_what_will_not_fit_is_refused_with_the_arithmetic(is_compressed: bool) -> None:
    watch = CapacityWatch(1_000_000, 8 * KB, Memory(4e9), is_compressed=is_compressed)
    with pytest.raises(ConfigError) as caught:
        watch.look(figures(100, 8 * KB))
    message = str(caught.value)
    assert "1,000,000 unrolls of 8.0 kB will take 8.60 GB" in message
    assert "4.00 GB are free" in message
    assert "to 47 % of what they are" in message
    assert ("--use_replay_compression=True" in message) != is_compressed
    watch.look(figures(100, 8 * KB))  # while the run ends it is asked again


def test_what_is_there_already_is_not_needed_once_more() -> None:
    """A resumed replay is nearly full, and the memory that it takes is not free any more."""
    CapacityWatch(1000, 8 * KB, Memory(0.1e6)).look(figures(1000, 8 * KB))
    CapacityWatch(1000, 8 * KB, Memory(0.9e6)).look(figures(900, 8 * KB))
    with pytest.raises(ConfigError):
        CapacityWatch(1000, 8 * KB, Memory(0.8e6)).look(figures(900, 8 * KB))


def test_agents_that_run_at_once_fill_up_together() -> None:
    CapacityWatch(1_000_000, 8 * KB, Memory(9e9)).look(figures(100, 8 * KB))
    with pytest.raises(ConfigError, match=r"25\.80 GB, for 3 agents"):
        CapacityWatch(1_000_000, 8 * KB, Memory(9e9), agents=3).look(figures(100, 8 * KB))


def test_the_figures_are_those_of_the_manager() -> None:
    manager = make_manager([queue(4, 0.5), standard(20, 0.5)], 2)
    for seq in range(4):
        manager.insert(make_record(seq), 0, 0.0)
    stats = manager.stats()
    assert stats[OF_ITEMS] == 4
    assert stats[OF_MEMORY] == 4 * len(make_record(0)) / 1e6
