"""Settings that cost nothing: rates, entropy, normalised layers."""

from __future__ import annotations

import json
from functools import partial
from statistics import fmean

from tests.figures.defaults import LONG
from tests.figures.files import (
    RESULTS,
    SPEED,
    USUAL,
    Claim,
    Value,
    area_to,
    at,
    best,
    end,
    frames_of_tests,
    highest,
    mean_of,
    minutes,
    played,
    ratio,
    steps_to,
    welch,
)

BREAKOUT = "BreakoutNoFrameskip-v4"
CONFIRMED = "levers_confirmed/lr-0.00025"
# The areas of four runs of the default to 0.35 M steps.
DEFAULTS = [
    area_to(f"{folder}_{BREAKOUT}_seed{seed}", 3.5e5)
    for folder, seeds in (("screen_a/control", [1]), ("impact_breakout/default", [1, 2, 3]))
    for seed in seeds
]


def first_rows() -> list[Claim]:
    """The first stage of the cheap levers: area to 0.35 M steps on Breakout, and its ratio."""
    usual = mean_of(DEFAULTS)
    arms = (
        *("lr-0.0005", "lr-0.001", "batch-4", "two-lambdas", "clip-5", "gamma-0.997"),
        *("entropy-0.0125", "pixels-as-they-are"),
    )
    claims = [
        Claim(
            "docs/results.md",
            "the default's four runs there: {}, {}, {} and {}, mean {}",
            (*DEFAULTS, usual),
        )
    ]
    for arm in arms:
        value = area_to(f"levers/{arm}_{BREAKOUT}_seed1", 3.5e5)
        values = (value, ratio(value, usual))
        claims.append(Claim("docs/results.md", f"| `{arm}` | {{}} | {{}} |", values))
    return claims


def second_rows() -> list[Claim]:
    """The two best on two other games: areas to 0.35 M steps, and their ratio."""
    claims = []
    for game in ("SpaceInvaders", "Seaquest"):
        areas = {
            arm: [
                area_to(f"levers_second/{arm}_{game}NoFrameskip-v4_seed{seed}", 3.5e5)
                for seed in (1, 2)
            ]
            for arm in ("default", "lr-0.0005", "lr-0.001")
        }
        for arm, of_seeds in areas.items():
            to_default = ratio(mean_of(of_seeds), mean_of(areas["default"]))
            row = f"| `{arm}`, levers in {game} |" + " {} |" * 3
            claims.append(Claim("docs/results.md", row, (*of_seeds, to_default)))
    return claims


def confirmed_rows() -> list[Claim]:
    """A rate of 0.0005 with three fresh seeds: areas to 0.4 M steps, and differences."""
    claims = []
    for game in ("Breakout", "SpaceInvaders", "Seaquest"):
        fresh: dict[str, list[Value]] = {
            rate: [
                area_to(f"levers_confirmed/lr-{rate}_{game}NoFrameskip-v4_seed{seed}", 4e5)
                for seed in (4, 5, 6)
            ]
            for rate in ("0.00025", "0.0005")
        }
        for rate, of_seeds in fresh.items():
            row = f"| {rate}, confirmation in {game} | {{}} | {{}} | {{}} | {{}} |"
            values = (*of_seeds, mean_of(of_seeds))
            if rate == "0.0005":
                row += " {}, {}, {} |"
                values = (*values, *welch(of_seeds, fresh["0.00025"]))
            claims.append(Claim("docs/results.md", row, values))
    return claims


def pixel_rows() -> list[Claim]:
    """Every pixel in deviations of its own, three fresh seeds: areas to 0.4 M steps."""
    claims = []
    for game in ("Breakout", "SpaceInvaders", "Seaquest"):
        names = {
            "one deviation": f"levers_confirmed/lr-0.00025_{game}NoFrameskip-v4_seed{{}}",
            "each its own": f"pixels_each/each-10_{game}NoFrameskip-v4_seed{{}}",
        }
        areas = {
            arm: [area_to(name.format(seed), 4e5) for seed in (4, 5, 6)]
            for arm, name in names.items()
        }
        for arm, of_seeds in areas.items():
            row = f"| {arm}, {game} |" + " {} |" * 5
            ends = mean_of([end(names[arm].format(seed)) for seed in (4, 5, 6)])
            claims.append(Claim("docs/results.md", row, (*of_seeds, mean_of(of_seeds), ends)))
        row = f"| each its own, less one deviation for all, {game} | {{}} | {{}} | {{}} |"
        difference = welch(areas["each its own"], areas["one deviation"])
        claims.append(Claim("docs/results.md", row, difference))
    six = {}
    for arm, first, more in (
        ("one deviation", CONFIRMED, "pixels_each_again/default"),
        ("each its own", "pixels_each/each-10", "pixels_each_again/each-10"),
    ):
        three = [area_to(f"{first}_{BREAKOUT}_seed{seed}", 4e5) for seed in (4, 5, 6)]
        later = [area_to(f"{more}_{BREAKOUT}_seed{seed}", 4e5) for seed in (7, 8, 9)]
        six[arm] = [*three, *later]
        row = f"| {arm}, Breakout again |" + " {} |" * 4
        claims.append(Claim("docs/results.md", row, (*later, mean_of(six[arm]))))
    own, one = six["each its own"], six["one deviation"]
    sentence = "six seeds are ahead by {} [{}, {}]**, which is {} times the default's area."
    figures = (*welch(own, one), ratio(mean_of(own), mean_of(one)))
    claims.append(Claim("docs/results.md", sentence, figures))
    first, second = (f"pixels_each_pong/each-10_PongNoFrameskip-v4_seed{k}" for k in (1, 2))
    sentence = (
        "Seed 1 had 18 after {} M steps and {} at its end. Seed 2 came to {}, and had {} at its"
    )
    pong = (steps_to(first, 18.0), end(first), highest(second), end(second))
    claims.append(Claim("docs/results.md", sentence, pong))
    rare = [f"pixels_rare/rare_{BREAKOUT}_seed{seed}" for seed in (4, 5, 6)]
    areas_of_rare = [area_to(name, 4e5) for name in rare]
    figures = (*areas_of_rare, mean_of(areas_of_rare), mean_of([end(name) for name in rare]))
    claims.append(Claim("docs/results.md", "| rare pixels, Breakout |" + " {} |" * 5, figures))
    sentence = "ahead of the six by {} [{}, {}], which is {} times the default's: more than half"
    figures = (*welch(areas_of_rare, one), ratio(mean_of(areas_of_rare), mean_of(one)))
    claims.append(Claim("docs/results.md", sentence, figures))
    first, second = (f"pixels_rare_pong/rare_PongNoFrameskip-v4_seed{seed}" for seed in (1, 2))
    sentence = "In Pong seed 1 had 18 after {} M steps and {} at its end; seed 2"
    claims.append(Claim("docs/results.md", sentence, (steps_to(first, 18.0), end(first))))
    sentence = "seed 2 rose slowly and had {} at its end, after 1.4 M."
    claims.append(Claim("docs/results.md", sentence, (end(second),)))
    sentence = "rare pixels have {} with seed 7, where the default has {}."
    seventh = area_to(f"pixels_rare_again/rare_{BREAKOUT}_seed7", 4e5)
    claims.append(Claim("docs/results.md", sentence, (seventh, one[3])))
    rows = (
        ("each pixel in deviations of its own, mean of six seeds | {} |", own),
        ("| The same with one deviation for all, the default | {} |", one),
    )
    claims += [Claim("README.md", row, (mean_of(areas),)) for row, areas in rows]
    return claims


def later_rows() -> list[Claim]:
    """Entropy that fades, rate and bonus, normalised layers, unroll length: one seed each."""
    to_end = {
        f"`entropy-fades` in {game}": (f"screen_f/entropy-fades_{game}NoFrameskip-v4_seed1", game)
        for game in USUAL
    }
    to_end["`entropy-fades-soon` in SpaceInvaders"] = (
        "screen_h/entropy-fades-soon_SpaceInvadersNoFrameskip-v4_seed1",
        "SpaceInvaders",
    )
    claims = []
    for shown, (name, game) in to_end.items():
        usual = mean_of([area_to(each, 7e5) for each in USUAL[game]])
        value = area_to(name, 7e5)
        values = (value, usual, ratio(value, usual), end(name))
        claims.append(Claim("docs/results.md", f"| {shown} |" + " {} |" * 4, values))
    tried = "spaceinvaders_trials/{}_SpaceInvadersNoFrameskip-v4_seed1"
    claims.append(
        Claim(
            "docs/results.md",
            "one seed of this bonus was at {} after 0.75 M steps and one of the default at {}: "
            "other seeds of the default are at {} and {} after 0.7 M.",
            (
                at(tried.format("entropy-0.06-to-0.0025"), 7.5e5),
                at(tried.format("default"), 7.5e5),
                *(end(name) for name in USUAL["SpaceInvaders"]),
            ),
        )
    )
    seaquest = [
        area_to(f"levers_second/default_SeaquestNoFrameskip-v4_seed{seed}", 3.5e5)
        for seed in (1, 2)
    ]
    for shown, name, defaults in (
        ("norm-features` in Breakout", f"levers_norm/norm-features_{BREAKOUT}", DEFAULTS),
        ("norm-all` in Breakout", f"levers_norm/norm-all_{BREAKOUT}", DEFAULTS),
        ("unroll-40` in Breakout", f"levers_unroll/unroll-40_{BREAKOUT}", DEFAULTS),
        ("unroll-10` in Breakout", f"levers_unroll/unroll-10_{BREAKOUT}", DEFAULTS),
        (
            "rate-and-entropy` in Seaquest",
            "levers_both/rate-and-entropy_SeaquestNoFrameskip-v4",
            seaquest,
        ),
    ):
        value, usual = area_to(f"{name}_seed1", 3.5e5), mean_of(defaults)
        row = f"| `{shown} | {{}} | {{}} | {{}} |"
        claims.append(Claim("docs/results.md", row, (value, usual, ratio(value, usual))))
    return claims


def step_size_rows() -> list[Claim]:
    """What changes the size of the steps, where they are large: areas to 0.35 M steps, one seed."""
    begun = ("lr-0.000125", "norm-features", "norm-all")  # in both games
    claims = []
    for game, arms in (
        ("Seaquest", (*begun, "cloning-0.02", "value-1")),
        ("SpaceInvaders", begun),
    ):
        env = f"{game}NoFrameskip-v4"
        usual = [
            area_to(f"{arm}_{env}_seed{seed}", 3.5e5)
            for arm, seeds in (("levers_second/default", (1, 2)), (CONFIRMED, (4, 5, 6)))
            for seed in seeds
        ]
        for arm in arms:
            value = area_to(f"levers_step_size/{arm}_{env}_seed1", 3.5e5)
            values = (value, mean_of(usual), ratio(value, mean_of(usual)))
            row = f"| `{arm}`, step size in {game} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", row, values))
    return claims


# Runs of the default that went to 0.7 M steps, as the entries of the queue name them.
TO_700K = {
    "Breakout": [
        *USUAL["Breakout"],
        *LONG["Breakout"],
    ],
    "SpaceInvaders": [
        *LONG["SpaceInvaders"],
        *USUAL["SpaceInvaders"],
    ],
    "Seaquest": [
        *LONG["Seaquest"],
        *(f"elite_seaquest/uniform_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)),
        *USUAL["Seaquest"],
    ],
}


def upgoing_rows() -> list[Claim]:
    """Advantages that look for what went well, one seed, beside all runs of the default so far."""
    claims = []
    for game in ("SpaceInvaders", "Seaquest"):
        names = TO_700K[game]
        mean = mean_of([area_to(name, 7e5) for name in names])
        returns = mean_of([at(name, 7e5) for name in names])
        for arm in ("upgoing", "replay-successes"):
            run = f"upgoing/{arm}_{game}NoFrameskip-v4_seed1"
            found = area_to(run, 7e5)
            row = f"| `{arm}` in {game} |" + " {} |" * 5
            values = (found, mean, ratio(found, mean), at(run, 7e5), returns)
            claims.append(Claim("docs/results.md", row, values))
    return claims


def successes_rows() -> list[Claim]:
    """Replay of successes in three games, three seeds each, beside the default's runs."""
    claims = []
    for game, names in TO_700K.items():
        runs = [
            f"replay_successes/replay-successes_{game}NoFrameskip-v4_seed{k}" for k in (4, 5, 6)
        ]
        areas, usual = ([area_to(name, 7e5) for name in group] for group in (runs, names))
        row = f"| {game}, successes alone replayed |" + " {} |" * 8
        values = (*areas, mean_of(areas), mean_of(usual), *welch(areas, usual))
        claims.append(Claim("docs/results.md", row, values))
    return claims


def longer_rows() -> list[Claim]:
    """Rates, a batch and one mean for all pixels, asked for 2.5 or 0.7 M steps and left before."""
    moves = json.loads((RESULTS / "rate_long" / "policy_moves.json").read_text("utf-8"))["runs"]
    speeds = json.loads((SPEED / "batch_16_amx.json").read_text("utf-8"))
    usual = LONG["Breakout"]
    batch = f"batch_16/batch-16_{BREAKOUT}_seed1"
    claims = []
    for agent, row in (
        ("default, Breakout", "moves of the default, Breakout"),
        ("squared, Breakout", "moves with the squared rate, Breakout"),
        ("twice the rate, Breakout", "moves with twice the rate, Breakout"),
        ("resnet_small, Breakout", "moves of the small residual network, Breakout"),
        ("default, Seaquest", "moves of the default, Seaquest"),
        ("default, SpaceInvaders", "moves of the default, SpaceInvaders"),
    ):
        values = tuple(partial(float, kl) for kl in moves[agent].values())
        cells = ", ".join(["{}"] * len(values))
        claims.append(Claim("docs/results.md", f"| {row} | {cells} |", values))
    arms = {
        "`squared`": f"rate_falls_sooner/squared_{BREAKOUT}_seed1",
        "twice the rate": f"rate_long/lr-0.0005_{BREAKOUT}_seed1",
    }
    for arm, name in arms.items():
        values = tuple(
            figure(run, steps=1.1e6) for figure in (area_to, at) for run in (name, *usual)
        )
        row = f"| {arm} |" + " {} | {}, {}, {} |" * 2
        claims.append(Claim("docs/results.md", row, values))
    eights, sixteens = speeds["batches of 8"], speeds["batches of 16"]
    mean = mean_of([area_to(name, 7e5) for name in TO_700K["Breakout"]])
    area = area_to(batch, 7e5)
    rises = tuple(
        partial(lambda name: at(name, 7e5)() - at(name, 3.5e5)(), name) for name in (batch, *usual)
    )
    mean_alone = "one_mean/one-mean_SpaceInvadersNoFrameskip-v4_seed1"
    ghost = tuple(
        figure(run, steps=1.6e6)
        for figure in (area_to, at)
        for run in (mean_alone, *LONG["SpaceInvaders"])
    )
    return [
        *claims,
        Claim(
            "docs/results.md",
            "area to 1.6 M steps {}, default's seeds {}, {}, {}; "
            "return there {}, default's {}, {}, {}.",
            ghost,
        ),
        Claim(
            "docs/results.md",
            "| area to 1.6 M steps, one seed: {} against {}, {}, {} |",
            ghost[:4],
        ),
        Claim(
            "docs/results.md",
            "a step is {} and {} times as fast ({} and {} steps per second against {} and {}, in "
            "turn;",
            tuple(
                partial(float, number)
                for number in (
                    *(new / old for new, old in zip(sixteens, eights, strict=True)),
                    *sixteens,
                    *eights,
                )
            ),
        ),
        Claim(
            "docs/results.md",
            "has an area of {} to 0.7 M steps, {} times the mean of the default's eight runs, {}. "
            "By its rule two more seeds would have needed {} each",
            (area, ratio(area, mean), mean, lambda: (3 * 0.95 * mean() - area()) / 2),
        ),
        Claim(
            "docs/results.md",
            "its return rises by {}, and those of the default's three seeds by {}, {} and {}.",
            rises,
        ),
        Claim(
            "docs/results.md",
            "areas in Breakout, one seed: to 1.1 M steps {} and {} against {}, {}, {}, to 0.7 M {} "
            "against {} |",
            (
                *(area_to(name, 1.1e6) for name in (*arms.values(), *usual)),
                area,
                mean,
            ),
        ),
    ]


def surface_rows() -> list[Claim]:
    """What gets an agent of Seaquest to the surface, one seed, beside two of the default."""
    usual = [f"default_seaquest/default_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2)]
    claims = []
    for arm in ("entropy-0.1", "gamma-0.997"):
        runs = [f"seaquest_oxygen/{arm}_SeaquestNoFrameskip-v4_seed1", *usual]
        row = f"| `{arm}` in Seaquest |" + " {} | {}, {} |" * 3
        figures = (partial(area_to, steps=1e6), partial(at, steps=1e6), best)
        values = tuple(figure(name) for figure in figures for name in runs)
        claims.append(Claim("docs/results.md", row, values))
    far = "seaquest_far_sighted/gamma-0.997_SeaquestNoFrameskip-v4_seed1"
    sentences = {
        "Its best game, of {} points, was": (best(far),),
        "{} minutes of running time): area {}, return {}, and no better game": (
            minutes(far),
            area_to(far, 2.5e6),
            end(far),
        ),
        "The default's two seeds have {} and {}, and {} and {}. Of": (
            *(area_to(name, 2.5e6) for name in usual),
            *map(end, usual),
        ),
    }
    frames = partial(frames_of_tests, "seaquest_far_sighted")
    tests = played("seaquest_far_sighted", len), played("seaquest_far_sighted", fmean)
    sentences["Of {} test games of the final policy, mean {}, none is longer than {} frames"] = (
        *tests,
        lambda: max(frames()),
    )
    return [*claims, *(Claim("docs/results.md", *each) for each in sentences.items())]


CLAIMS = [
    *first_rows(),
    *second_rows(),
    *confirmed_rows(),
    *pixel_rows(),
    *later_rows(),
    *step_size_rows(),
    *longer_rows(),
    *surface_rows(),
    *upgoing_rows(),
    *successes_rows(),
]
