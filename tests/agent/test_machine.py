import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ritornello.agent import machine
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from tests.house import ROOT


def choose(*, is_image=True, task_count=1, **flags):
    flags = Flags(**{"device": "cpu", **flags})
    return machine.choose(flags, is_image=is_image, task_count=task_count)


def test_what_is_given_is_taken_and_what_is_not_is_chosen_with_a_reason(monkeypatch):
    monkeypatch.setattr(machine, "cpu_count", lambda: 6)
    chosen = choose()
    assert (chosen.worker_count, chosen.envs_per_worker, chosen.learner_threads) == (6, 8, 6)
    assert len(chosen.reasons) == 5
    given = choose(
        worker_count=3,
        envs_per_worker=2,
        learner_thread_count=1,
        precision="fp32",
        inference="worker",
    )
    assert (given.worker_count, given.envs_per_worker, given.learner_threads) == (3, 2, 1)
    assert given.reasons == ()


def test_a_worker_runs_where_a_container_forbids_to_choose_its_core(monkeypatch):
    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    machine.stay_on_core(0)


def test_workers_stay_on_cores_only_if_there_is_one_for_each(monkeypatch):
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    assert choose().pin_workers
    assert not choose(worker_count=2).pin_workers
    assert not choose(reproducible=True).pin_workers


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no such call on this system")
def test_a_process_stays_on_one_of_its_own_cores():
    own = sorted(os.sched_getaffinity(0))
    try:
        for index in (0, 1, len(own) + 1):
            os.sched_setaffinity(0, own)
            machine.stay_on_core(index)
            assert os.sched_getaffinity(0) == {own[index % len(own)]}
    finally:
        os.sched_setaffinity(0, own)


@pytest.mark.parametrize("is_faster", [False, True])
def test_bf16_is_chosen_where_the_processor_is_faster_in_it_and_only_for_images(
    monkeypatch, is_faster
):
    monkeypatch.setattr(machine, "bf16_is_faster", lambda: is_faster)
    expected = torch.bfloat16 if is_faster else torch.float32
    assert choose().torso_dtype == choose().acting_format.dtype == expected
    assert choose(is_image=False).torso_dtype == torch.float32
    assert choose(precision="bf16").torso_dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("device", "precision", "amx", "learner", "actor"),
    [
        ("cpu", "bf16", True, True, True),
        ("cpu", "bf16", False, False, False),
        ("cpu", "fp32", True, True, False),
        ("cpu", "fp32", False, True, False),
        ("cuda", "bf16", False, True, False),
    ],
)
def test_kernels_are_in_nhwc_order_where_that_was_measured_to_be_faster(
    monkeypatch, device, precision, amx, learner, actor
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": amx}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    chosen = choose(device=device, precision=precision)
    assert chosen.learner_channels_last is learner
    assert chosen.acting_format.channels_last is actor


@pytest.mark.parametrize(
    ("offers", "vendor", "is_faster"),
    [
        ({"avx512_bf16": True}, "AuthenticAMD", True),
        ({"avx512_bf16": True, "amx_bf16": False}, "GenuineIntel", False),
        ({"avx512_bf16": True, "amx_bf16": True}, "GenuineIntel", True),
        ({"avx512_bf16": False}, "AuthenticAMD", False),
        ({"avx512_bf16": False}, "GenuineIntel", False),
    ],
)
def test_bf16_is_faster_on_amd_and_with_matrix_units_only(
    monkeypatch, tmp_path, offers, vendor, is_faster
):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: any\n")
    monkeypatch.setattr(machine, "CPUINFO", str(cpuinfo))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: offers, raising=False)
    assert machine.bf16_is_faster() is is_faster


def test_a_reproducible_run_does_not_depend_on_the_number_of_cores(monkeypatch):
    chosen = []
    for cores in (1, 64):
        monkeypatch.setattr(machine, "cpu_count", lambda cores=cores: cores)
        chosen.append(choose(reproducible=True))
    one, other = chosen
    assert one.worker_count == other.worker_count
    assert one.learner_threads == other.learner_threads == 1


def test_a_server_has_a_core_of_its_own_beside_a_gpu_and_workers_act_unless_it_is_asked_for(
    monkeypatch,
):
    monkeypatch.setattr(machine, "cpu_count", lambda: 8)
    chosen = choose()
    assert (chosen.inference, chosen.worker_count) == ("worker", 8)
    assert any("inference in the workers" in reason for reason in chosen.reasons)
    assert choose(inference="server").inference == "server"
    assert choose(model="resnet").inference == "worker"

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    chosen = choose(device="auto")
    assert (chosen.inference, chosen.worker_count) == ("worker", 7)
    assert choose(device="auto", model="resnet").inference == "server"
    assert choose(device="auto", model="resnet", reproducible=True).inference == "worker"
    chosen = choose(device="auto", inference="server")
    assert (chosen.inference, chosen.worker_count) == ("server", 6)


def test_a_server_is_refused_where_a_run_must_be_reproducible():
    with pytest.raises(ConfigError, match="--inference=server.*--reproducible=True"):
        choose(inference="server", reproducible=True)


@pytest.mark.parametrize(("games", "envs"), [(1, 8), (2, 8), (3, 9), (6, 9), (7, 14), (62, 31)])
def test_several_games_get_equally_many_environments(monkeypatch, games, envs):
    monkeypatch.setattr(machine, "cpu_count", lambda: 2)
    chosen = choose(task_count=games)
    assert (chosen.worker_count, chosen.envs_per_worker) == (2, envs)
    assert any(f"{2 * envs // games} play each game" in r for r in chosen.reasons) == (games > 1)
    assert choose(task_count=games, envs_per_worker=5).envs_per_worker == 5  # said is said
    assert choose(task_count=6, reproducible=True).envs_per_worker == 6


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="sees no CUDA device"):
        choose(device="cuda")


IN_THE_BACKGROUND = """
import os
from ritornello.agent.machine import give_way, go_to_background
go_to_background()
go_to_background()  # twice is as good as once
group = open("/proc/self/autogroup").read().split()[-1]
learner = os.nice(0)
give_way()  # as a worker does
print(learner, os.nice(0), group, flush=True)
os._exit(0)  # on a busy machine, tidying up would take long in the background
"""
AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.process
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="no groups of sessions on this system")
@pytest.mark.parametrize("own_session", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_in_the_background_a_process_gives_way_and_with_it_only_a_session_of_its_own(own_session):
    before = AUTOGROUP.read_text()
    result = subprocess.run(
        [sys.executable, "-c", IN_THE_BACKGROUND], capture_output=True, text=True, check=True,
        cwd=ROOT, start_new_session=own_session,
    )  # fmt: skip
    learner, worker, group = result.stdout.split()
    assert (learner, worker) == ("15", "19")
    assert AUTOGROUP.read_text() == before
    assert (group == "19") is own_session
