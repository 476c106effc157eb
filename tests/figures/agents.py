"""Long runs with more replay, and the agents in models/."""

from __future__ import annotations

import json
from functools import cache
from statistics import fmean
from typing import Any

from tests.figures.files import (
    SPEED,
    USUAL,
    Claim,
    Value,
    area_to,
    at,
    best,
    end,
    minutes,
    over,
    percent_of_human,
    played,
)
from tests.house import ROOT

GAMES = ("Breakout", "SpaceInvaders")


def seaquest_rows() -> list[Claim]:
    """The default on Seaquest to its end."""
    name = "default_seaquest/default_SeaquestNoFrameskip-v4_seed1"
    folder = "default_seaquest"
    return [
        Claim(
            "docs/results.md",
            "training return **{}**, best game {}, {} minutes of running time. {} test games of "
            "the final policy: **{}**, from {} to {}, {} % of human.",
            (
                *(end(name), best(name), minutes(name)),
                *(played(folder, of) for of in (len, fmean, min, max)),
                percent_of_human(folder, "SeaquestNoFrameskip-v4"),
            ),
        ),
        Claim("docs/results.md", "It is at {} after 0.5 M steps", (at(name, 5e5),)),
        Claim(
            "README.md",
            "| Seaquest, return after 10 M frames, one seed | {} ({} in test games) |",
            (end(name), played(folder, fmean)),
        ),
    ]


def long_rows() -> list[Claim]:
    """Three quarters of replay to 2.5 M steps, beside the default: one seed each."""
    times = json.loads((SPEED / "three_quarters_amx.json").read_text("utf-8"))
    steps = 2.5e6 * fmean(times["three_quarters"]) / fmean(times["half"])
    claims = [
        Claim(
            "docs/results.md",
            "it is at {} M steps when the default ends. There it has {} in Breakout, less than the "
            "default, and {} in SpaceInvaders, more than it.",
            (
                lambda: steps / 1e6,
                *(
                    at(
                        f"three_quarters_long/replay-3-of-4-online_{game}NoFrameskip-v4_seed4",
                        steps,
                    )
                    for game in GAMES
                ),
            ),
        )
    ]
    others = [over(each, *map(end, USUAL[game])) for game in GAMES for each in (min, max)]
    at_700k = [
        end(f"three_quarters/replay-3-of-4-online_{game}NoFrameskip-v4_seed4") for game in GAMES
    ]
    sentence = (
        "there as well: {} to {} in Breakout and {} to {} in SpaceInvaders, against {} and {}."
    )
    claims.append(Claim("docs/results.md", sentence, (*others, *at_700k)))
    for game in GAMES:
        env = f"{game}NoFrameskip-v4"
        name = f"three_quarters_long/replay-3-of-4-online_{env}_seed4"
        default = f"{game.lower()}_default"
        default_run = f"{default}/default_{env}_seed1"
        test = [played("three_quarters_long", of, env) for of in (fmean, min, max)]
        claims += [
            Claim(
                "docs/results.md",
                f"| three quarters to 10 M frames, {game} |" + " {} |" * 5,
                (
                    *(area_to(name, 2.5e6), area_to(default_run, 2.5e6), end(name)),
                    *(end(default_run), minutes(name)),
                ),
            ),
            Claim(
                "docs/results.md",
                f"| test games of both, {game} |" + " {} |" * 4,
                (*test, played(default, fmean)),
            ),
            Claim(
                "README.md",
                f"| {game}, three quarters of each batch replayed, return after 10 M frames, one "
                "seed | {} ({} in test games) |",
                (end(name), test[0]),
            ),
        ]
    return claims


@cache
def facts_of(agent: str) -> dict[str, Any]:
    """Return what model.json says of an agent in models/."""
    return dict(json.loads((ROOT / "models" / agent / "model.json").read_text("utf-8")))


def agent_rows() -> list[Claim]:
    """The table of models/README.md."""

    def of(agent: str, *path: str, scale: float = 1.0) -> Value:
        def value() -> float:
            found: Any = facts_of(agent)
            for key in path:
                found = found[key]
            return scale * float(found)

        return value

    return [
        Claim(
            "models/README.md",
            f"| [{agent}]({agent}) | {{}} | {{}} | {{}}, from {{}} to {{}} | {{}} % |",
            (
                of(agent, "agent_steps"),
                of(agent, "mean_return"),
                *(of(agent, "test", name) for name in ("mean", "min", "max")),
                of(agent, "test", "human_normalised", scale=100.0),
            ),
        )
        for agent in sorted(path.parent.name for path in (ROOT / "models").glob("*/model.json"))
    ]


CLAIMS = [*seaquest_rows(), *long_rows(), *agent_rows()]
