import hashlib
import json
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import torch
from safetensors.torch import save as tensors_to_bytes

from ritornello.agent.stored import model_file
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.model_file import (
    FACTS,
    WEIGHTS,
    ShippedModel,
    find_model_folder,
    load_model,
    save_model,
)
from ritornello.core import faults
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.run_layout import FLAGS, RECORDS
from tests.agent.builders import make_small_model, make_spec
from tests.deadlines import HANGS_S
from tests.faulty import Fault, Plan

FLAG_VALUES = {"env": "Test-v0", "seed": 3, "results_dir": "/home/me", "device": "cuda"}


def facts():
    return {"env_spec": make_spec().to_dict(), "agent_steps": 1234, "updates": 56}


def write(folder, seed=5):
    weights = make_small_model(popart=True, seed=seed).state_dict()
    save_model(folder, weights, FLAG_VALUES, facts())
    return weights


def change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def vouch_for(folder):
    """Make the facts agree with whatever bytes the weights are."""
    change(folder / FACTS, sha256=hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest())


def test_a_model_comes_back_bit_for_bit_with_its_flags_and_counters(tmp_path):
    weights = write(tmp_path / "pong")
    model = load_model(tmp_path / "pong")
    assert isinstance(model, ShippedModel)
    assert model.path == tmp_path / "pong" / WEIGHTS
    loaded = model.state["learner"]["model"]
    assert set(loaded) == set(weights)
    for name, tensor in weights.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor), name
    assert model.state["tally"] == {"agent_steps": 1234, "updates": 56}
    assert model.state["env_spec"] == make_spec().to_dict()
    model.check_spec(make_spec())
    assert model.load_replay() is None


def test_a_model_folder_can_be_written_anew_but_the_folder_of_a_run_cannot(tmp_path):
    write(tmp_path / "pong", seed=1)
    weights = write(tmp_path / "pong", seed=2)
    loaded = load_model(tmp_path / "pong").state["learner"]["model"]
    assert torch.equal(loaded["policy_head.weight"], weights["policy_head.weight"])
    assert not list((tmp_path / "pong").glob(".*"))
    run = tmp_path / "run"
    run.mkdir()
    (run / FLAGS).write_text("{}")
    with pytest.raises(ConfigError, match="run holds flags.json"):
        write(run)
    assert [path.name for path in run.iterdir()] == [FLAGS]
    with pytest.raises(ConfigError, match="cannot be written to .*below.*Not a directory"):
        write(run / FLAGS / "below a file")
    with pytest.raises(ConfigError, match=r"flags.json \(it is a file\)"):
        write(run / FLAGS)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_new", [True, False])
def test_who_is_stopped_between_two_files_leaves_a_folder_that_is_refused_and_can_be_mended(
    tmp_path, is_new, count
):
    if not is_new:
        write(tmp_path, seed=1)
    (tmp_path / "README.md").write_text("mine")
    plan = Plan([Fault(("file.replace",), "eio", nth=count + 1)])
    with faults.loaded(plan), pytest.raises(ConfigError, match="Cannot write the folder"):
        write(tmp_path, seed=2)
    with pytest.raises(CheckpointError, match="has no" if is_new else "sha256"):
        load_model(tmp_path)
    write(tmp_path, seed=3)
    assert load_model(tmp_path).updates == 56
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md", FLAGS, FACTS, WEIGHTS
    ]  # fmt: skip


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_who_reads_a_model_that_is_being_replaced_gets_the_old_or_the_new_one(
    tmp_path, monkeypatch, nth
):
    monkeypatch.setattr(model_file, "REPLACED_WITHIN_S", HANGS_S)  # the writer may be slow
    write(tmp_path, seed=1)
    with ThreadPoolExecutor() as pool:
        reads = []

        class Reading(Plan):
            def _act(self, fault, point, tear):
                reads.append(pool.submit(load_model, tmp_path))
                wait(reads, 0.1)

        with faults.loaded(Reading([Fault(("file.replace",), "", nth=nth)])):
            new = write(tmp_path, seed=2)
        (read,) = reads
        weights = read.result().state["learner"]["model"]
    is_new = torch.equal(weights["policy_head.weight"], new["policy_head.weight"])
    assert is_new == (nth > 1), "the facts go first"


def test_what_is_made_with_a_model_goes_into_its_run_or_not_into_a_source(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    for path, home in ((run / "checkpoints" / "best.pt", run), (run / "copy.pt", run)):
        assert Checkpoint(path, {}).output_folder("results") == home
    write(tmp_path / "pong")
    assert load_model(tmp_path / "pong").output_folder("results") == Path("results", "pong")
    for name in ("a", "b"):  # two runs: their best models have the same name
        best = tmp_path / name / "best_evaluated"
        write(best)
        (best.parent / RECORDS).touch()
        assert load_model(best).output_folder("results") == best
    monkeypatch.setattr("os.access", lambda path, mode: False)  # runs on somebody else's disk
    of_run, copied = run / "checkpoints" / "best.pt", tmp_path / "b" / "run" / "copy.pt"
    models = [Checkpoint(of_run, {}), Checkpoint(copied, {}), load_model(best)]
    folders = {model.output_folder("results") for model in models}
    assert len(folders) == 3, "two of them have the same name"
    assert {folder.parent for folder in folders} == {Path("results")}


def test_a_model_folder_is_known_by_what_lies_in_it(tmp_path):
    folder, run = tmp_path / "any name", tmp_path / "run"
    write(folder)
    run.mkdir()
    (run / FLAGS).write_text("{}")
    assert find_model_folder(folder) == folder
    assert find_model_folder(f"{folder}/{WEIGHTS}") == folder
    assert find_model_folder(run) is None
    assert find_model_folder(tmp_path / "nowhere") is None
    assert find_model_folder(tmp_path / "nowhere" / WEIGHTS) is None


def test_damaged_weights_are_an_error_with_both_checksums(tmp_path):
    write(tmp_path)
    path = tmp_path / WEIGHTS
    content = path.read_bytes()
    expected = hashlib.sha256(content).hexdigest()
    write(tmp_path / "other", seed=6)
    of_another = (tmp_path / "other" / WEIGHTS).read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    for damaged in (content[:-1], flipped, b"", of_another):
        path.write_bytes(damaged)
        got = hashlib.sha256(damaged).hexdigest()
        with pytest.raises(CheckpointError, match=f"expected sha256 {expected}.*got {got}"):
            load_model(tmp_path)


def safetensors(header, nbytes, length=None):
    """A file of that format as somebody may have written it by hand."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(nbytes)


def one_tensor(dtype, shape, nbytes, claimed=None):
    offsets = [0, nbytes if claimed is None else claimed]
    return safetensors({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, nbytes)


HOSTILE = {
    "nothing": b"",
    "a pickle": pickle.dumps({"a": print}),
    "a header of all memory": safetensors({}, 8, length=2**62),
    "a deep header": safetensors(b"[" * 100_000, 0),
    "beyond its end": one_tensor("F32", [400], 64, claimed=1600),
    "an unknown kind": one_tensor("X9", [4], 16),
    "four bits": one_tensor("F4", [32], 16),
    "eight bits": one_tensor("F8_E5M2", [16], 16),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_weights_are_one_message_even_if_the_checksum_is_right(tmp_path, name):
    write(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(HOSTILE[name])
    vouch_for(tmp_path)
    with pytest.raises(CheckpointError, match="not a safetensors file of ours|of the kind") as told:
        load_model(tmp_path)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 1000


def test_weights_that_are_not_finite_are_refused_even_if_the_checksum_is_right(tmp_path):
    write(tmp_path)
    weights = load_model(tmp_path).state["learner"]["model"]
    name = next(name for name, tensor in weights.items() if tensor.is_floating_point())
    weights[name].view(-1)[-1] = float("inf")
    (tmp_path / WEIGHTS).write_bytes(tensors_to_bytes(weights))
    vouch_for(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{WEIGHTS}: .*{name}.* expected finite numbers"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", [FLAGS, FACTS])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"env": ', "is damaged: expected JSON"),
        ("[1]", "expected a JSON object, got a list"),
        ("\udcff", "is damaged: expected JSON"),
    ],
)
def test_json_that_is_none_is_an_error_that_names_the_file(tmp_path, name, content, expected):
    write(tmp_path)
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=f"{name} is .*{expected}|{name} {expected}"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "wrong", [{"updates": "many"}, {"agent_steps": None}, {"env_spec": {"env_id": "Test-v0"}}]
)
def test_facts_that_lack_something_are_an_error(tmp_path, wrong):
    write(tmp_path)
    change(tmp_path / FACTS, **wrong)
    with pytest.raises(
        CheckpointError, match=r"model.json is not complete: state\[.*; expected env_spec"
    ):
        load_model(tmp_path)
