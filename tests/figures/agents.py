"""Long runs with more replay, and the agents in models/."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

from tests.figures.defaults import COUNTS, FRAMES_TO_18, LONG, tested
from tests.figures.files import (
    RESULTS,
    SPEED,
    Claim,
    Value,
    area_to,
    at,
    best,
    end,
    mean_of,
    minutes,
    over,
    played,
    ratio,
    returns_of,
    steps_to,
    welch,
)
from tests.house import ROOT


def long_rows() -> list[Claim]:
    """Three quarters of replay to 2.5 M steps, one seed, beside the three of the default."""
    times = json.loads((SPEED / "three_quarters_amx.json").read_text("utf-8"))
    steps = 2.5e6 * fmean(times["three_quarters"]) / fmean(times["half"])
    ours = {
        game: f"three_quarters_long/replay-3-of-4-online_{game}NoFrameskip-v4_seed4"
        for game in ("Breakout", "SpaceInvaders")
    }
    claims = [
        Claim(
            "docs/results.md",
            "it is at {} M steps when the default ends. There it has {} in Breakout, less than "
            "each seed of the default at its end, and {} in SpaceInvaders,",
            (lambda: steps / 1e6, *(at(name, steps) for name in ours.values())),
        ),
        Claim(
            "docs/results.md",
            "{} times their mean in Breakout and {} times in SpaceInvaders.",
            tuple(
                ratio(area_to(name, 2.5e6), mean_of([area_to(each, 2.5e6) for each in LONG[game]]))
                for game, name in ours.items()
            ),
        ),
    ]
    for game, name in ours.items():
        test = [played("three_quarters_long", of, game) for of in (fmean, min, max)]
        claims += [
            Claim(
                "docs/results.md",
                f"| three quarters to 10 M frames, {game} | {{}} | {{}}, {{}}, {{}} | {{}} | {{}}, "
                "{}, {} | {} |",
                (
                    *(area_to(each, 2.5e6) for each in (name, *LONG[game])),
                    *(end(each) for each in (name, *LONG[game])),
                    minutes(name),
                ),
            ),
            Claim(
                "docs/results.md",
                f"| test games of both, {game} | {{}} | {{}} | {{}} | {{}}, {{}}, {{}} |",
                (*test, *(tested(game, seed, fmean) for seed in (1, 2, 3))),
            ),
            Claim(
                "README.md",
                f"| {game}, three quarters of each batch replayed, return after 10 M frames, one "
                "seed | {} ({} in test games) |",
                (end(name), test[0]),
            ),
        ]
    return claims


def _to_their_end(rows: dict[str, tuple[str, Value]]) -> list[Claim]:
    """Rows of runs of 2.5 M steps: each is shown as, its run, and the mean of its test games."""
    return [
        Claim(
            "docs/results.md",
            f"| {shown} |" + " {} |" * 5,
            (area_to(name, 2.5e6), at(name, 1.25e6), at(name, 2e6), end(name), tested_mean),
        )
        for shown, (name, tested_mean) in rows.items()
    ]


LIGHT = {
    seed: f"resnet_light_long/resnet-light_BreakoutNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)
}


def light_rows() -> list[Claim]:
    """The light residual network to 2.5 M steps of Breakout, three seeds, beside others."""

    def test(seed: int, of: Callable[[Sequence[float]], float]) -> Value:
        return lambda: float(of(returns_of("resnet_light_long", seed=seed)))

    more = "three_quarters_long/replay-3-of-4-online_BreakoutNoFrameskip-v4_seed4"
    rows = {
        **{
            f"light residual network, seed {seed}": (name, test(seed, fmean))
            for seed, name in LIGHT.items()
        },
        "three quarters replayed": (more, played("three_quarters_long", fmean, "Breakout")),
        **{
            f"the default, seed {seed}": (name, tested("Breakout", seed, fmean))
            for seed, name in enumerate(LONG["Breakout"], start=1)
        },
    }
    means = (
        mean_of([end(name) for name in LIGHT.values()]),
        mean_of([test(seed, fmean) for seed in LIGHT]),
    )
    return [
        *_to_their_end(rows),
        Claim(
            "docs/results.md",
            "The mean of the three seeds is **{}** in training and **{}** in test games",
            means,
        ),
        *(
            Claim(
                "docs/results.md",
                f"| {shown}, light against default | {{}} | {{}} | {{}} |",
                welch(*([of(name) for name in arm] for arm in (LIGHT.values(), LONG["Breakout"]))),
            )
            for shown, of in {
                "area to 2.5 M steps": partial(area_to, steps=2.5e6),
                "return after 2.5 M steps": end,
            }.items()
        ),
        Claim(
            "docs/results.md",
            "All three seeds pass it, after {} to {} M steps.",
            tuple(over(of, *(steps_to(name, 204) for name in LIGHT.values())) for of in (min, max)),
        ),
        Claim(
            "docs/results.md",
            "and has {} to {} there, where the default's seeds end at {} to {}.",
            tuple(
                over(of, *values)
                for values in (
                    [at(name, 1.25e6) for name in LIGHT.values()],
                    [end(name) for name in LONG["Breakout"]],
                )
                for of in (min, max)
            ),
        ),
        Claim(
            "docs/results.md",
            "The runs took {}, {} and {} minutes",
            tuple(minutes(name) for name in LIGHT.values()),
        ),
        Claim(
            "docs/results.md",
            "{}, {} and {} test games of the three seeds",
            tuple(test(seed, len) for seed in LIGHT),
        ),
        Claim(
            "README.md",
            "| Breakout with the light residual network, return after 10 M frames, mean of three "
            "seeds | {} ({} in test games) |",
            means,
        ),
    ]


SMALL = {
    1: "deeper_long/shallow-blocks_BreakoutNoFrameskip-v4_seed1",
    2: "deeper_confirmed/shallow-blocks_BreakoutNoFrameskip-v4_seed2",
    3: "deeper_confirmed/shallow-blocks_BreakoutNoFrameskip-v4_seed3",
}


@cache
def small_times() -> dict[str, list[float]]:
    """Return agent steps per second with the small residual network and the default's."""
    return dict(json.loads((SPEED / "resnet_small_amx.json").read_text("utf-8")))


def small_step() -> float:
    """Return the time of a step with the small network, in units of the default's."""
    times = small_times()
    return fmean(times["impala_shallow"]) / fmean(times["resnet_small"])


def small_rows() -> list[Claim]:
    """The small residual network to 2.5 M steps, at equal frames and at equal time."""
    times = small_times()
    dearer = small_step()
    steps = 2.5e6 / dearer

    def test(seed: int, of: Callable[[Sequence[float]], float]) -> Value:
        return lambda: float(of(returns_of("deeper_confirmed", seed=seed)))

    rows = {
        **{
            f"small residual network, seed {seed}": (name, test(seed, fmean))
            for seed, name in SMALL.items()
        },
        **{
            f"the default beside it, seed {seed}": (name, tested("Breakout", seed, fmean))
            for seed, name in enumerate(LONG["Breakout"], start=1)
        },
    }
    means = (
        mean_of([end(name) for name in SMALL.values()]),
        mean_of([test(seed, fmean) for seed in SMALL]),
    )
    differences = {
        "area to 2.5 M steps": (partial(area_to, steps=2.5e6), partial(area_to, steps=2.5e6)),
        "area at equal time": (partial(area_to, steps=steps), partial(area_to, steps=2.5e6)),
        "return after 2.5 M steps": (end, end),
        "return at equal time": (partial(at, steps=steps), end),
    }
    return [
        *_to_their_end(rows),
        *(
            Claim(
                "docs/results.md",
                f"| {shown}, small against default | {{}} | {{}} | {{}} |",
                welch(
                    [ours(name) for name in SMALL.values()],
                    [theirs(name) for name in LONG["Breakout"]],
                ),
            )
            for shown, (ours, theirs) in differences.items()
        ),
        Claim(
            "docs/results.md",
            "The small network has **{}** in training and **{}** in test games",
            means,
        ),
        Claim(
            "docs/results.md",
            "made {} steps per second against {} of the default's, so that a step takes {} times "
            "as long ([resnet_small_amx.json]",
            (
                lambda: fmean(times["resnet_small"]),
                lambda: fmean(times["impala_shallow"]),
                lambda: dearer,
            ),
        ),
        Claim(
            "docs/results.md",
            "about 1.45 M steps when a run of the small one ends. Its seeds have {}, {} and {} "
            "there.",
            tuple(at(name, 1.45e6) for name in LIGHT.values()),
        ),
        Claim(
            "README.md",
            "| Breakout with the small residual network, return after 10 M frames, mean of three "
            "seeds | {} ({} in test games) |",
            means,
        ),
    ]


# Of each residual network in two other games: its folder, its arm, and its name in the table.
OTHERS = (
    ("resnet_light_others", "resnet-light", "light"),
    ("deeper_others", "shallow-blocks", "small"),
)


def other_rows() -> list[Claim]:
    """The residual networks to 2.5 M steps of two other games, one seed."""
    games = {
        game: (LONG[game], [tested(game, k, fmean) for k in range(1, len(LONG[game]) + 1)])
        for game in ("Seaquest", "SpaceInvaders")
    }

    def ratios(steps: float) -> tuple[Value, ...]:
        """Areas of the small network to `steps`, in units of the mean of the default's."""
        folder, arm, _ = OTHERS[1]

        def ratio(game: str) -> float:
            name = f"{folder}/{arm}_{game}NoFrameskip-v4_seed1"
            return area_to(name, steps)() / mean_of([area_to(x, 2.5e6) for x in LONG[game]])()

        return tuple(partial(ratio, game) for game in games)

    claims = [
        Claim(
            "docs/results.md",
            "The table counts {} test games of each run.",
            (over(min, *(played(folder, len, game) for folder, _, _ in OTHERS for game in games)),),
        ),
        Claim(
            "docs/results.md",
            "At equal frames it has {} of the default's mean area in Seaquest and {} in "
            "SpaceInvaders, at equal time {} and {}.",
            (*ratios(2.5e6), *ratios(2.5e6 / small_step())),
        ),
        Claim(
            "docs/results.md",
            "seed of Seaquest to 0.7 M steps: {}, the small network as it is {}, the default's "
            "seeds {} and {}.",
            tuple(
                area_to(name, 0.7e6)
                for name in (
                    "deeper_identity/identity-blocks_SeaquestNoFrameskip-v4_seed1",
                    "deeper_others/shallow-blocks_SeaquestNoFrameskip-v4_seed1",
                    *LONG["Seaquest"],
                )
            ),
        ),
    ]
    for folder, arm, shown in OTHERS:
        for game, (defaults, tests) in games.items():
            name = f"{folder}/{arm}_{game}NoFrameskip-v4_seed1"
            values = [
                *(area_to(name, 2.5e6), *(area_to(each, 2.5e6) for each in defaults)),
                *(end(name), *map(end, defaults)),
                *(played(folder, fmean, game), *tests),
            ]
            of_defaults = ", ".join(["{}"] * len(defaults))
            claims.append(
                Claim(
                    "docs/results.md",
                    f"| {shown} in {game} |" + f" {{}} | {of_defaults} |" * 3,
                    tuple(values),
                )
            )
    return claims


def forty_rows() -> list[Claim]:
    """The default to 40 M frames, one seed."""
    folder, game = "default_40m", "SpaceInvaders"
    name = f"{folder}/default_{game}NoFrameskip-v4_seed1"
    diver = f"{folder}/default_SeaquestNoFrameskip-v4_seed1"
    wall = f"{folder}/default_BreakoutNoFrameskip-v4_seed1"

    def games(
        of: Callable[[Sequence[float]], float], file: str = "test_games.csv", env: str = game
    ) -> Value:
        return lambda: float(of(returns_of(folder, env, name=file)))

    tests = [
        [games(of, file) for of in (fmean, min, max)]
        for file in ("test_games.csv", "greedy_games.csv")
    ]
    looked = json.loads((RESULTS / folder / "invaders_left.json").read_text("utf-8"))
    seen = [
        Claim(
            "docs/results.md",
            f"| {each['invaders left']} | {{}} | {{}} | {{}} | {{}} |",
            (
                partial(float, each["steps of a game"]),
                partial(float, each["steps for each hit"]),
                partial(float, 100 * each["hits of the same games"] / each["shots"]),
                partial(float, each["entropy of the policy"]),
            ),
        )
        for each in looked["by invaders left"]
    ]
    trials = [
        Claim(
            "docs/results.md",
            f"  | {flags} | {{}} | {{}} | {{}} | {{}} |",
            (*(at(trial, steps) for steps in (1e5, 2.5e5, 5e5)), end(trial)),
        )
        for arm, flags in (
            ("bonus-0.0025", "`--lr=0.0001 --entropy_loss_weight=0.0025`, a tenth of the bonus"),
            (
                "unrolls-80",
                "`--lr=0.0001 --r_f_steps=80`, as many steps in batch and buffers, so that a hit "
                "is in the unroll of its shot",
            ),
            ("raw-rewards", "`--clip_rewards=False`"),
        )
        for trial in [f"default_40m_trials/{arm}_{game}NoFrameskip-v4_seed1"]
    ]
    order = (("Breakout", wall), ("SpaceInvaders", name), ("Seaquest", diver))
    of_all = (*(end(run) for _, run in order), *(games(fmean, env=each) for each, _ in order))
    rows = [
        Claim(
            "docs/results.md",
            f"| {each}, 40 M frames |" + " {} |" * (5 if run == wall else 6),
            (
                *(at(run, steps) for steps in (2.5e6, 5e6, 7.5e6)),
                end(run),
                games(fmean, env=each),
                *([games(fmean, "greedy_games.csv", each)] if run != wall else []),
            ),
        )
        for each, run in order
    ]
    return [
        *rows,
        *seen,
        *trials,
        Claim(
            "docs/results.md",
            "* **SpaceInvaders has {} of the 1325 that were wanted**",
            (end(name),),
        ),
        Claim(
            "docs/results.md",
            "That is {} more than the mean of three runs of a quarter of the length.",
            (lambda: end(name)() - mean_of([end(each) for each in LONG[game]])(),),
        ),
        Claim(
            "docs/results.md",
            "Test games with sampled actions have {}, from {} to {}; as many with the likeliest "
            "action each time have {}, from {} to {}",
            (*tests[0], *tests[1]),
        ),
        Claim(
            "docs/results.md",
            "The runs took {}, {} and {} minutes of running time",
            (minutes(name), minutes(diver), minutes(wall)),
        ),
        Claim(
            "docs/results.md",
            "QR-DQN of Stable-Baselines3 | with the default, one seed each: {}, {}, {} ({}, {} and "
            "{} in test games) |",
            of_all,
        ),
        Claim(
            "README.md",
            "returns after 40 M frames, one seed each | {}, {} and {} ({}, {} and {} in test "
            "games) |",
            of_all,
        ),
        Claim(
            "docs/results.md",
            "* **Breakout has {} of the 415 that were wanted, and {} in test games.** These have "
            "from {} to {} points.",
            (end(wall), *(games(of, env="Breakout") for of in (fmean, min, max))),
        ),
        Claim(
            "docs/results.md",
            "more games are long: {} were over, with {} or {} points,",
            tuple(games(of, "greedy_games.csv", "Breakout") for of in (len, min, max)),
        ),
        Claim(
            "docs/results.md",
            "and {} of the 100 games go beyond it.",
            (games(lambda returns: sum(each > 432 for each in returns), env="Breakout"),),
        ),
        Claim(
            "docs/results.md",
            "It had {} after 2.5 M steps, where runs of that length end with {}, {} and {}.",
            (at(wall, 2.5e6), *(end(each) for each in LONG["Breakout"])),
        ),
        Claim(
            "docs/results.md",
            "* **Seaquest has {} of the 2572 that were wanted, and does not surface either.** Its "
            "best game has {} points. It had {} after 6.3 M steps,",
            (end(diver), best(diver), at(diver, 6.3e6)),
        ),
        Claim("docs/results.md", "and one of 40 M frames has up to {}.", (best(diver),)),
        Claim(
            "docs/results.md",
            "They have from {} to {} points.",
            tuple(games(of, env="Seaquest") for of in (min, max)),
        ),
    ]


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


def goal_rows() -> list[Claim]:
    """What was wanted of three games at 10 M frames and of Pong, and what was reached."""
    default = {game: mean_of([end(name) for name in names]) for game, names in LONG.items()}
    more = "three_quarters_long/replay-3-of-4-online_SpaceInvadersNoFrameskip-v4_seed4"
    rows = {
        "DQN | {} with the light residual network, {} with the small one, {} with the default |": (
            *(mean_of([end(name) for name in each.values()]) for each in (LIGHT, SMALL)),
            default["Breakout"],
        ),
        "QR-DQN | {} with the default, {} with three quarters replayed (one seed) |": (
            default["SpaceInvaders"],
            end(more),
        ),
        f"DQN | {{}} with the default ({COUNTS[len(LONG['Seaquest'])]} seeds), which": (
            default["Seaquest"],
        ),
        "in two of six runs, in all after {} M frames |": (over(max, *FRAMES_TO_18),),
    }
    return [Claim("docs/results.md", row, values) for row, values in rows.items()]


CLAIMS = [
    *long_rows(),
    *light_rows(),
    *small_rows(),
    *other_rows(),
    *forty_rows(),
    *agent_rows(),
    *goal_rows(),
]
