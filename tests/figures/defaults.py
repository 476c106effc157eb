"""The default command, and what was tried around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median

from tests.figures.files import (
    Claim,
    Value,
    at,
    best,
    end,
    frames_of_tests,
    mean_of,
    minutes,
    minutes_to,
    over,
    percent_of_human,
    played,
    returns_of,
    steps_per_s,
    steps_to,
)

PONG = [
    f"{folder}/default_PongNoFrameskip-v4_seed{seed}"
    for folder in ("pong_default", "pong_repeated")
    for seed in (1, 2, 3)
]
TO_18 = [minutes_to(name, 18.0) for name in PONG]
STEPS_TO_18 = [steps_to(name, 18.0) for name in PONG]
FRAMES_TO_18 = [steps_to(name, 18.0, 0.25e6) for name in PONG]


# The default's runs to 2.5 M steps, by game, seeds 1, 2 and so on.
LONG = {
    game: [
        f"{game.lower()}_default/default_{game}NoFrameskip-v4_seed1",
        *(f"default/default_{game}NoFrameskip-v4_seed{seed}" for seed in (2, 3)),
    ]
    for game in ("Breakout", "SpaceInvaders")
} | {"Seaquest": [f"default_seaquest/default_SeaquestNoFrameskip-v4_seed{seed}" for seed in (1, 2)]}
COUNTS = {2: "two", 3: "three"}


INVADERS = LONG["SpaceInvaders"][0]


FADING = "spaceinvaders_trials/entropy-0.06-to-0.0025_SpaceInvadersNoFrameskip-v4_seed1"


ATTENTION = "attention_pong/attention_PongNoFrameskip-v4_seed1"


POPART = {
    (label, game): at(f"multi_popart/{label}_{game}NoFrameskip-v4_seed1", 370_000)
    for label in ("with-PopArt", "without")
    for game in ("Pong", "Carnival")
}


SHARED = "multi_shared_pixels/one-mean-image-for-both-games"
FP32 = [f"precision/fp32_PongNoFrameskip-v4_seed{seed}" for seed in (1, 2, 3)]


def tests_of(game: str, seed: int) -> list[float]:
    """Return the returns of the test games of one seed of the default."""
    if game == "Seaquest":
        return returns_of("default_seaquest", seed=seed)
    if seed == 1:
        return returns_of(f"{game.lower()}_default")
    return returns_of("default", game, seed)


def tested(game: str, seed: int, of: Callable[[Sequence[float]], float]) -> Value:
    """A figure of these: `of` is len, fmean, min or max."""
    return lambda: float(of(tests_of(game, seed)))


def long_rows() -> list[Claim]:
    """Three games to 10 M frames, and the means of the seeds."""

    claims = []
    for game, names in LONG.items():
        for seed, name in enumerate(names, start=1):
            tests = [tested(game, seed, of) for of in (len, fmean, min, max)]
            claims.append(
                Claim(
                    "docs/results.md",
                    f"| {seed}, {game} | {{}} | {{}} | {{}} | {{}}, from {{}} to {{}} | {{}} |",
                    (end(name), best(name), *tests, minutes(name)),
                )
            )
        trained = mean_of([end(name) for name in names])
        test = mean_of([tested(game, seed, fmean) for seed in range(1, len(names) + 1)])
        count = COUNTS[len(names)]
        claims += [
            Claim(
                "docs/results.md",
                f"of the {count} seeds in {game} is **{{}}** in training and **{{}}** in test "
                "games",
                (trained, test),
            ),
            Claim(
                "README.md",
                f"| {game}, return after 10 M frames, mean of {count} seeds | {{}} ({{}} in test "
                "games) |",
                (trained, test),
            ),
        ]
    claims += [
        Claim(
            "docs/results.md",
            "Seeds 2 and 3 have returns of {} and {} after 0.7 M steps.",
            tuple(at(name, 7e5) for name in LONG["SpaceInvaders"][1:]),
        ),
        Claim(
            "docs/results.md",
            "after which they are at {} and {}.",
            tuple(at(name, 5e5) for name in LONG["Seaquest"]),
        ),
        Claim(
            "docs/results.md",
            "No test game lasts longer than {} frames, and {} of the {} end within the last two",
            (
                lambda: max(frames_of_tests("default_seaquest")),
                lambda: sum(frames >= 9_081 for frames in frames_of_tests("default_seaquest")),
                lambda: len(frames_of_tests("default_seaquest")),
            ),
        ),
        Claim(
            "docs/results.md",
            "games, which is {} % of human. They ran",
            (percent_of_human("default_seaquest", "SeaquestNoFrameskip-v4"),),
        ),
    ]
    return claims


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
    *long_rows(),
    *trial_rows(),
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
