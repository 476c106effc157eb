"""A reproducible run that is killed and resumed is the run that was never stopped, to the bit.

Killed anywhere: between any two operations on files, before any update, between a checkpoint and
its record. Here a kill ends the session within this process, and what the system had been given by
then is what the next session finds; at the end of this file real processes die by SIGKILL.
"""

import json
import random
import shutil
import signal
from functools import cache

import pytest
from torch import nn

from ritornello.agent.models.networks import register_network
from tests.deadlines import HANGS_S
from tests.exact.disks import write_files
from tests.exact.runs import (
    MORE_STEPS,
    PERIOD,
    STEPS,
    difference,
    newest_checkpoint,
    one_process,
    only_run,
    product,
    resume,
    small,
    train,
)
from tests.faulty import Fault
from tests.integration.commands import hurt_by
from tests.integration.commands import run as run_program

pytestmark = [
    pytest.mark.usefixtures("one_process"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # open files
]
__all__ = ["one_process"]

MAX_KILLS = 6  # of one run; then it may come to its end


@register_network("draws", sees="vectors")
def draws(request):
    return nn.Sequential(nn.Linear(request.obs_shape[0], 8), nn.Tanh(), nn.Dropout(0.3))


def buffers(*kinds):
    """Return flags for a queue and other buffers, so small that they drop unrolls within a run."""
    parts = [{"type": "queue", "capacity": 4}, *kinds]
    share = 1 / len(parts)
    parameters = [{**part, "sample_ratio": share} for part in parts]
    return (f"--replay_parameters={json.dumps(parameters)}", "--lr_scheduler_steps=200")


STANDARD = {"type": "standard", "capacity": 8}
ATTENTIVE = {"type": "attentive", "capacity": 10}
ELITE = {"type": "elite", "capacity": 10}
INSERTION = {**ELITE, "insert_strategy": "elite_insertion", "elite_batch_size": 4}
PRIORITISED = {"type": "prioritised", "capacity": 9, "alpha": 0.9}
LEAST_DRAWN = {"type": "least_drawn", "capacity": 7}
RESERVOIR = {**STANDARD, "reservoir": True}
ALL = buffers(STANDARD, ATTENTIVE, INSERTION, RESERVOIR)
CIRCULAR = {"type": "circular", "capacity": 8, "sample_ratio": 1.0, "uses": 3}
IMPACT = ("--algorithm=impact", f"--replay_parameters={json.dumps([CIRCULAR])}")
MEMORY = ("--use_lstm=True", "--lstm_size=4", "--burn_in_steps=2")

MIXES = {
    "queue": buffers(),
    "standard": buffers(STANDARD),
    "attentive": buffers(ATTENTIVE),
    "elite": buffers(ELITE),
    "prioritised, least drawn": buffers(PRIORITISED, LEAST_DRAWN),
    "circular, with a target network": IMPACT,
    "circular, with a target network and memory": (*IMPACT, *MEMORY),
    "all four, elite insertion, reservoir": ALL,
    "all four, with memory": (*ALL, *MEMORY),
    "all four, with memory, two games": (
        *ALL, *MEMORY, "--use_task_id=True",
        "--env=tests.fakes:tests/Counting-v0,tests.fakes:tests/Owing-v0",
    ),
    "queue, a network that draws": (*buffers(), "--model=draws"),
    "all four, values of actions": (*ALL, "--algorithm=q_lambda", "--use_popart=False"),
    "all four, Pong": (*ALL, "--env=PongNoFrameskip-v4", "--model=nature", "--r_f_steps=3"),
}  # fmt: skip
FAST = (
    "queue", "prioritised, least drawn", "circular, with a target network", "all four, with memory",
    "queue, a network that draws",
)  # fmt: skip


def slow(names):
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """mix -> the product of an uninterrupted run until MORE_STEPS, and its passages of points."""

    @cache
    def of(mix):
        results = tmp_path_factory.mktemp("reference")
        outcome = begin(results, mix, steps=MORE_STEPS)
        assert outcome.status == 0
        assert outcome.updates >= 3 * PERIOD
        return product(only_run(results)), outcome.plan.hits

    return of


def begin(results, mix, lines=(), steps=STEPS):
    return train(results, *MIXES[mix], f"--environment_max_steps={steps}", lines=lines)


def go_on_after(results, outcome):
    """Put what a killed session left in the place of its files."""
    assert outcome.escaped is None
    if outcome.plan.left is not None:
        shutil.rmtree(results)
        results.mkdir()
        write_files(results, outcome.plan.left)


def session(results, mix, lines):
    """Begin a run, or resume it once it has a checkpoint, until STEPS."""
    if newest_checkpoint(results):
        return resume(results, f"--environment_max_steps={STEPS}", lines=lines)
    shutil.rmtree(results)
    results.mkdir()
    return begin(results, mix, lines)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mix", slow(MIXES))
def test_a_run_killed_again_and_again_anywhere_becomes_what_it_would_have_been(
    tmp_path, reference, mix, seed
):
    expected, hits = reference(mix)
    chance = random.Random(f"{mix} {seed}")
    results = tmp_path / "results"
    results.mkdir()
    kills = []
    while True:
        nth = chance.randint(1, hits.total() // 3)
        lines = [Fault(("*",), "kill", nth=nth)] if len(kills) < MAX_KILLS else []
        outcome = session(results, mix, lines)
        go_on_after(results, outcome)
        if outcome.plan.left is None:
            break
        kills.append((nth, outcome.plan.fired[0].point))
    assert outcome.status in (0, 2), kills  # 2: all these steps were done when it was last killed
    assert len(kills) > 1
    assert resume(results).status == 0, kills
    assert difference(expected, product(only_run(results))) == "", kills


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("point", ["learner.step", "save.after_replay", "save.after_pt"])
@pytest.mark.timeout(1200)
def test_a_run_killed_at_any_update_or_within_any_save_becomes_what_it_would_have_been(
    tmp_path, reference, mix, point
):
    expected, _ = reference(mix)
    lost, saved = [], 0
    for nth in range(1, 100):
        results = tmp_path / str(nth)
        results.mkdir()
        killed = begin(results, mix, [Fault((point,), "kill", nth=nth)])
        if killed.plan.left is None:
            break  # there were not so many
        go_on_after(results, killed)
        if newest_checkpoint(results):
            saved += 1
            status = resume(results).status
            found = difference(expected, product(only_run(results)))
            if status != 0 or found:
                lost.append(f"{point} {nth}: status {status} {found}")
    assert saved > 1
    assert not lost, "\n".join(lost)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("mix", ["all four, with memory", "all four, Pong"])
def test_a_real_process_killed_by_the_system_is_resumed_exactly(tmp_path, reference, mix):
    """The same again without any trick: SIGKILL, and the files as they are."""
    expected, hits = reference(mix)
    plan = json.dumps({"at": "*", "nth": hits.total() * 2 // 3, "do": "kill"})
    killed, output = run_program(
        tmp_path, *small(*MIXES[mix]), f"--environment_max_steps={MORE_STEPS}",
        timeout=HANGS_S, program=hurt_by(plan),
    )  # fmt: skip
    assert killed == -signal.SIGKILL, output
    status, output = run_program(
        tmp_path,
        "--op_mode=train_w_load",
        f"--load_model_url={only_run(tmp_path)}",
        timeout=HANGS_S,
    )  # fmt: skip
    assert status == 0, output
    assert difference(expected, product(only_run(tmp_path))) == ""
