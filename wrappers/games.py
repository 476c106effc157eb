"""Lists of games as they are typed: `--env=A,B`, and the names of well-known sets of games.

Nothing of Gymnasium is loaded to read a list, except for `all`.
"""

from __future__ import annotations

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import shown, shown_text

_SIX = ("AirRaid", "Carnival", "DemonAttack", "NameThisGame", "Pong", "SpaceInvaders")
# The games of the multi-task experiments of TorchBeast with PopArt (2020), in their order.
GAME_SETS: dict[str, tuple[str, ...]] = {
    "three": tuple(f"{name}NoFrameskip-v4" for name in _SIX[:3]),
    "six": tuple(f"{name}NoFrameskip-v4" for name in _SIX),
}
ALL = "all"
MAX_GAMES = 500
MAX_ID_LENGTH = 200  # the longest id of Gymnasium and its games has 42


def expand_games(text: str) -> str:
    """Return the ids of the games meant by `text`, joined with commas, in the order of their tasks.

    `text` holds ids and names of sets, separated by commas. The sets are `six`, `three`, and `all`:
    every NoFrameskip-v4 game that ale-py can play here.

    Raises:
      ConfigError: if there is an empty name, a game comes twice, or there are too many.
    """
    ids: list[str] = []
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_GAMES or max(map(len, parts)) > MAX_ID_LENGTH:
        raise ConfigError(
            f"env is {shown(text)}, expected at most {MAX_GAMES} ids of at most {MAX_ID_LENGTH} "
            "characters each."
        )
    for part in parts:
        if part == ALL:
            from ritornello.wrappers.env_ids import all_atari_ids  # it loads Gymnasium

            ids += all_atari_ids()
        else:
            ids += GAME_SETS.get(part, (part,))
    if not all(ids):
        raise ConfigError(f"env is {shown(text)}, expected ids separated by single commas.")
    twice = sorted({env_id for env_id in ids if ids.count(env_id) > 1})
    if twice:
        names = shown_text(", ".join(twice))
        raise ConfigError(
            f"env is {shown(text)}, which names {names} more than once: expected each game "
            "once. Give one game a larger part of the environments with --env_shares."
        )
    return ",".join(ids)
