"""Injects faults into real trainings: python -m tests.chaos --minutes=60 --seed=1 (make chaos).

Each scenario trains CartPole, hurts the run at a random moment, looks at the exit status and the
files, and ends with a resume, which has to train on and end with status 0. The seed decides all of
it: `--only=kill-worker --first=17 --scenarios=1` plays scenario 17 again. Linux only.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.preemption import Preemption
from tests.chaos.session import Session, Stuck, damage_of, is_temporary, updates_of

SMALL = (
    "--env=CartPole-v1", "--seed=3", "--worker_count=2", "--envs_per_worker=2", "--r_f_steps=10",
    "--batch_size=4", "--feature_out_layer_size=16", "--training_fill_in_factor=0.01",
    "--learner_thread_count=1", "--tensorboard=False", "--charts=False", "--log_interval_s=0.25",
    "--environment_max_steps=100000000",
)  # fmt: skip
KINDS = {
    "workers": (),
    "server": ("--inference=server",),
    "reproducible": ("--reproducible=True",),
    "replay": ("--save_replay=True",),
    "memory": ("--use_lstm=True",),
}
NAMES = [*FAULTS, "preempted"]
SAVE_PERIODS = (10, 20, 40)
RESUMED_UPDATES = 1  # that a resume has to add, on a busy machine too


class Scenario:
    """One fault, from the first session to the end of the resume."""

    def __init__(self, folder, fault, rng):
        """Draw the configuration and the moment; start nothing."""
        self.folder, self.fault, self.rng = folder, fault, rng
        self.kind = rng.choice(tuple(KINDS))
        self.period = rng.choice(SAVE_PERIODS)
        self.moment = rng.randint(1, 150)  # updates
        self.broken: list[str] = []

    def play(self):
        """Return the promises that were broken, in words."""
        self.folder.mkdir(parents=True)
        saving = (f"--save_model_period={self.period}", "--keep_checkpoints=1000")
        flags = [*SMALL, *KINDS[self.kind], *saving, *self.fault.flags]
        session = Session(self.folder, 1, flags)
        try:
            self._hurt(session)
            self._look(session)
            if session.checkpoints():
                self._resume(session)
        except Stuck as stuck:
            self.broken.append(f"alive: {stuck}")
        finally:
            session.kill()
        return self.broken

    def _hurt(self, session):
        if self.fault.name == "signal-at-start":
            session.wait_folder()
        else:
            session.wait_updates(self.moment)
        self.fault.do(session, self.rng)
        status = session.status()
        if status not in self.fault.statuses:
            self.broken.append(f"status: {status}, expected one of {self.fault.statuses}")

    def _look(self, session):
        """Look at what the session has left."""
        if left := session.left_behind():
            self.broken.append(f"clean: {len(left)} processes are left: {left[0]}")
        checkpoints = session.checkpoints()
        self.broken += [f"finite: {text}" for path in checkpoints if (text := damage_of(path))]
        newest = updates_of(checkpoints[-1]) if checkpoints else 0
        missing = session.updates() - newest
        allowed = 0 if self.fault.saves else self.period
        if missing > allowed:
            self.broken.append(f"kept: {missing} updates are lost, expected {allowed} at most")
        if self.fault.saves:
            files = [path.name for path in session.results.rglob("*") if is_temporary(path)]
            if files:
                self.broken.append(f"clean: {files[0]} is left")

    def _resume(self, session):
        before = updates_of(session.checkpoints()[-1])
        resumed = Session(
            self.folder, 2,
            [
                "--op_mode=train_w_load", f"--load_model_url={session.run}",
                "--training_seconds=10",
            ],
        )  # fmt: skip
        try:
            status = resumed.status()
        finally:
            left = resumed.left_behind()
            resumed.kill()
        if status != 0:
            self.broken.append(f"resumes: status {status}: {resumed.output}")
        if left:
            self.broken.append(f"clean: {len(left)} processes are left by the resume: {left[0]}")
        if resumed.updates() < before + RESUMED_UPDATES:
            self.broken.append(f"resumes: update {resumed.updates()} after {before}")
        own = [each["updates"] for each in resumed.records() if each["updates"] > before]
        if own != sorted(own) or (self.kind == "reproducible" and len(set(own)) != len(own)):
            self.broken.append("continuous: records of the resume do not follow one another")


def scenario_of(name, folder, rng):
    """Return the scenario of a fault, or a run that is taken away again and again."""
    if name in FAULTS:
        return Scenario(folder, FAULTS[name], rng)
    kinds = {**KINDS, "learners": ("--learner_count=2", "--worker_count=1")}
    kind = rng.choice(tuple(kinds))
    return Preemption(folder, rng, kind, [*SMALL, *kinds[kind]])


def main():
    """Play scenarios until the time or their number is over; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--scenarios", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help=f"faults with commas: {', '.join(NAMES)}")
    options = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, which a child inherits
    names = options.only.split(",") if options.only else NAMES
    folder = Path(tempfile.mkdtemp(prefix="chaos_"))
    until, held, broken = time.monotonic() + 60 * options.minutes, Counter[str](), Counter[str]()
    for number in range(options.first, options.first + options.scenarios):
        if time.monotonic() >= until:
            break
        rng = random.Random(f"{options.seed} {number}")
        name = names[number % len(names)]
        scenario = scenario_of(name, folder / f"{number:04d}_{name}", rng)
        problems = scenario.play()
        (broken if problems else held)[name] += 1
        left_s = max(0.0, until - time.monotonic())
        told = "; ".join(problems) or "held"
        print(f"{number:4} {name:20} {scenario.kind:12} {told} ({left_s / 60:.0f} min left)")
        if not problems:
            shutil.rmtree(scenario.folder, ignore_errors=True)
    print(f"{sum(held.values())} scenarios held, {sum(broken.values())} did not; {folder}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
