"""A false scheduler: one command line again and again, each time ended by signals at random."""

import contextlib
import signal

import psutil

from ritornello.agent.stored.checkpoint import load
from ritornello.core.errors import CheckpointError
from tests.chaos.faults import INTERRUPTED
from tests.chaos.session import Session, Stuck, is_temporary

JOBS = (4, 8)  # of one run
EARLY = 0.2  # of the jobs are ended while they start
KILLED = 0.5  # of the jobs are killed after a time of grace, or without any
SENT = ((signal.SIGUSR1,), (signal.SIGTERM,), (signal.SIGUSR1, signal.SIGTERM), ())
BEFORE_HANDLERS = tuple(-number for number in (signal.SIGUSR1, signal.SIGTERM))


class Preemption:
    """A run that is taken away several times. `play` is that of a `Scenario`."""

    def __init__(self, folder, rng, kind, flags):
        """Draw the save period and the number of jobs; start nothing."""
        self.folder, self.rng, self.kind = folder, rng, kind
        self.period = rng.choice((20, 200))
        self.jobs = rng.randint(*JOBS)
        self.run = folder / "results" / "run"
        self.command = [
            *flags, f"--resume_or_start={self.run}", f"--save_model_period={self.period}",
        ]  # fmt: skip
        self.broken: list[str] = []

    def play(self):
        """Return the promises that were broken, in words."""
        self.folder.mkdir(parents=True)
        for number in range(1, self.jobs + 1):
            before = self._newest()
            session = Session(self.folder, number, self.command)
            try:
                self._end(session, 0 if before is None else before.updates)
                self._look(session, number, before)
            except Stuck as stuck:
                self.broken.append(f"alive: job {number}: {stuck}")
            finally:
                session.kill()
        return self.broken

    def _end(self, session, before):
        """Send what a scheduler sends, at some moment."""
        rng = self.rng
        if rng.random() < EARLY:
            session.pause(rng.uniform(0.0, 8.0))
        else:
            session.wait_checkpoint(before + 1)
            session.pause(rng.uniform(0.0, 2.0))
        self._sent = rng.choice(SENT)
        self._is_killed = not self._sent or rng.random() < KILLED
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            for number in self._sent:
                session.send(number)
                session.pause(rng.uniform(0.0, 0.3))
            if self._is_killed:
                session.pause(rng.choice((0.0, 0.05, 0.5)) * rng.random())
                for process in session.processes():
                    process.kill()

    def _look(self, session, number, before):
        status, said = session.status(), f"job {number} ({self._sent}, killed {self._is_killed})"
        allowed = (INTERRUPTED, *BEFORE_HANDLERS, *(-signal.SIGKILL,) * self._is_killed)
        if status not in allowed:
            self.broken.append(f"status: {status} of {said}: {session.output}")
        if left := session.left_behind():
            self.broken.append(f"clean: {len(left)} processes are left by {said}: {left[0]}")
        after = self._newest()
        if after is None:
            if before is not None:
                self.broken.append(f"kept: no checkpoint after {said}")
            return
        run = after.path.parent.parent
        records = session.records_of(run)
        self._look_at_records(records, said)
        if before is not None and _counters(after) < _counters(before):
            self.broken.append(f"grows: {_counters(after)} after {_counters(before)}, {said}")
        last = max((record["updates"] for record in records), default=0)
        if last - after.updates > self.period:
            self.broken.append(f"kept: {last - after.updates} updates are lost by {said}")
        if status == INTERRUPTED and after.updates > (before.updates if before else 0):
            self._look_at_the_end(run, after, records[-1], said)

    def _look_at_records(self, records, said):
        for name in ("updates", "agent_steps", "episodes"):
            values = [record[name] for record in records]
            if values != sorted(values):
                self.broken.append(f"continuous: {name} of the records falls after {said}")
        learned = [record["updates"] for record in records if "loss/total" in record["values"]]
        if len(set(learned)) < len(learned):
            self.broken.append(f"continuous: a record is there twice after {said}")

    def _look_at_the_end(self, run, after, last, said):
        """Look at what a job has left that says that it has saved all."""
        if last["updates"] != after.updates:  # steps and games after it may be in the record
            self.broken.append(f"kept: {after.updates} is saved of {last['updates']}, {said}")
        games = len((run / "Scores.txt").read_text("utf-8").splitlines())
        # The last record of a reproducible run is that of its last update.
        if games < last["episodes"] or (games > last["episodes"] and self.kind != "reproducible"):
            self.broken.append(f"continuous: {games} games of {last['episodes']}, {said}")
        if self.kind == "replay" and not after.replay_path.exists():
            self.broken.append(f"kept: replay is not saved by {said}")
        if files := [path.name for path in run.rglob("*") if is_temporary(path)]:
            self.broken.append(f"clean: {files[0]} is left by {said}")

    def _newest(self):
        """Return what the next job goes on from; None: it starts the run."""
        for run in sorted(self.run.parent.glob("run*"), reverse=True):
            with contextlib.suppress(CheckpointError):
                return load(run)
        return None


def _counters(checkpoint):
    return checkpoint.updates, checkpoint.agent_steps
