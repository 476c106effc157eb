"""How long a run of two learners goes on when one of them is lost.

From the signal that learner 1 gets to the end of the last process of the run, its save included.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.programs import undisturbed
from benchmarks.scaling.ray_cluster import end_all
from benchmarks.scaling.training import Records
from ritornello.core.process_death import environment_for_child

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
MOST_S = 400.0


def lose(how: str, timeout_s: float) -> dict[str, Any]:
    """Lose learner 1 of a run, and return what follows.

    Args:
      how: killed or stopped.
      timeout_s: --learner_timeout.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, str(ROOT / "main.py"), "--env=CartPole-v1", "--seed=1"),
            *("--learner_count=2", "--worker_count=1", f"--learner_timeout={timeout_s:g}"),
            *(f"--results_dir={folder}", "--run_name=bench", "--log_interval_s=0.5"),
            *("--tensorboard=False", "--charts=False"),
        ]
        with open(Path(folder) / "output", "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment_for_child(), stdout=output, stderr=output
            )
        family: list[psutil.Process] = []
        try:
            records = Records(process, Path(folder) / "bench" / "metrics.jsonl")
            while not records.next()["updates"]:
                pass
            own = psutil.Process(process.pid)
            family = own.children(recursive=True)
            learners = [
                child
                for child in own.children()
                if any(word.endswith("main.py") for word in child.cmdline())
            ]
            learners.sort(key=lambda child: child.create_time())
            began = time.monotonic()
            learners[1].send_signal(SIGNALS[how])
            status = process.wait(MOST_S)
            psutil.wait_procs(family, MOST_S)
            ended_s = time.monotonic() - began
            said = (Path(folder) / "output").read_text("utf-8").splitlines()
        finally:
            with undisturbed():
                process.kill()
                process.wait()
                end_all(family)
    return {
        "learner_1": how,
        "learner_timeout_s": timeout_s,
        "ended_s": round(ended_s, 2),
        "status": status,
        "sentence": next((line for line in said if "the run failed" in line), ""),
    }
