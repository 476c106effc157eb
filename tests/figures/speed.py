"""Speeds, and what other systems have learned in the same time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from tests.figures.defaults import LONG
from tests.figures.files import (
    SPEED,
    Claim,
    Value,
    at,
    over,
)


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
    """What systems had learned after ten minutes of Pong, or twenty of Breakout."""

    def of(system: str, name: str, game: str = "pong", scale: float = 1.0) -> float:
        data: dict[str, Any] = json.loads((SPEED / f"learn_{game}.json").read_text("utf-8"))
        found = data["systems"][system]
        return scale * float((found["runs"][0] if name in found["runs"][0] else found)[name])

    def as_often(system: str) -> float:
        ours, theirs = (
            of(name, "human_normalised", "breakout") for name in ("ours_default", system)
        )
        return ours / theirs

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
                f"| {titles[system]} | {{}} | {{}} | {{}} | {{}} |",
                (
                    partial(of, system, "score", "breakout"),
                    partial(of, system, "human_normalised", "breakout", 100.0),
                    *(partial(of, system, name, "breakout") for name in ("agent_steps", "games")),
                ),
            )
            for system in titles
        ),
        Claim(
            "README.md",
            "Twenty minutes of Breakout, one seed, gave {} here, {} with Sample Factory, {} with "
            "PPO and {} with IMPALA of RLlib, in {}, {}, {} and {} million steps",
            tuple(
                partial(of, system, name, "breakout", scale)
                for name, scale in (("score", 1.0), ("agent_steps", 1e-6))
                for system in order
            ),
        ),
        Claim(
            "docs/performance.md",
            "That is {} times the human-normalised score of Sample Factory, and {} times that of "
            "Stable-Baselines3.",
            tuple(partial(as_often, system) for system in ("sample_factory", "sb3_ppo")),
        ),
        Claim(
            "docs/performance.md",
            "had {} to {} after its {} M steps, and {} to {} after the {} M of Stable-Baselines3,",
            tuple(
                value
                for system in ("sample_factory", "sb3_ppo")
                for value in (
                    *(
                        over(
                            which,
                            *(
                                at(name, of(system, "agent_steps", "breakout"))
                                for name in LONG["Breakout"]
                            ),
                        )
                        for which in (min, max)
                    ),
                    partial(of, system, "agent_steps", "breakout", 1e-6),
                )
            ),
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


def background_claims() -> list[Claim]:
    """A run in the background whose learner has the priority of its workers, and a higher one."""

    def speed(niceness: int) -> float:
        data = json.loads((SPEED / "background_niceness.json").read_text("utf-8"))
        return fmean(data[f"learner at {niceness}"])

    return [
        Claim(
            "docs/performance.md",
            "made {} agent steps per second at 19 and {} at 15, which are {} % more",
            (
                partial(speed, 19),
                partial(speed, 15),
                lambda: 100 * (speed(15) / speed(19) - 1),
            ),
        )
    ]


def operator_claims() -> list[Claim]:
    """The default's network and batches before and after two operators were mended."""

    def runs(name: str) -> list[float]:
        data = json.loads((SPEED / "paired_baa4c92.json").read_text("utf-8"))
        return [float(speed) for speed in data[name]]

    def one(name: str, number: int) -> float:
        return runs(name)[number]

    return [
        Claim(
            "docs/performance.md",
            "{}, {} and {} steps/s before, {}, {} and {} now, {} % more in the mean "
            "([paired_baa4c92.json]",
            (
                *(partial(one, name, k) for name in ("before", "after") for k in range(3)),
                lambda: 100 * (fmean(runs("after")) / fmean(runs("before")) - 1),
            ),
        )
    ]


def thread_claims() -> list[Claim]:
    """Tests of one and two threads, alone and in company."""
    data = json.loads((SPEED / "test_threads_amx.json").read_text("utf-8"))
    alone = data["alone, steps in the first ten seconds, by threads"]

    def speed(name: str) -> float:
        return float(data[name]["steps"] / data[name]["seconds"])

    def gain(model: str) -> float:
        return float(alone[model]["2"] / alone[model]["1"])

    return [
        Claim(
            "docs/evaluation.md",
            "two tests of two threads each made {} agent steps per second, and one alone {}; a "
            "test of one thread made {} beside the test suite.",
            tuple(
                partial(speed, name)
                for name in (
                    "two tests of two threads",
                    "one test of two threads",
                    "one thread beside the test suite",
                )
            ),
        ),
        Claim(
            "docs/evaluation.md",
            "two threads do {} times as many steps as one with a small network (`models/pong`) "
            "and {} times as many",
            (partial(gain, "models/pong"), partial(gain, "models/breakout")),
        ),
    ]


CLAIMS = [
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
    *learning_rows(),
    *precision_rows(),
    *amx_claims(),
    *background_claims(),
    *operator_claims(),
    *thread_claims(),
]
