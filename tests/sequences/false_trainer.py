"""Stands in for main.py: "trains" 1000 steps at once, with a return that lr decides.

Of its environments Fail-v0 fails, Few-v0 makes no update, a game of Endless-v0 is never over,
Wait-v0 waits at half-time for SIGINT, and then saves, and of Job-v0 the job ends at half-time.
"""

import json
import pathlib
import signal
import sys

ARGUMENTS = dict(item[2:].partition("=")[::2] for item in sys.argv[1:])
FLAGS = json.loads(pathlib.Path(ARGUMENTS["multi_train_overrides"]).read_text())
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def record(run, steps):
    of_lr = FLAGS.get("lr", 0.01) * steps
    values = {
        "episode/return_mean": of_lr + FLAGS.get("seed", 0),
        "episode/return_best": of_lr + 10,
    }
    if FLAGS["env"] == "Endless-v0":
        values = {}
    updates = 0 if FLAGS["env"] == "Few-v0" else steps // 10
    line = {"agent_steps": steps, "frames": 4 * steps, "updates": updates, "episodes": 1}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({**line, "wall_s": steps / 100, "values": values}) + "\n")


def main():
    print("arguments:", json.dumps(ARGUMENTS))  # noqa: T201
    env, mode = FLAGS["env"], ARGUMENTS["op_mode"]
    if env == "Fail-v0":
        return 1
    if mode == "test":
        return 0
    resumed = mode == "train_w_load"
    if resumed:
        run = pathlib.Path(ARGUMENTS["load_model_url"])
    else:
        run = pathlib.Path(ARGUMENTS["results_dir"]) / f"{env}_20240101-000000"
        (run / "checkpoints").mkdir(parents=True)
        (run / "flags.json").write_text(json.dumps(FLAGS))
        (run / "run.json").write_text("{}")
    stops = env in ("Wait-v0", "Job-v0") and not resumed
    for steps in range(400 if resumed else 100, 600 if stops else 1001, 100):
        record(run, steps)
    if stops:
        (run / "ready").write_text("")
        if env == "Wait-v0":
            signal.sigwait([signal.SIGINT])
        (run / "checkpoints" / "update_000000030.pt").write_text("clean")
        return 130
    return int(env == "Few-v0")


sys.exit(main())
