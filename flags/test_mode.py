"""The flags of the group `test`."""

from __future__ import annotations

from flags.group import FlagGroup, flag
from flags.kinds import Count


class TestModeFlags(FlagGroup):
    """What `--op_mode=test` plays and shows."""

    test_episode_count: Count = flag(
        100, "whole games to play in --op_mode=test", of_this_command=True
    )
    render: bool = flag(
        False,
        "in test mode, show the first game in a window, or record it as MP4 where there is no display",
        of_this_command=True,
    )
    greedy: bool = flag(
        False,
        "in test mode, take the most probable action instead of sampling",
        of_this_command=True,
    )
    test_all_checkpoints: bool = flag(
        False,
        "in test mode, play --test_episode_count games with every checkpoint of the run, oldest first, into scores.csv (whole games) and scores_per_life.csv; goes on where it was interrupted",
        of_this_command=True,
    )
