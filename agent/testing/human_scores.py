"""Two marks on each Atari game's scale: a player that acts at random, and a professional one.

With them scores of different games can be averaged. Published tables differ for some games
(BeamRider, for one), so a normalised score is only as good as the name of its table: TABLE.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ritornello.wrappers.env_ids import is_atari, rom_name

# The table of Mnih et al., "Human-level control through deep reinforcement learning" (2015), as
# completed to 57 games by Wang et al., "Dueling network architectures" (2016), table 2.
TABLE = "Wang et al. 2016, no-op starts"
TABLE_FILE = Path(__file__).with_name("human_scores.csv")


@cache
def anchors() -> dict[str, tuple[float, float]]:
    """Return game -> (random, human) raw scores; games are spelt as ROMs: "space_invaders"."""
    with TABLE_FILE.open(encoding="utf-8") as file:
        return {
            row["game"]: (float(row["random"]), float(row["human"])) for row in csv.DictReader(file)
        }


def human_normalised(env_id: str, score: float) -> float | None:
    """Return (score - random) / (human - random), or None for an environment without anchors."""
    marks = anchors().get(rom_name(env_id)) if is_atari(env_id) else None
    if marks is None:
        return None
    random, human = marks
    return (score - random) / (human - random)


def all_human_normalised(env_id: str, scores: Iterable[float]) -> list[float]:
    """Return the scores, human-normalised; [] for an environment without anchors."""
    normalised = (human_normalised(env_id, score) for score in scores)
    return [score for score in normalised if score is not None]
