"""The flags of the group `evaluation`."""

from __future__ import annotations

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count, CountOrAuto, Text


class EvaluationFlags(FlagGroup, effect="output"):
    """Whole games that the agent plays while it is trained, to measure it; nothing is learned from them."""

    evaluate_every_steps: CountOrAuto = flag(
        0,
        "agent steps between evaluations, in which the newest weights play whole games; 0: none. A process of its own plays them, with a twentieth of a busy machine. While it is busy, evaluations that fall due are left out; the last one is played before the program leaves",
    )
    evaluation_games: Count = flag(
        5,
        "whole games that an evaluation plays of each game with sampled actions, and as many with the most probable ones",
        le=10_000,
    )
    evaluation_preset: Text | None = flag(
        None,
        "preset whose rules evaluations follow, e.g. sticky: what it says of sticky actions, the start of a game, and its length. None: the rules of training. In both cases lost lives end nothing, and the actions are those of the agent",
    )
    evaluation_films: CountOrAuto = flag(
        0,
        "film a game at every n-th evaluation, the first one included, into the folder films/ of the run; 0: none",
    )
