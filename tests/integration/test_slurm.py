"""The scripts of docs/slurm.md, word for word, with programs that stand for those of Slurm."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from ritornello.agent.stored.checkpoint import load
from tests.deadlines import HANGS_S, wait_until
from tests.integration.commands import QUIET, ROOT, SMALL, records

pytestmark = [pytest.mark.process, pytest.mark.slow]
# Starts the command once for each task, passes signals on, ends with the highest status.
SRUN = """#!/bin/bash
trap 'kill -USR1 "${pids[@]}"' USR1
for ((i = 0; i < SLURM_NTASKS; i++)); do SLURM_PROCID=$i "$@" & pids+=($!); done
for pid in "${pids[@]}"; do
  while kill -0 $pid 2>/dev/null; do wait $pid; done
  wait $pid; status=$?; if ((status > highest)); then highest=$status; fi
done
exit $highest
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then echo localhost; echo elsewhere; else echo "$@" >> "$SLURM_LOG"; fi
"""


class FalseSlurm:
    """Runs a script of the page as jobs, one after the other, and keeps what it asks for."""

    def __init__(self, folder, tasks):
        self.run, self.jobs = folder / "run", []
        self._log, self._bin, self._tasks = folder / "scontrol.txt", folder / "bin", tasks
        self._log.write_text("")
        self._bin.mkdir()
        python = f'#!/bin/bash\nexec {sys.executable} "$@"\n'
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("python", python)):
            (self._bin / name).write_text(text)
            (self._bin / name).chmod(0o755)
        page = (ROOT / "docs" / "slurm.md").read_text("utf-8")
        script, on_several = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
        if tasks > 1:
            script = re.sub(r"(?m)^srun .*\n", lambda _: on_several, script)
        small = " ".join((*SMALL, *QUIET, "--environment_max_steps=100000000"))
        script = re.sub(r"--resume_or_start=\S+", f"--resume_or_start={self.run}", script)
        script = re.sub(r"--env=\w+-v4", small, script)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.script = script.replace("=29500", f"={server.getsockname()[1]}")
        assert self.script.count(str(self.run)) == self.script.count(small) == 1

    def start(self, ends_in_s=3600):
        """Begin the next job."""
        environment = {
            **os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}", "SLURM_LOG": self._log,
            "SLURM_JOB_ID": "17", "SLURM_NTASKS": str(self._tasks), "SLURM_JOB_NODELIST": "[a-b]",
            "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_END_TIME": str(int(time.time()) + ends_in_s),
        }  # fmt: skip
        job = subprocess.Popen(
            ["bash", "-c", self.script], env=environment, cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.jobs.append(job)
        return job

    def start_and_train(self, ends_in_s=3600):
        """Begin the next job, and wait until it has made an update."""
        before, job = self.updates(), self.start(ends_in_s)
        wait_until(lambda: self.updates() > before, "it trains", job)
        return job

    def updates(self):
        if not (self.run / "metrics.jsonl").exists():
            return 0
        return max((each["updates"] for each in records(self.run)), default=0)

    def end(self, job):
        """Wait for the end of a job; return what it asked of Slurm, and the update it saved."""
        output, _ = job.communicate(timeout=HANGS_S)
        asked = self._log.read_text().splitlines()
        assert job.returncode == (130 if asked else 0), output
        self._log.write_text("")
        saved = load(self.run).updates
        assert saved == self.updates() > 0, output
        assert output.count("stopping: saving a checkpoint") == len(asked)
        return asked, saved


@pytest.fixture
def slurm_of(tmp_path):
    made = []

    def make(tasks):
        made.append(FalseSlurm(tmp_path, tasks))
        return made[0]

    yield make
    for job in made[0].jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def learners(job):
    """The processes of the learners of a job, by their ranks."""
    family = psutil.Process(job.pid).children(recursive=True)
    found = [each for each in family if "main.py" in each.cmdline()]
    return sorted(found, key=lambda each: each.environ().get("RANK", ""))


def test_a_job_on_one_machine_ends_in_time_and_asks_for_the_next(slurm_of):
    slurm, began_s = slurm_of(tasks=1), time.monotonic()
    job = slurm.start_and_train()
    start_s = int(time.monotonic() - began_s)  # longer on a busy machine
    job.send_signal(signal.SIGUSR1)
    asked, first = slurm.end(job)
    assert asked == ["requeue 17"]
    asked, second = slurm.end(slurm.start_and_train(ends_in_s=40 + 3 * start_s))
    assert asked == ["requeue 17"]
    assert second > first
    slurm.script = slurm.script.replace("max_steps=100000000", "max_steps=1")
    assert slurm.end(slurm.start()) == ([], second)


@pytest.mark.parametrize("told", ["the script", "learner 1"])
def test_learners_on_several_machines_stop_at_one_update_and_go_on_together(slurm_of, told):
    slurm = slurm_of(tasks=2)
    saved = []
    for _ in range(2):
        job = slurm.start_and_train()
        if told == "the script":
            job.send_signal(signal.SIGUSR1)
        else:
            learners(job)[1].terminate()
        asked, update = slurm.end(job)
        assert asked == ["requeue 17"]
        saved.append(update)
        (last,) = (slurm.run / "metrics-rank1.jsonl").read_text("utf-8").splitlines()[-1:]
        assert f'"updates": {update},' in last
    assert saved[0] < saved[1]
