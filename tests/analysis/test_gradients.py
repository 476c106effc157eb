import csv
import json

from ritornello.analysis.gradients import main, recorded

VALUES = {
    "gradient/torso_net.linear1/norm": 3.0,
    "gradient/torso_net.linear1/zero_fraction": 0.25,
    "gradient/policy_head/norm": 4.0,
    "grad/norm_before_clip": 5.0,
    "loss/total": 1.0,
}


def write_records(folder, count=3):
    folder.mkdir()
    lines = [
        {
            "agent_steps": 100 * n,
            "frames": 400 * n,
            "updates": n,
            "episodes": 0,
            "wall_s": float(n),
            "values": {**VALUES, "gradient/policy_head/norm": float(n)},
        }
        for n in range(1, count + 1)
    ]
    lines.append({**lines[-1], "values": {"loss/total": 1.0}})  # a record without an update
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def test_what_a_run_recorded_is_drawn_and_written(tmp_path):
    folder = write_records(tmp_path / "run")
    assert [steps for steps, _ in recorded(folder)] == [100, 200, 300]
    assert main([f"--load_model_url={folder}"]) == 0
    with (folder / "analysis" / "gradients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["norm"] for row in rows if row["layer"] == "policy_head"] == ["1", "2", "3"]
    assert rows[0]["update_ratio"] == ""
    assert (folder / "analysis" / "gradients.png").read_bytes().startswith(b"\x89PNG")
