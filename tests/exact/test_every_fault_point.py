"""Every declared fault point is passed by some run: nothing is hurt only in theory."""

import json
import re

import pytest
import torch

from ritornello import main
from ritornello.core import faults
from ritornello.core.faults import POINTS
from tests.exact.runs import one_process, only_run, resume, small, train

pytestmark = [pytest.mark.usefixtures("one_process"), pytest.mark.slow, pytest.mark.process]
__all__ = ["one_process"]

# What the process itself does not see: points of workers and of the server, each failing once.
ELSEWHERE = [
    {"at": "ring.commit", "who": "worker 0", "nth": 3, "do": "raise"},
    {"at": "channel.receive", "who": "worker 1", "nth": 2, "do": "raise"},
    {"at": "mailbox.ask", "who": "worker 2", "nth": 5, "do": "raise"},
    {"at": "mailbox.answer", "who": "server", "nth": 30, "do": "raise"},
]


@pytest.fixture
def plans(monkeypatch):
    """The plans that are loaded, the newest last."""
    loaded, load = [], faults.load

    def note(plan):
        loaded.append(plan)
        load(plan)

    monkeypatch.setattr(faults, "load", note)
    yield loaded
    monkeypatch.undo()
    faults.load(None)
    torch.autograd.set_detect_anomaly(False)


def test_every_point_is_passed_by_some_run(tmp_path, plans):
    serial, parallel = tmp_path / "serial", tmp_path / "parallel"
    serial.mkdir()
    first = train(serial, "--save_model_every_nsteps=60", "--keep_checkpoints=1")
    second = resume(serial)
    assert (first.status, second.status) == (0, 0)
    passed = set(first.plan.hits) | set(second.plan.hits)

    status = main.main([
        *small("--reproducible=False", "--worker_count=3", "--envs_per_worker=2"),
        "--environment_max_steps=3000", "--save_model_period=1000", f"--results_dir={parallel}",
        "--inference=server", "--debug=True", f"--debug_faults={json.dumps(ELSEWHERE)}",
        "--log_interval_s=1",
    ])  # fmt: skip
    assert status == 0
    passed |= set(plans[-1].hits)
    log = (only_run(parallel) / "train.log").read_text(encoding="utf-8")
    said = set(re.findall(r"InjectedFault: a fault was asked for at ([a-z_.]+)", log))
    assert said == {line["at"] for line in ELSEWHERE}
    assert set(POINTS) == passed | said
