"""Seeds of the simulation hold every promise, and the checker sees each planted mistake."""

import json
from dataclasses import replace

import pytest

from tests.exact.runs import one_process
from tests.simulated import __main__ as program
from tests.simulated.checker import NAMES
from tests.simulated.mutants import MUTANTS
from tests.simulated.plan import MIXES, PACES, RARE, Plan, known_seeds
from tests.simulated.run import simulate

pytestmark = [
    pytest.mark.usefixtures("one_process"),
    # Files that a played death left open complain when they are thrown away.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
__all__ = ["one_process"]

FEW = range(1, 3)
MANY = [range(first, first + 100) for first in range(1000, 3000, 100)]


def broken(plan):
    result = simulate(plan)
    return [f"--plan='{plan.to_json()}': {line}" for line in result.broken]


@pytest.mark.parametrize("seed", sorted({*FEW, *known_seeds()}))
def test_a_seed_holds_every_promise(seed):
    assert broken(Plan.draw(seed)) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", MANY, ids=str)
def test_many_seeds_hold_every_promise(seeds):
    assert [line for seed in seeds for line in broken(Plan.draw(seed))] == []


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_comes_to_updates_and_to_its_end(mix):
    result = simulate(replace(healthy(), mix=mix))
    assert result.broken == []
    assert result.updates >= 5
    assert result.endings == {"steps": 1}


def test_a_plan_read_back_is_the_same_run():
    plan = Plan.draw(2)
    again = Plan.from_json(plan.to_json())
    assert again == plan
    one, other = simulate(plan), simulate(again)
    assert one.history == other.history
    assert (one.moves, one.updates, one.endings) == (other.moves, other.updates, other.endings)
    assert simulate(replace(plan, seed=3)).history != one.history


def healthy():
    """A plan in which nothing is hurt."""
    weights = {**dict.fromkeys(("learner", "ingest", "cache", "worker", "files"), 1.0)}
    return replace(
        Plan.draw(1), mix="queue and standard", workers=2, envs=2, slots=2, batch_size=4, queue=4,
        strategy="block", period=3, keep=2, steps=300, cache_depth=2, cache_threads=2,
        max_restarts=1000, reproducible=True, save_replay=True, interruptions=0.1,
        weights={**weights, **dict.fromkeys(RARE, 0.0)}, deaths=[],
    )  # fmt: skip


QUICK = ("a dead worker's slot stays taken", "a batch is one draw too large")


@pytest.mark.parametrize(
    "mutant",
    [m if m.name in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_a_planted_mistake_is_found(mutant):
    plan = healthy()
    weights = {**plan.weights, **mutant.plan.get("weights", {})}
    plan = replace(plan, **{**mutant.plan, "weights": weights})
    found = []
    for seed in range(1, 6):
        with mutant.patch():
            found = simulate(replace(plan, seed=seed)).broken
        if found:
            break
    assert [line for line in found if line.startswith(mutant.found_by)], found
    assert simulate(replace(plan, seed=seed)).broken == []


def test_there_is_a_planted_mistake_for_each_promise():
    assert {name for mutant in MUTANTS for name in mutant.found_by} == set(NAMES)


def test_the_program_prints_a_plan_that_repeats_what_is_broken(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "SEEDS_FILE", tmp_path / "seeds.txt")
    (mutant,) = [m for m in MUTANTS if m.name == "a batch is one draw too large"]
    with mutant.patch():
        assert program.main(["--first=17"]) == 1
        out = capsys.readouterr().out
        assert "seed 17: draws: " in out
        assert "| draws | 1 seeds |" in out
        (line,) = [line for line in out.splitlines() if "--plan='" in line]
        plan = line.partition("--plan='")[2].rstrip("'")
        assert program.main([f"--plan={plan}"]) == 1
        assert "draws: " in capsys.readouterr().out
    assert program.main([f"--plan={plan}"]) == 0
    assert (tmp_path / "seeds.txt").read_text(encoding="utf-8").startswith("17 # draws: ")
    assert program.main(["--plan={}"]) == 2
    assert json.loads(plan)["weights"]["learner"] in PACES
