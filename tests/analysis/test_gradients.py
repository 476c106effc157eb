import csv

from ritornello.analysis.gradients import main, recorded
from ritornello.metrics.record import Record
from tests.live.builders import write_records

VALUES = {
    "gradient/torso_net.linear1/norm": 3.0,
    "gradient/torso_net.linear1/zero_fraction": 0.25,
    "gradient/policy_head/norm": 4.0,
    "grad/norm_before_clip": 5.0,
    "loss/total": 1.0,
}


def test_what_a_run_recorded_is_drawn_and_written(tmp_path):
    folder = tmp_path / "run"
    records = [
        Record(agent_steps=100 * n, values={**VALUES, "gradient/policy_head/norm": float(n)})
        for n in (1, 2, 3)
    ]
    write_records(folder, [*records, Record(agent_steps=300, values={"loss/total": 1.0})])
    assert [steps for steps, _ in recorded(folder)] == [100, 200, 300]
    assert main([f"--load_model_url={folder}"]) == 0
    with (folder / "analysis" / "gradients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["norm"] for row in rows if row["layer"] == "policy_head"] == ["1", "2", "3"]
    assert rows[0]["update_ratio"] == ""
    assert (folder / "analysis" / "gradients.png").read_bytes().startswith(b"\x89PNG")
