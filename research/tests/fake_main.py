"""Stands in for main.py: "trains" 100 steps per hundredth of a second.

What it does is told by the discount, a flag like another: 0.4 hangs, 0.5 fails, 0.6 waits for a
signal at half-time, 0.7 is killed at half-time, 0.8 fails only in its first session, 0.9 ignores
SIGTERM and SIGINT.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time

from ritornello.core.process_death import end_with_starter

FLAGS = dict(argument[2:].partition("=")[::2] for argument in sys.argv[1:])
STEPS = int(FLAGS["environment_max_steps"])
GAMMA = float(FLAGS.get("gamma", 0.99))
stopped = False


def stop(number: int, frame: object) -> None:
    global stopped
    stopped = True


def save(run: pathlib.Path, steps: int) -> None:
    record = {
        "agent_steps": steps,
        "frames": steps,
        "updates": steps // 10,
        "episodes": 1,
        "wall_s": steps / 1000,
        "values": {"episode/return_mean": steps / 10, "episode/return_best": steps / 5}
        | {"system/own_cpu_share": 0.5, "system/cpu_percent": 55 if steps <= 250 else 90},
    }
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")
    (run / "checkpoints" / f"update_{steps // 10:09d}.pt").write_text("weights")


def say(*parts: str) -> None:
    sys.stdout.write(" ".join(parts) + "\n")
    sys.stdout.flush()


def main() -> int:
    end_with_starter()
    say("flags", json.dumps(FLAGS))
    if GAMMA == 0.4:
        time.sleep(300)
    if GAMMA == 0.5:
        say("the environment cannot be made")
        return 1
    handler = signal.SIG_IGN if GAMMA == 0.9 else stop
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)
    resumed = FLAGS["op_mode"] == "train_w_load"
    if resumed:
        run = pathlib.Path(FLAGS["load_model_url"])
        done = 10 * max(int(path.stem[7:]) for path in run.glob("checkpoints/*.pt"))
        info = json.loads((run / "run.json").read_text())
        info["resumed"] = [*info.get("resumed", []), session("bbbbbbb")]
    else:
        name = f"{FLAGS['env']}_{time.time_ns()}"
        run, done = pathlib.Path(FLAGS["results_dir"]) / name, 0
        (run / "checkpoints").mkdir(parents=True)
        info = session("aaaaaaa")
    flags = {**FLAGS, "seed": int(FLAGS["seed"]), "pid": os.getpid()}
    (run / "flags.json").write_text(json.dumps(flags))
    (run / "run.json").write_text(json.dumps(info))
    while done < STEPS and not stopped:
        time.sleep(0.01)
        done += 100
        save(run, done)
        at_half = done == STEPS // 2 and not resumed
        if at_half and GAMMA == 0.8:
            say("something broke")
            return 1
        if at_half and GAMMA == 0.7:
            os.kill(os.getpid(), signal.SIGKILL)
        # Not for ever, so that nothing is left behind by a test that fails.
        limit = time.monotonic() + 300.0
        while at_half and GAMMA in (0.6, 0.9) and not stopped and time.monotonic() < limit:
            (run / "waits").touch()
            time.sleep(0.01)
    return 130 if stopped else 0


def session(commit: str) -> dict[str, object]:
    machine = {"cpu": "abacus", "cores_usable": 2, "gpus": []}
    source = {"commit": commit, "dirty": False}
    return {"source": source, "machine": machine, "started": "now", "command_line": sys.argv}


if __name__ == "__main__":
    sys.exit(main())
