"""Replay: elite, LASER, three quarters of it, populations."""

from __future__ import annotations

import json
from functools import partial
from statistics import fmean

from scipy import stats

from tests.figures.defaults import LONG
from tests.figures.files import (
    RESULTS,
    SPEED,
    USUAL,
    Claim,
    Value,
    area_to,
    at,
    end,
    mean_of,
    meanwhile,
    minutes,
    over,
    steps_per_s,
    welch,
)
from tests.figures.levers import TO_700K


def elite(label: str, game: str) -> list[str]:
    """Return the names of the three runs of a configuration."""
    return [f"elite/{label}_{game}NoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]


# Where the shortest of the compared runs of each game ended.
ENDS = {"Pong": 1_000_023, "Breakout": 1_000_008}


def elite_rows() -> list[Claim]:
    """The rows of the two tables of elite replay: four times three returns, and three durations."""
    names = {
        "new data only, batch 4": "queue-batch-4",
        "standard": "standard",
        "attentive": "attentive",
        "elite, strategy 1, by features": "elite-1-features",
        "elite, strategy 3, by features": "elite-3-features",
    }
    claims = []
    for game in ("Pong", "Breakout"):
        for shown, label in names.items():
            runs = elite(label, game)
            values = [at(name, s) for s in (3e5, 5e5, 7e5) for name in runs]
            values += [at(name, ENDS[game]) for name in runs] + [minutes(name) for name in runs]
            claims.append(
                Claim("docs/results.md", f"| {shown} |{' {}, {}, {} |' * 5}", tuple(values))
            )
    return claims


def elite_seaquest_rows() -> list[Claim]:
    """Elite replay where it was claimed, on Seaquest: areas to 1 M steps, ends, and differences."""
    arms = ("uniform", "elite-3", "least-drawn", "elite-1")
    runs = {
        arm: [f"elite_seaquest/{arm}_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
        for arm in arms
    }
    areas = {arm: [area_to(name, 1e6) for name in names] for arm, names in runs.items()}
    ends = {arm: [end(name) for name in names] for arm, names in runs.items()}
    claims = []
    for arm in arms:
        values = (*areas[arm], mean_of(areas[arm]), mean_of(ends[arm]))
        claims.append(Claim("docs/results.md", f"| `{arm}` in Seaquest |" + " {} |" * 5, values))
    for one, other in (
        ("elite-3", "uniform"),
        ("elite-1", "uniform"),
        ("least-drawn", "uniform"),
        ("elite-3", "least-drawn"),
    ):
        row = f"| `{one}` minus `{other}` | {{}} | {{}} | {{}} |"
        claims.append(Claim("docs/results.md", row, welch(areas[one], areas[other])))
    return claims


def elite_older_rows() -> list[Claim]:
    """Elite replay in the older platform's own setting: areas to 0.6 M steps, and returns there."""
    runs = {
        arm: [f"elite_older/{arm}_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
        for arm in ("uniform-1000", "elite-3-1000")
    }
    areas = {arm: [area_to(name, 6e5) for name in names] for arm, names in runs.items()}
    ends = {arm: [end(name) for name in names] for arm, names in runs.items()}
    claims = [
        Claim(
            "docs/results.md",
            f"| `{arm}`, {what} |" + " {} |" * 4,
            (*values[arm], mean_of(values[arm])),
        )
        for what, values in (("area to 0.6 M steps", areas), ("return there", ends))
        for arm in runs
    ]
    return claims + [
        Claim(
            "docs/results.md",
            f"| {what}, `elite-3-1000` minus `uniform-1000` | {{}} | {{}} | {{}} |",
            welch(values["elite-3-1000"], values["uniform-1000"]),
        )
        for what, values in (("area to 0.6 M steps", areas), ("return there", ends))
    ]


def screen_rows() -> list[Claim]:
    """The arms of the screen of replay: area to 0.7 M steps, and return there."""
    names = {
        arm: f"screen_a/{arm}_BreakoutNoFrameskip-v4_seed1"
        for arm in ("replay-1-to-3", "replay-1-to-3-mask", "control")
    }
    for arm in ("control", "replay-1-to-3", "replay-1-to-3-mask"):
        shown = f"{arm}` in SpaceInvaders"
        names[shown] = f"screen_a/{arm}_SpaceInvadersNoFrameskip-v4_seed1"
    names["control` in Seaquest"] = "screen_a/control_SeaquestNoFrameskip-v4_seed1"
    return [
        Claim(
            "docs/results.md",
            f"| `{arm}{'' if '`' in arm else '`'} | {{}} | {{}} |",
            (area_to(name, 7e5), end(name)),
        )
        for arm, name in names.items()
    ]


def three_quarter_rows() -> list[Claim]:
    """Larger networks, more replay, and its entropy: one seed each, beside runs of the default."""
    arms = {
        ("nature", "Breakout"): "screen_b/nature_{}_seed1",
        ("nature", "Seaquest"): "screen_b/nature_{}_seed1",
        **{("resnet-light", game): "screen_g/resnet-light_{}_seed1" for game in USUAL},
        **{
            ("replay-3-of-4-online", game): "three_quarters/replay-3-of-4-online_{}_seed4"
            for game in USUAL
        },
    }
    claims = []
    for (arm, game), path in arms.items():
        name = path.format(f"{game}NoFrameskip-v4")
        default = mean_of([area_to(each, 7e5) for each in USUAL[game]])
        values = (area_to(name, 7e5), default, end(name))
        claims.append(
            Claim("docs/results.md", f"| `{arm}` in {game} | {{}} | {{}} | {{}} |", values)
        )
    so_far = {
        game: [at(name, 7e5) for name in (*USUAL[game], *LONG[game])]
        for game in ("Breakout", "SpaceInvaders")
    }
    claims += [
        Claim(
            "docs/results.md",
            sentence,
            tuple(over(of, *so_far[game]) for of in (min, max)),
        )
        for game, sentence in {
            "Breakout": "eight runs of the default that came so far ({} to {})",
            "SpaceInvaders": "of the default's five runs ({} to {})",
        }.items()
    ]
    light = {game: f"screen_g/resnet-light_{game}NoFrameskip-v4_seed1" for game in USUAL}
    alone = [
        f"default/default_{game}NoFrameskip-v4_seed{seed}"
        for game, seed in (("Breakout", 3), ("SpaceInvaders", 2), ("SpaceInvaders", 3))
    ]
    claims += [
        Claim(
            "docs/results.md",
            "its three runs made {} to {} steps per second, and three of the default, on the same "
            "day and also undisturbed, {} to {}. At equal time, which is half the steps, its areas "
            "are {}, {} and {}: behind",
            (
                *(over(of, *map(steps_per_s, light.values())) for of in (min, max)),
                *(over(of, *map(steps_per_s, alone)) for of in (min, max)),
                *(
                    area_to(light[game], 3.5e5)
                    for game in ("Breakout", "Seaquest", "SpaceInvaders")
                ),
            ),
        ),
        Claim(
            "docs/results.md",
            "At equal time, 0.54 M steps, its areas are {} and {}: behind as well.",
            tuple(
                area_to(f"screen_b/nature_{game}NoFrameskip-v4_seed1", 5.4e5)
                for game in ("Breakout", "Seaquest")
            ),
        ),
    ]
    on_seaquest = {
        "bonus on new data only, a quarter of the default's strength": "three_quarters/{}-online",
        "the same with LASER's trust region": "three_quarters_mask/{}-online-mask",
        "bonus on new data only, four times the weight": "three_quarters_entropy/{}-online-0.1",
        "bonus on new data only, eight times the weight, resumed once": (
            "three_quarters_dose/{}-online-0.2"
        ),
        "bonus on all data, as the default": "three_quarters_mask/{}-all",
    }
    for shown, path in on_seaquest.items():
        name = f"{path.format('replay-3-of-4')}_SeaquestNoFrameskip-v4_seed4"
        claims.append(Claim("docs/results.md", f"| {shown} | {{}} |", (area_to(name, 3.5e5),)))
    six = [
        *(f"levers_confirmed/lr-0.00025_SeaquestNoFrameskip-v4_seed{seed}" for seed in (4, 5, 6)),
        *(f"levers_second/default_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2)),
        *USUAL["Seaquest"],
    ]
    areas = [area_to(name, 3.5e5) for name in six]
    entropy = json.loads((RESULTS / "three_quarters/entropy_seaquest.json").read_text("utf-8"))
    pairs = zip(entropy["agent_steps"], entropy["fraction"], strict=True)
    low = fmean(fraction for steps, fraction in pairs if 60_000 <= steps <= 200_000)
    sentence = "was down to {} of its most between 60,000 and 200,000 steps"
    claims.append(Claim("docs/results.md", sentence, (lambda: low,)))
    sentence = "the default's six runs lie between {} and {}:"
    claims.append(Claim("docs/results.md", sentence, (over(min, *areas), over(max, *areas))))
    return claims


def three_seed_rows() -> list[Claim]:
    """Three quarters of replay with the default's bonus: areas to 0.4 M steps, three seeds."""
    times = json.loads((SPEED / "three_quarters_amx.json").read_text("utf-8"))
    # The time of a step, in units of the default's.
    longer = fmean(times["half"]) / fmean(times["three_quarters"])
    claims = [
        Claim(
            "docs/results.md",
            "made {} steps per second against {}, so that a step takes {} times as long",
            (
                lambda: fmean(times["three_quarters"]),
                lambda: fmean(times["half"]),
                lambda: longer,
            ),
        )
    ]
    again = [
        area_to(f"three_quarters_all/replay-3-of-4-all_SeaquestNoFrameskip-v4_seed{seed}", 3.5e5)
        for seed in (4, 5, 6)
    ]
    sentence = "after 350,000 steps the three seeds have {}, {} and {}"
    claims.append(Claim("docs/results.md", sentence, tuple(again)))
    invaders = [
        end(f"{arm}_SpaceInvadersNoFrameskip-v4_seed{seed}")
        for arm in ("three_quarters_all/replay-3-of-4-all", "levers_confirmed/lr-0.00025")
        for seed in (4, 5, 6)
    ]
    sentence = "the returns at the end are {}, {} and {} against {}, {} and {}."
    claims.append(Claim("docs/results.md", sentence, tuple(invaders)))
    for game in ("Breakout", "SpaceInvaders", "Seaquest"):
        seeds, env = (4, 5, 6), f"{game}NoFrameskip-v4"
        names = {
            "the default, beside three quarters": [
                f"levers_confirmed/lr-0.00025_{env}_seed{seed}" for seed in seeds
            ],
            "three quarters": [
                f"three_quarters_all/replay-3-of-4-all_{env}_seed{seed}" for seed in seeds
            ],
        }
        areas: dict[str, list[Value]] = {}
        for shown, runs in names.items():
            areas[shown] = [area_to(name, 4e5) for name in runs]
            ends = mean_of([end(name) for name in runs])
            row = f"| {shown} in {game} |" + " {} |" * 5
            values = (*areas[shown], mean_of(areas[shown]), ends)
            claims.append(Claim("docs/results.md", row, values))
        default, more = areas.values()
        sooner = [area_to(name, 4e5 / longer) for name in names["three quarters"]]
        for shown, of_seeds in (("frames", more), ("time", sooner)):
            row = f"| three quarters at equal {shown}, {game} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", row, welch(of_seeds, default)))
    return claims


def laser_rows() -> list[Claim]:
    """LASER's question, three seeds a game: areas, ends, and differences."""
    second = (f"levers_second/default_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2))
    halves = [area_to(name, 3.5e5) for name in (*TO_700K["Seaquest"], *second)]
    none = [
        area_to(f"laser_seaquest/queue-only_SeaquestNoFrameskip-v4_seed{seed}", 3.5e5)
        for seed in (1, 2, 3)
    ]
    shown = "has areas from {} to {} there in eight runs, {} [{}, {}] more than new data alone"
    ends = (over(min, *halves), over(max, *halves))
    claims = [Claim("docs/results.md", shown, (*ends, *welch(halves, none)))]
    for game, folder, steps in (
        ("Breakout", "laser", 5e5),
        ("SpaceInvaders", "laser", 5e5),
        ("Seaquest", "laser_seaquest", 3.5e5),
    ):
        runs = {
            arm: [f"{folder}/{arm}_{game}NoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
            for arm in ("queue-only", "replay-7-of-8", "replay-7-of-8-mask")
        }
        areas: dict[str, list[Value]] = {
            arm: [area_to(name, steps) for name in names] for arm, names in runs.items()
        }
        for arm, names in runs.items():
            row = f"| `{arm}`, {game} |" + " {} |" * 4 + " {} |"
            ends = mean_of([end(name) for name in names])
            claims.append(Claim("docs/results.md", row, (*areas[arm], mean_of(areas[arm]), ends)))
        if game == "Breakout":
            both = (mean_of(areas["replay-7-of-8"]), mean_of(areas["queue-only"]))
            rows = (
                "| Breakout, mean return over the first 2 M frames, seven eighths of each batch "
                "replayed (eight times as many updates), mean of three seeds | {} | `python -m "
                "analysis compare --runs docs/results/laser --area_to=500000` shows it | "
                "| The same with new data alone | {} |"
            )
            claims.append(Claim("README.md", rows, both))
        for shown, one, other in (
            ("seven eighths replayed, against none", "replay-7-of-8", "queue-only"),
            ("the same with the trust region, against none", "replay-7-of-8-mask", "queue-only"),
            ("the trust region, against the same without", "replay-7-of-8-mask", "replay-7-of-8"),
        ):
            row = f"| {shown}, {game} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", row, welch(areas[one], areas[other])))
    return claims


def most_replayed_rows() -> list[Claim]:
    """Seven eighths replayed beside the default on the same machine, one seed."""
    claims = []
    for game in ("Breakout", "SpaceInvaders"):
        default = f"most_replayed/default_{game}NoFrameskip-v4_seed4"
        more = f"most_replayed/replay-7-of-8-mask_{game}NoFrameskip-v4_seed4"
        for row, name in (
            (f"| `default`, {game} |", default),
            (f"| `replay-7-of-8-mask`, beside it in {game} |", more),
        ):
            values = (area_to(name, 7e5), end(name), meanwhile(name, default))
            claims.append(Claim("docs/results.md", row + " {} |" * 3, values))
    return claims


def population_rows() -> list[Claim]:
    """Shared replay against none, Breakout: areas to 0.3 M own steps, and their difference."""
    claims = []
    of_seeds: list[list[tuple[Value, Value]]] = [[], [], []]  # (shared, alone) of each agent
    for agent in ("low-entropy", "default", "fast"):
        areas: dict[str, list[Value]] = {
            kind: [
                area_to(f"population/{kind}-{agent}_BreakoutNoFrameskip-v4_seed{seed}", 3e5)
                for seed in (1, 2, 3)
            ]
            for kind in ("shared", "alone")
        }
        row = f"| `{agent}` |" + " {}, {}, {} | {} |" * 2
        values = [(*areas[kind], mean_of(areas[kind])) for kind in ("shared", "alone")]
        claims.append(Claim("docs/results.md", row, (*values[0], *values[1])))
        for pairs, *pair in zip(of_seeds, areas["shared"], areas["alone"], strict=True):
            pairs.append((pair[0], pair[1]))

    def difference_of(which: int) -> float:
        """The mean over the seeds of the mean over the agents, and the ends of its interval."""
        found = [fmean(shared() - alone() for shared, alone in pairs) for pairs in of_seeds]
        middle, half = fmean(found), stats.t.ppf(0.975, 2) * stats.sem(found)
        return float((middle, middle - half, middle + half)[which])

    values = tuple(partial(difference_of, which) for which in range(3))
    sentence = "shared minus alone, mean over the three agents: {} [{}, {}]"
    return [*claims, Claim("docs/results.md", sentence, values)]


CLAIMS = [
    *(
        Claim(
            "README.md",
            sentence,
            (over(fmean, *(at(name, ENDS["Breakout"]) for name in elite(label, "Breakout"))),),
        )
        for sentence, label in (
            ("replayed uniformly, mean of three seeds | {} |", "standard"),
            ("| The same with new data alone | {} |", "queue-batch-4"),
        )
    ),
    *screen_rows(),
    *three_quarter_rows(),
    *three_seed_rows(),
    *laser_rows(),
    *most_replayed_rows(),
    *population_rows(),
    *elite_rows(),
    *elite_seaquest_rows(),
    *elite_older_rows(),
]
