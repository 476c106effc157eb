"""Stands in for main.py in a search: "trains" 1000 steps at once, with a return that lr decides.

What else it does is told by the discount: 0.5 fails, 0.6 waits for a signal at half-time, 0.7 comes
to its end but says so with a failure.
"""

import json
import pathlib
import signal
import sys

ARGUMENTS = dict(item[2:].partition("=")[::2] for item in sys.argv[1:])
FLAGS = json.loads(pathlib.Path(ARGUMENTS["multi_train_overrides"]).read_text())
GAMMA = FLAGS.get("gamma", 0.99)
STOPS = [signal.SIGINT, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)


def record(run, steps):
    values = {"episode/return_mean": FLAGS["lr"] * steps + FLAGS["seed"]}
    line = {"agent_steps": steps, "frames": steps, "updates": steps // 10, "episodes": 1}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({**line, "wall_s": steps / 100, "values": values}) + "\n")


def main():
    if GAMMA == 0.5:
        return 1
    resumed = ARGUMENTS["op_mode"] == "train_w_load"
    if resumed:
        run = pathlib.Path(ARGUMENTS["load_model_url"])
    else:
        run = pathlib.Path(ARGUMENTS["results_dir"]) / "Fake-v0_20260101-000000"
        (run / "checkpoints").mkdir(parents=True)
        (run / "checkpoints" / "update_000000001.pt").write_text("weights")
    for steps in range(600 if resumed else 100, 1001, 100):
        record(run, steps)
        if steps == 500 and GAMMA == 0.6:
            signal.sigwait(STOPS)
            (run / "summary.json").write_text('{"reason": "interrupted"}')
            return 130
    (run / "summary.json").write_text('{"reason": "steps"}')
    return 1 if GAMMA == 0.7 else 0


sys.exit(main())
