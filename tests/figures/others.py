"""Other workers, worlds and algorithms: Ray, robots, MiniGrid, IMPACT."""

from __future__ import annotations

import json
from functools import partial
from statistics import fmean

from tests.figures.files import (
    RESULTS,
    Claim,
    Value,
    area_to,
    at,
    end,
    mean_of,
    meanwhile,
    minutes_to,
    over,
    played,
    steps_per_s,
    steps_to,
    welch,
)


def ray_rows() -> list[Claim]:
    """Pong with workers in Ray and without: areas to 0.7 M steps, returns there, and lags."""
    claims, areas = [], {}
    for arm in ("native", "ray"):
        names = [f"{arm}_PongNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
        paths = [f"workers_in_ray/{name}" for name in names]
        areas[arm] = [area_to(path, 7e5) for path in paths]
        ends, lags = [end(path) for path in paths], [partial(lag_over_ray, name) for name in names]
        row = f"| `{arm}` | {{}}, {{}}, {{}} | {{}} | {{}}, {{}}, {{}} | {{}} |"
        values = (*areas[arm], mean_of(areas[arm]), *ends, mean_of(lags))
        claims.append(Claim("docs/results.md", row, values))
    sentence = "the difference of the means is {} [{}, {}] (Welch"
    return [*claims, Claim("docs/results.md", sentence, welch(areas["ray"], areas["native"]))]


def lag_over_ray(name: str) -> float:
    """Mean lag of a run of workers_in_ray, in updates."""
    lags = json.loads((RESULTS / "workers_in_ray" / "lag.json").read_text(encoding="utf-8"))
    return float(lags[name])


def robot_rows() -> list[Claim]:
    """Robots: each of three seeds at its end and their mean; how IMPACT's target was set."""
    claims = []
    means: dict[tuple[str, str], Value] = {}
    for robot in ("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "InvertedPendulum-v5"):
        folder = "inverted_pendulum" if robot.startswith("Inverted") else "mujoco"
        for arm, shown in (("impact", f"`{robot}`"), ("impala", f"`{robot}`, V-trace")):
            ends = tuple(end(f"{folder}/{arm}_{robot}_seed{seed}") for seed in (2, 3, 4))
            row = f"| {shown} | {{}} | {{}} | {{}} | **{{}}** |"
            claims.append(Claim("docs/results.md", row, (*ends, mean_of(ends))))
            means[robot, arm] = mean_of(ends)
    ahead = tuple(
        over(lambda pair: pair[0] - pair[1], means[robot, "impact"], means[robot, "impala"])
        for robot in ("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5")
    )
    sentence = "is ahead by {} points on HalfCheetah, {} on Walker2d and {} on Hopper"
    claims.append(Claim("docs/results.md", sentence, ahead))
    robots = ("HalfCheetah-v5", "Hopper-v5")
    for shown, label in (("4,096", "4096_steps"), ("2,048", "2048_steps")):
        runs = [f"mujoco_target_period/{label}_{robot}_seed1" for robot in robots]
        row = f"| {shown} | {{}} | {{}} |"
        claims.append(Claim("docs/results.md", row, tuple(at(name, 3e5) for name in runs)))
    longest = [f"mujoco_target_period/4096_steps_{robot}_seed1" for robot in robots]
    sentence = "went on to {} on HalfCheetah and {} on Hopper after a million steps"
    claims.append(Claim("docs/results.md", sentence, tuple(end(name) for name in longest)))
    return claims


def key_rows() -> list[Claim]:
    """DoorKey: return at the end and steps until 0.95, of three seeds; a constant bonus."""
    game = "MiniGrid-DoorKey-5x5-v0"
    claims = []
    for shown, arm in (("IMPACT", "impact"), ("V-trace", "impala")):
        runs = [f"doorkey_fading/{arm}_{game}_seed{seed}" for seed in (1, 2, 3)]
        for row, values in (
            ("return after 0.3 M steps", [end(name) for name in runs]),
            ("million steps until 0.95", [steps_to(name, 0.95) for name in runs]),
        ):
            sentence = f"| {shown}, {row} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", sentence, tuple(values)))
    constant = [end(f"doorkey/{arm}_{game}_seed1") for arm in ("impact", "impala")]
    played_games = [played("doorkey", of) for of in (len, fmean)]
    sentence = (
        "IMPACT ended at {} and V-trace at {}. With the most probable actions (`--greedy=True`), "
        "{} test games of IMPACT's agent gave {} "
    )
    return [*claims, Claim("docs/results.md", sentence, (*constant, *played_games))]


def impact_rows() -> list[Claim]:
    """IMPACT and the default on Pong: minutes and steps until it is solved, and speed."""
    runs = {
        shown: [f"impact_pong/{label}_PongNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
        for shown, label in (("default", "default"), ("IMPACT", "impact"))
    }
    claims = []
    for shown, names in runs.items():
        for unit, of in (("minutes", minutes_to), ("million steps", steps_to)):
            values = tuple(of(name, 18.0) for name in names)
            row = f"| {shown}, {unit} | {{}} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", row, (*values, mean_of(values))))
    speed = {shown: mean_of([steps_per_s(name) for name in names]) for shown, names in runs.items()}
    sentence = "makes {} steps per second where the default makes {} "
    claims.append(Claim("docs/results.md", sentence, (speed["IMPACT"], speed["default"])))
    share = over(lambda pair: pair[0] / pair[1], speed["IMPACT"], speed["default"])
    claims.append(Claim("docs/impact.md", "has {} of the default's speed", (share,)))
    once = end("impact_pong_trial/queue-only_PongNoFrameskip-v4_seed1")
    claims.append(Claim("docs/results.md", "was at a return of {} after 0.95 M steps", (once,)))
    return claims


def breakout_rows() -> list[Claim]:
    """IMPACT and the default on Breakout side by side: returns at equal time, and areas."""
    runs = {
        arm: [f"impact_breakout/{arm}_BreakoutNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
        for arm in ("default", "impact")
    }
    at_equal_time = [
        meanwhile(name, other) for name, other in zip(runs["impact"], runs["default"], strict=True)
    ]
    areas = {arm: [area_to(name, 7e5) for name in names] for arm, names in runs.items()}
    rows: dict[str, list[Value]] = {
        "default": [end(name) for name in runs["default"]],
        "IMPACT": at_equal_time,
        "default, area to 0.7 M steps": areas["default"],
        "IMPACT, area to 0.7 M steps": areas["impact"],
    }
    return [
        Claim("docs/results.md", f"| {shown} | {{}} | {{}} | {{}} | {{}} |", (*row, mean_of(row)))
        for shown, row in rows.items()
    ]


# How many games one agent has -> its runs below docs/results, and the games.
POPART = {
    "three": ("popart_three/{}", ("Breakout", "SpaceInvaders", "Seaquest")),
    "two": ("popart_two/{}-2-games", ("Breakout", "SpaceInvaders")),
}


def popart_rows(count: str) -> list[Claim]:
    """One agent for several games, with PopArt or clipped, or one for each: areas to 0.4 M."""
    claims = []
    path, games = POPART[count]
    for game in games:
        areas = {
            arm: [area_to(f"{runs}_{game}NoFrameskip-v4_seed{seed}", 4e5) for seed in (4, 5, 6)]
            for arm, runs in (
                ("clipped", path.format("clipped")),
                ("popart", path.format("popart")),
                ("alone", "levers_confirmed/lr-0.00025"),
            )
        }
        for arm, shown in (("clipped", "clipped rewards"), ("popart", "PopArt")):
            row = f"| {count} games, {shown}, {game} |" + " {} |" * 4
            claims.append(Claim("docs/results.md", row, (*areas[arm], mean_of(areas[arm]))))
        for shown, one, other in (
            ("PopArt minus clipped", "popart", "clipped"),
            ("PopArt minus an agent of its own", "popart", "alone"),
            ("clipped minus an agent of its own", "clipped", "alone"),
        ):
            row = f"| {count} games, {shown}, {game} | {{}} | {{}} | {{}} |"
            claims.append(Claim("docs/results.md", row, welch(areas[one], areas[other])))
    return claims


CLAIMS = [
    *popart_rows("three"),
    *popart_rows("two"),
    *ray_rows(),
    *robot_rows(),
    *impact_rows(),
    *key_rows(),
    *breakout_rows(),
]
