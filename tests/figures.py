"""Figures of the documents and the files that they come from; checked by tests/test_figures.py.

A claim is a sentence of a document in which each figure is a `{}`, with what the files say in the
same order. A figure is right if what the file says, rounded to as many decimals, is what the
document shows. White space in a sentence stands for any, also for a line end.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy import stats

from agent.testing.human_scores import human_normalised
from analysis.area import area, difference
from analysis.runs import Run, find_runs
from tests.house import ROOT

RESULTS = ROOT / "docs" / "results"
SPEED = RESULTS / "performance"
Value = Callable[[], float]


@dataclass(frozen=True)
class Claim:
    """A sentence of a document, and the values of its figures."""

    document: str
    sentence: str
    values: tuple[Value, ...]


@cache
def run(name: str) -> Run:
    """Read one exported run, e.g. "elite/standard_PongNoFrameskip-v4_seed1"."""
    (found,), _ = find_runs([str(RESULTS / f"{name}.csv")])
    return found


@cache
def returns_of(folder: str, env: str = "") -> list[float]:
    """Return the returns of the test games in a folder, of one game if it has several."""
    with open(RESULTS / folder / "test_games.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["env"].startswith(env)]
    return [float(row["return_raw"]) for row in rows]


def played(
    folder: str, of: Callable[[Sequence[float]], float], env: str = ""
) -> Callable[[], float]:
    """A figure of test games: `of` is len, fmean, min or max."""
    return lambda: float(of(returns_of(folder, env)))


def percent_of_human(folder: str, env: str) -> Value:
    """The mean of the test games, human-normalised, in percent."""
    return lambda: 100.0 * (human_normalised(env, fmean(returns_of(folder))) or 0.0)


def at(name: str, steps: float) -> Value:
    """The training return after so many agent steps."""
    return lambda: run(name).curve.at_steps(steps)


def end(name: str) -> Value:
    """The training return at the end."""
    return lambda: float(run(name).curve.mean_return[-1])


def area_to(name: str, steps: float) -> Value:
    """The mean training return from the start to so many agent steps."""
    return lambda: float(area(run(name).curve, steps))


def mean_of(values: Sequence[Value]) -> Value:
    """The mean of several figures."""
    return lambda: fmean(value() for value in values)


def best(name: str) -> Value:
    """The best single game of training."""
    return lambda: run(name).about.best or float("nan")


def minutes(name: str) -> Value:
    """The running time of the whole run."""
    return lambda: float(run(name).curve.wall_s[-1] / 60)


def steps_per_s(name: str) -> Value:
    """Agent steps per second over the whole run."""
    return lambda: float(run(name).curve.agent_steps[-1] / run(name).curve.wall_s[-1])


def first_at(name: str, mean_return: float) -> int:
    """Return the first record with at least this training return."""
    return int(np.argmax(run(name).curve.mean_return >= mean_return))


def minutes_to(name: str, mean_return: float) -> Value:
    """Running time until the training return is this high."""
    return lambda: float(run(name).curve.wall_s[first_at(name, mean_return)] / 60)


def steps_to(name: str, mean_return: float, unit: float = 1e6) -> Value:
    """Agent steps until the training return is this high, in millions."""
    return lambda: float(run(name).curve.agent_steps[first_at(name, mean_return)] / unit)


def over(of: Callable[[Sequence[float]], float], *values: Value) -> Value:
    """A figure of several: `of` is min, max, median or fmean."""
    return lambda: float(of([value() for value in values]))


def bench(config: str, key: str, scale: float = 1.0) -> Value:
    """A figure of the first line of a configuration in bench_end_to_end.jsonl."""

    def value() -> float:
        lines = (SPEED / "bench_end_to_end.jsonl").read_text(encoding="utf-8").splitlines()
        return scale * float(next(x for x in map(json.loads, lines) if x["config"] == config)[key])

    return value


def peer(system: str, ours: bool = False) -> Value:
    """Steps per second in compare_peers.json, or how much faster ours is."""

    def value() -> float:
        data: dict[str, Any] = json.loads((SPEED / "compare_peers.json").read_text("utf-8"))
        found = data["systems"][system]
        return float(found["ours_over_this"]["ours_queue"] if ours else found["steps_per_s"])

    return value


def learning_rows() -> list[Claim]:
    """What each system had learned of Pong after ten minutes: score, steps, games."""

    def of(system: str, name: str) -> float:
        data: dict[str, Any] = json.loads((SPEED / "learn_pong.json").read_text("utf-8"))
        return float(data["systems"][system]["runs"][0][name])

    titles = {
        "sample_factory": "Sample Factory, APPO",
        "rllib_impala": "RLlib, IMPALA",
        "sb3_ppo": "Stable-Baselines3, PPO",
        "ours_default": "ours, default command",
    }
    figures = ("score", "agent_steps", "games")
    sentence = (
        "gave a mean return of {} here, {} with Sample Factory, {} with PPO of Stable-Baselines3"
    )
    order = ("ours_default", "sample_factory", "sb3_ppo", "rllib_impala")
    return [
        Claim(
            "README.md",
            f"{sentence} and {{}} with IMPALA of RLlib",
            tuple(partial(of, system, "score") for system in order),
        ),
        *(
            Claim(
                "docs/performance.md",
                f"| {title} | {{}} | {{}} | {{}} |",
                tuple(partial(of, system, name) for name in figures),
            )
            for system, title in titles.items()
        ),
    ]


PONG = [
    f"{folder}/default_PongNoFrameskip-v4_seed{seed}"
    for folder in ("pong_default", "pong_repeated")
    for seed in (1, 2, 3)
]
TO_18 = [minutes_to(name, 18.0) for name in PONG]
STEPS_TO_18 = [steps_to(name, 18.0) for name in PONG]
FRAMES_TO_18 = [steps_to(name, 18.0, 0.25e6) for name in PONG]
BREAKOUT = "breakout_default/default_BreakoutNoFrameskip-v4_seed1"
INVADERS = "spaceinvaders_default/default_SpaceInvadersNoFrameskip-v4_seed1"
FADING = "spaceinvaders_trials/entropy-0.06-to-0.0025_SpaceInvadersNoFrameskip-v4_seed1"
ATTENTION = "attention_pong/attention_PongNoFrameskip-v4_seed1"
POPART = {
    (label, game): at(f"multi_popart/{label}_{game}NoFrameskip-v4_seed1", 370_000)
    for label in ("with-PopArt", "without")
    for game in ("Pong", "Carnival")
}
SHARED = "multi_shared_pixels/one-mean-image-for-both-games"
FP32 = [f"precision/fp32_PongNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]


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


def laser_rows() -> list[Claim]:
    """LASER's question, three seeds a game: areas to 0.5 M steps, ends, and differences."""
    claims = []
    for game in ("Breakout", "SpaceInvaders"):
        runs = {
            arm: [f"laser/{arm}_{game}NoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]
            for arm in ("queue-only", "replay-7-of-8", "replay-7-of-8-mask")
        }
        areas: dict[str, list[Value]] = {
            arm: [area_to(name, 5e5) for name in names] for arm, names in runs.items()
        }
        for arm, names in runs.items():
            row = f"| `{arm}`, {game} |" + " {} |" * 4 + " {} |"
            ends = mean_of([end(name) for name in names])
            claims.append(Claim("docs/results.md", row, (*areas[arm], mean_of(areas[arm]), ends)))
        if game == "Breakout":
            both = (mean_of(areas["replay-7-of-8"]), mean_of(areas["queue-only"]))
            rows = (
                "| Breakout, mean return over the first 2 M frames, seven eighths of each batch "
                "replayed, mean of three seeds | {} | `make experiments`, entry `laser` | "
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


def lever_rows() -> list[Claim]:
    """The first stage of the cheap levers: area to 0.35 M steps on Breakout, and its ratio."""
    breakout = "BreakoutNoFrameskip-v4"
    defaults = [
        area_to(f"{folder}_{breakout}_seed{seed}", 3.5e5)
        for folder, seeds in (("screen_a/control", [1]), ("impact_breakout/default", [1, 2, 3]))
        for seed in seeds
    ]
    usual = mean_of(defaults)
    arms = (
        *("lr-0.0005", "lr-0.001", "batch-4", "two-lambdas", "clip-5", "gamma-0.997"),
        *("entropy-0.0125", "pixels-as-they-are"),
    )
    claims = [
        Claim(
            "docs/results.md",
            "the default's four runs there: {}, {}, {} and {}, mean {}",
            (*defaults, usual),
        )
    ]
    for arm in arms:
        value = area_to(f"levers/{arm}_{breakout}_seed1", 3.5e5)
        ratio = over(lambda pair: pair[0] / pair[1], value, usual)
        claims.append(Claim("docs/results.md", f"| `{arm}` | {{}} | {{}} |", (value, ratio)))
    for game in ("SpaceInvaders", "Seaquest"):
        areas = {
            arm: [
                area_to(f"levers_second/{arm}_{game}NoFrameskip-v4_seed{seed}", 3.5e5)
                for seed in (1, 2)
            ]
            for arm in ("default", "lr-0.0005", "lr-0.001")
        }
        for arm, of_seeds in areas.items():
            pair = (mean_of(of_seeds), mean_of(areas["default"]))
            ratio = over(lambda pair: pair[0] / pair[1], *pair)
            row = f"| `{arm}`, levers in {game} |" + " {} |" * 3
            claims.append(Claim("docs/results.md", row, (*of_seeds, ratio)))
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


def welch(ones: Sequence[Value], others: Sequence[Value]) -> tuple[Value, ...]:
    """The difference of means, and the ends of its 95 % interval."""

    def of(name: str) -> float:
        found = difference([value() for value in ones], [value() for value in others])
        return float(getattr(found, name))

    return tuple(lambda name=name: of(name) for name in ("value", "low", "high"))


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
            ("0.95 after million steps", [steps_to(name, 0.95) for name in runs]),
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
    meanwhile: list[Value] = [
        lambda name=name, other=other: run(name).curve.at_seconds(run(other).curve.wall_s[-1])
        for name, other in zip(runs["impact"], runs["default"], strict=True)
    ]
    areas = {arm: [area_to(name, 7e5) for name in names] for arm, names in runs.items()}
    rows: dict[str, list[Value]] = {
        "default": [end(name) for name in runs["default"]],
        "IMPACT": meanwhile,
        "default, area to 0.7 M steps": areas["default"],
        "IMPACT, area to 0.7 M steps": areas["impact"],
    }
    return [
        Claim("docs/results.md", f"| {shown} | {{}} | {{}} | {{}} | {{}} |", (*row, mean_of(row)))
        for shown, row in rows.items()
    ]


def precision_rows() -> list[Claim]:
    """What bf16 and fp32 cost on two processors, by network and order of kernels."""
    plain = ("impala_shallow", "nature", "resnet")
    return [
        *_precision_table("precision_xeon.json", plain, "{}", 8),
        *_precision_table("precision_amx.json", (*plain, "resnet_light"), "{}, AMX", 16),
    ]


def _precision_table(file: str, networks: Sequence[str], name: str, games: int) -> list[Claim]:
    rows = {
        f"{name.format(f'`{network}`')}, {shown}": f"{network}_{key}_us"
        for network in networks
        for shown, key in (
            ("learning, 84 rows", "learning"),
            (f"acting, {games} games", f"acting_{games}"),
        )
    }
    figures = json.loads((SPEED / file).read_text(encoding="utf-8"))
    claims = []
    for shown, key in rows.items():
        values = tuple(lambda v=value: float(v) for value in figures[key].values())
        fastest = min(range(4), key=list(figures[key].values()).__getitem__)
        cells = " | ".join("**{}**" if i == fastest else "{}" for i in range(4))
        claims.append(Claim("docs/performance.md", f"| {shown} | {cells} |", values))
    return claims


def amx_claims() -> list[Claim]:
    """Speeds on an Intel Xeon with AMX: other systems, the loop, ours with 16 and 32 games."""
    systems = json.loads((SPEED / "compare_peers_amx.json").read_text("utf-8"))["systems"]
    ours = json.loads((SPEED / "bench_end_to_end_amx.jsonl").read_text("utf-8"))
    rounds = [
        {part: us for part, us in json.loads(line).items() if part != "kernels"}
        for line in (SPEED / "paired_amx.jsonl").read_text("utf-8").splitlines()
    ]

    def saved(part: str) -> float:
        before, now = (rounds[i][part] + rounds[i + 2][part] for i in (0, 1))
        return 100 * (1 - now / before)

    def speed(name: str) -> float:
        return float(systems[name]["steps_per_s"])

    def times(name: str) -> float:
        return float(systems[name]["ours_over_this"]["ours_queue"])

    def constants(values: Sequence[float]) -> tuple[Value, ...]:
        return tuple(lambda value=value: value for value in values)

    parts, peers = ours["parts_us"], ("sample_factory", "sync_loop")
    emulation = float(parts["emulation"])
    figures: list[float] = [
        *(*(speed(name) for name in (*peers, "ours_queue")), *(times(name) for name in peers)),
        *(float(ours["sps"]), 100 * float(ours["fraction"]), float(ours["bound_sps"])),
        *(float(ours["sps"]) / speed(name) for name in peers),
        *(emulation, emulation + float(parts["inference"]) + float(parts["learning"])),
    ]
    kinds = ("impala_shallow B8 learning", "impala_shallow B8 inference", "nature B8 learning")
    return [
        Claim(
            "docs/performance.md",
            "gave medians of {} steps/s for Sample Factory, {} for the loop and {} for ours: {} "
            "and {} times",
            constants(figures[:5]),
        ),
        Claim(
            "docs/performance.md",
            "gave ours with 32 games {} steps/s, {} % of its bound of {}. That is {} times Sample "
            "Factory and {} times the loop",
            constants(figures[5:10]),
        ),
        Claim(
            "docs/performance.md",
            "takes {} of the {} microseconds of the machine that a step needs there",
            constants(figures[10:]),
        ),
        Claim(
            "docs/performance.md",
            "took {} % and {} % less time for `impala_shallow` in batches of 8, and {} % less each "
            "for `nature`",
            tuple(partial(saved, kind) for kind in kinds),
        ),
    ]


def trial_rows() -> list[Claim]:
    """The rows of the trials in SpaceInvaders after 0.26 M steps."""
    rows = {
        "none": "default",
        "`--advantage_normalisation=none --entropy_loss_weight=0.004`": "no-division",
        "`--lr=0.0001`": "lr-1e-4",
        "`--gamma=0.997 --vtrace_lambda=1`": "gamma-0.997",
        "`--clip_rewards=False`": "raw-rewards",
        "`--entropy_loss_weight=0.01`": "entropy-0.01",
        "`--batch_size=32`, queue of 16 and standard": "batch-32",
        "`--normalise_pixels=False`": "pixels-as-they-are",
        "new data only: one queue, batches of 8": "queue-only",
    }
    folder, game = "spaceinvaders_trials", "SpaceInvadersNoFrameskip-v4"
    return [
        Claim("docs/results.md", f"| {shown} | {{}} |", (at(f"{folder}/{n}_{game}_seed1", 2.6e5),))
        for shown, n in rows.items()
    ]


CLAIMS = [
    Claim(
        "README.md",
        "(three seeds, twice) | {} to {}, median {} |",
        tuple(over(of, *TO_18) for of in (min, max, median)),
    ),
    Claim(
        "README.md",
        "million steps until then | {} to {} ({} to {} M frames) |",
        tuple(over(of, *values) for values in (STEPS_TO_18, FRAMES_TO_18) for of in (min, max)),
    ),
    Claim(
        "README.md",
        "(a mean return of 18 over 100 games) after {} to {} minutes",
        (over(min, *TO_18), over(max, *TO_18)),
    ),
    Claim(
        "README.md",
        "| Breakout, return after 10 M frames, one seed | {} ({} in test games) |",
        (end(BREAKOUT), played("breakout_default", fmean)),
    ),
    Claim(
        "README.md",
        "| SpaceInvaders, return after 10 M frames, one seed | {} ({} in test games) |",
        (end(INVADERS), played("spaceinvaders_default", fmean)),
    ),
    Claim(
        "README.md",
        "returns after 370 000 steps of each, one seed | {} and {} |",
        tuple(POPART.values())[:2],
    ),
    Claim(
        "README.md", "| The same without PopArt, one seed | {} and {} |", tuple(POPART.values())[2:]
    ),
    Claim(
        "README.md",
        "| Attention agent on Pong, return after 10 M frames, one seed | {} ({} minutes) |",
        (end(ATTENTION), minutes(ATTENTION)),
    ),
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
    *(
        Claim(
            "README.md",
            f"| Speed with {what}, agent steps per second | {{}}, {{}} % of the maximum |",
            (bench(config, "sps"), bench(config, "fraction", 100)),
        )
        for what, config in (("new data alone", "queue"), ("half replay", "mixed"))
    ),
    Claim("README.md", "| this platform, queue only | {} | |", (peer("ours_queue"),)),
    Claim(
        "README.md",
        "A2C / PPO (one epoch) | {} / {} | {} / {} |",
        (
            *(peer(s) for s in ("sb3_a2c", "sb3_ppo")),
            *(peer(s, True) for s in ("sb3_a2c", "sb3_ppo")),
        ),
    ),
    Claim("README.md", "APPO | {} | {} |", (peer("sample_factory"), peer("sample_factory", True))),
    Claim("README.md", "IMPALA | {} | {} |", (peer("rllib_impala"), peer("rllib_impala", True))),
    *(
        Claim(
            "docs/results.md",
            f"| {seed} | {{}} min | {{}} M ({{}} M frames) | ",
            (minutes_to(name, 18.0), steps_to(name, 18.0), steps_to(name, 18.0, 0.25e6)),
        )
        for seed, name in enumerate(PONG[:3], start=1)
    ),
    Claim(
        "docs/results.md",
        "in another session: {}, {} and {} minutes, after {}, {} and {} M steps",
        (*TO_18[3:], *STEPS_TO_18[3:]),
    ),
    Claim(
        "docs/results.md",
        "gives {}, from {} to {}, all games distinct ([test_games.csv](results/pong_default",
        tuple(played("pong_default", of) for of in (fmean, min, max)),
    ),
    Claim(
        "docs/results.md",
        "return of 18 took {} minutes and {} M steps, at {} instead of {} steps per second",
        (
            minutes_to("pong_16_environments/16-per-worker_PongNoFrameskip-v4_seed1", 18.0),
            steps_to("pong_16_environments/16-per-worker_PongNoFrameskip-v4_seed1", 18.0),
            steps_per_s("pong_16_environments/16-per-worker_PongNoFrameskip-v4_seed1"),
            steps_per_s(PONG[0]),
        ),
    ),
    Claim(
        "docs/results.md",
        "training return **{}** ({} after 0.76 M steps, {} after 1.7 M), best game {}. {} test "
        "games of the final policy (`--op_mode=test`): **{}**, from {} to {}, {} % of human. One "
        "seed. {} minutes",
        (
            *(end(BREAKOUT), at(BREAKOUT, 7.6e5), at(BREAKOUT, 1.7e6), best(BREAKOUT)),
            *(played("breakout_default", of) for of in (len, fmean, min, max)),
            percent_of_human("breakout_default", "BreakoutNoFrameskip-v4"),
            minutes(BREAKOUT),
        ),
    ),
    Claim(
        "docs/results.md",
        "training return **{}**, best game {}, {} minutes of running time. {} test games of the "
        "final policy: **{}**, from {} to {}, {} % of human.",
        (
            *(end(INVADERS), best(INVADERS), minutes(INVADERS)),
            *(played("spaceinvaders_default", of) for of in (len, fmean, min, max)),
            percent_of_human("spaceinvaders_default", "SpaceInvadersNoFrameskip-v4"),
        ),
    ),
    *trial_rows(),
    *screen_rows(),
    *lever_rows(),
    *laser_rows(),
    *population_rows(),
    *learning_rows(),
    *ray_rows(),
    *robot_rows(),
    *impact_rows(),
    *key_rows(),
    *breakout_rows(),
    *precision_rows(),
    *amx_claims(),
    Claim(
        "docs/results.md",
        "| the default settings |" + " {} |" * 7,
        tuple(at(INVADERS, s) for s in (2.6e5, 5e5, 7.5e5, 1e6, 1.5e6, 2e6, 2.5e6)),
    ),
    Claim(
        "docs/results.md",
        "| `--entropy_loss_weight=0.06 --entropy_end_weight=0.0025` |" + " {} |" * 7,
        tuple(at(FADING, s) for s in (2.6e5, 5e5, 7.5e5, 1e6, 1.5e6, 2e6, 2.5e6)),
    ),
    Claim(
        "docs/results.md",
        "The last one went to its end in {} minutes, resumed once, alone on the machine: training "
        "return **{}**, and **{}** over {} test games of the final policy, from {} to {}",
        (
            *(minutes(FADING), end(FADING)),
            *(played("spaceinvaders_trials", of) for of in (fmean, len, min, max)),
        ),
    ),
    *elite_rows(),
    Claim(
        "docs/results.md",
        "{} test games of each game by the agent with PopArt at the end "
        "(`--op_mode=test --test_episode_count=32`): {} and {}",
        (
            played("multi_popart", len, "Pong"),
            *(played("multi_popart", fmean, game) for game in ("Pong", "Carnival")),
        ),
    ),
    Claim(
        "docs/results.md",
        "| with PopArt | {} | {} | | without | {} | {} |",
        tuple(POPART.values()),
    ),
    Claim(
        "docs/results.md",
        "an earlier version stood at {} in Pong and {} in Carnival",
        tuple(end(f"{SHARED}_{game}NoFrameskip-v4_seed1") for game in ("Pong", "Carnival")),
    ),
    Claim(
        "docs/results.md",
        "training return **{}**, {} minutes at {} agent steps per second",
        (end(ATTENTION), minutes(ATTENTION), steps_per_s(ATTENTION)),
    ),
    Claim(
        "docs/results.md",
        "{} test games (`--op_mode=test --test_episode_count=16`): {}, from {} to {} "
        "([test_games.csv](results/attention_pong",
        tuple(played("attention_pong", of) for of in (len, fmean, min, max)),
    ),
    Claim(
        "docs/results.md",
        "| training return after 452 000 steps, bf16 | {} | {} | {} | {} [",
        (
            *(at(name, 452_000) for name in PONG[:3]),
            over(fmean, *(at(name, 452_000) for name in PONG[:3])),
        ),
    ),
    Claim(
        "docs/results.md",
        "| the same, fp32 | {} | {} | {} | {} [",
        (*(at(name, 452_000) for name in FP32), over(fmean, *(at(name, 452_000) for name in FP32))),
    ),
    Claim(
        "docs/results.md",
        "| agent steps to a return of 18, bf16 | {} M | {} M | {} M |",
        tuple(STEPS_TO_18[:3]),
    ),
]
