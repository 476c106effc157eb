"""The flags of the group `test`."""

from __future__ import annotations

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count


class TestModeFlags(FlagGroup, effect="command"):
    """What `--op_mode=test` plays and shows."""

    test_episode_count: Count = flag(
        100, "number of whole games to play in --op_mode=test", of_this_command=True
    )
    render: bool = flag(
        False,
        "in test mode, show the first game in a window, or record it as MP4 if there is no display",
        of_this_command=True,
    )
    greedy: bool = flag(
        False,
        "in test mode, take the most probable action instead of a sampled one",
        of_this_command=True,
    )
    test_all_checkpoints: bool = flag(
        False,
        "in test mode, play --test_episode_count games with every checkpoint of the run, oldest first, and write scores.csv (whole games) and scores_per_life.csv. The same command continues after an interruption",
        of_this_command=True,
    )
