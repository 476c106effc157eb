"""Stands in for multi_train.py: a sequence of two runs, of which it does one in each session.

fake_main.py trains them, under the seed of an agent of a population.

What else it does is told by the game: Wait-v0 waits for SIGTERM in its first session, as all agents
of a population save then; Fail-v0 fails always; Hang-v0 writes nothing until SIGTERM, and then one
last record. Seen-v0 ends no training before a file `seen` is in its folder. Without a game each run
has one of its own.
"""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
import time

TEXT = sys.argv[1:]
OURS = dict(a[2:].partition("=")[::2] for a in TEXT[: TEXT.index("--")])
sys.stdout.write(f"arguments: {json.dumps(TEXT)}\n")
sys.stdout.flush()
if "resume" in OURS:
    folder = pathlib.Path(OURS["resume"])
    data = json.loads((folder / "sequence.json").read_text())
else:
    folder = pathlib.Path(OURS["results_dir"]) / "population_20240101-000000"
    folder.mkdir(parents=True, exist_ok=True)
    runs = [
        {
            "name": f"00{n}_r_seed1",
            "group": f"r {n}",
            "seed": 1,
            "flags": {"env": OURS.get("env", f"Own-v{n}"), "environment_max_steps": 500},
        }
        for n in (1, 2)
    ]
    data = {"format_version": 1, "name": "population", "arguments": [], "runs": runs}
if "Fail-v0" in str(data):
    sys.exit("no agent can be made")
if "Hang-v0" in str(data):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    (folder / "sequence.json").write_text(json.dumps(data))
    signal.sigwait([signal.SIGTERM])
    run = folder / data["runs"][0]["name"] / "Hang-v0_20240101-000000"
    run.mkdir(parents=True, exist_ok=True)
    with open(run / "metrics.jsonl", "a") as file:
        file.write("the last one\n")
    sys.exit(1)
waits = "Wait-v0" in str(data) and "resume" not in OURS
if waits:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    (folder / "ready").write_text("")
    signal.sigwait([signal.SIGTERM])
for run in data["runs"]:
    if run.get("status") != "done":
        run["status"] = "running"
        (folder / "sequence.json").write_text(json.dumps(data))
        program = pathlib.Path(__file__).with_name("fake_main.py")
        flags = {"op_mode": "train", "seed": 1_000_001, **run["flags"]}
        flags["results_dir"] = folder / run["name"]
        command = [f"--{name}={value}" for name, value in flags.items()]
        subprocess.run([sys.executable, str(program), *command], check=True)
        while "Seen-v0" in str(data) and not (folder / "seen").exists():
            time.sleep(0.01)
        run["status"] = "done"
        break
(folder / "sequence.json").write_text(json.dumps(data))
(folder / "population.md").write_text(f"{sum(r.get('status') == 'done' for r in data['runs'])}")
sys.exit(1 if any(run.get("status") != "done" for run in data["runs"]) else 0)
