"""The statistics over runs and games as their papers write them: in loops, slow on purpose."""

from collections.abc import Sequence
from math import inf

Games = Sequence[Sequence[float]]


def profile_loops(games, level):
    """Agarwal et al. 2021, equation 1: (1/M) sum_m (1/N_m) sum_n 1[x_mn > level]."""
    total = 0.0
    for scores in games:
        above = 0
        for score in scores:
            if score > level:
                above += 1
        total += above / len(scores)
    return total / len(games)


def improvement_loops(first, second):
    """Agarwal et al. 2021, section 4.3: (1/M) sum_m (1/NK) sum_i sum_j S(x_mi, y_mj)."""
    total = 0.0
    for ours, theirs in zip(first, second, strict=True):
        wins = 0.0
        for x in ours:
            for y in theirs:
                if x > y:
                    wins += 1.0
                elif x == y:
                    wins += 0.5
        total += wins / (len(ours) * len(theirs))
    return total / len(first)


def interquartile_mean_loops(games):
    """The mean of all runs of all games without floor(n / 4) at either end."""
    pooled = sorted(score for scores in games for score in scores)
    cut = len(pooled) // 4
    kept = pooled[cut : len(pooled) - cut]
    return sum(kept) / len(kept)


def reached_by_loops(times, reached, when):
    """Kaplan and Meier 1958: the share that has reached by `when`, 1 - prod (1 - d_i / n_i)."""
    left = 1.0
    for moment in sorted({t for t, r in zip(times, reached, strict=True) if r and t <= when}):
        at_risk = sum(t >= moment for t in times)
        arrive = sum(r and t == moment for t, r in zip(times, reached, strict=True))
        left *= 1.0 - arrive / at_risk
    return 1.0 - left


def median_time_loops(times, reached):
    """When half has reached; the middle of the two moments between which it is exactly half."""
    moments = sorted({t for t, r in zip(times, reached, strict=True) if r})
    for number, moment in enumerate(moments):
        share = reached_by_loops(times, reached, moment)
        if abs(share - 0.5) < 1e-9:
            later = moments[number + 1] if number + 1 < len(moments) else inf
            return (moment + later) / 2
        if share > 0.5:
            return moment
    return inf
