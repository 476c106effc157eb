import logging
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from ritornello.agent.stored import checkpoint_file, checkpoint_writer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_tree import decode, first_not_finite
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.core.errors import CheckpointError
from tests.agent.states import state_at
from tests.agent.test_checkpoint import names, save_several

NAN, INF = float("nan"), float("inf")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("where", ["first", "last", "optimiser", "float"])
def test_weights_that_are_not_finite_are_refused_and_nothing_changes(tmp_path, bad, where):
    writer = save_several(tmp_path, [1])
    writer.save_best(state_at(1), score=1.0)
    before = contents(tmp_path)
    weights, square = torch.full((1000,), 1e38), torch.ones(3, dtype=torch.float64)
    learner = {
        "model": {"mu": weights, "counts": torch.arange(3), "empty": torch.zeros(0)},
        "optimiser": {
            "state": {0: {"square_avg": square}},
            "param_groups": [{"params": [0], "lr": 0.1}],
        },
    }
    writer.save({**state_at(2), "learner": learner}, updates=2, agent_steps=2)  # all is well
    (tmp_path / "update_000000002.pt").unlink()
    if where == "float":
        learner["optimiser"]["param_groups"][0]["lr"] = bad
    else:
        (square if where == "optimiser" else weights)[0 if where == "first" else -1] = bad
    named = {"optimiser": "square_avg", "float": "lr"}.get(where, "mu")
    for save in (
        lambda state: writer.save(state, updates=2, agent_steps=2, replay={"a": np.ones(3)}),
        lambda state: writer.save_best(state, score=2.0),
    ):
        with pytest.raises(
            CheckpointError, match=rf"\['{named}'\] (holds|is) .*before it is intact"
        ):
            save({**state_at(2), "learner": learner})
    assert contents(tmp_path) == before


def test_a_checkpoint_that_is_not_finite_is_passed_over_with_the_reason(
    tmp_path, caplog, monkeypatch
):
    save_several(tmp_path, [1])
    with monkeypatch.context() as patch:  # as versions without the check have written it
        patch.setattr(
            "ritornello.agent.stored.checkpoint_writer._refuse_not_finite", lambda *_: None
        )
        bad = {**state_at(2), "learner": {"model": {"mu": torch.tensor([1.0, NAN])}}}
        CheckpointWriter(tmp_path).save(bad, updates=2, agent_steps=2)
    with caplog.at_level(logging.WARNING):
        checkpoint = load(tmp_path)
    assert checkpoint.state["updates"] == 1
    (said,) = caplog.messages
    assert "update_000000002.pt cannot be gone on from" in said
    assert "['mu'] holds nan" in said
    assert said.endswith(f"Falling back to {tmp_path / 'update_000000001.pt'}.")
    assert " ".join(checkpoint.notes) == said
    with pytest.raises(CheckpointError, match=r"000002.pt cannot be gone on from.*mu.*nan"):
        load(tmp_path / "update_000000002.pt")


def test_a_clock_that_was_set_back_decides_nothing(tmp_path):
    writer = save_several(tmp_path, [150, 157], keep_last=3)
    for path in tmp_path.glob("*.pt"):
        os.utime(path, (9e9, 9e9))
    for updates in (213, 223, 233):
        writer.save(state_at(updates), updates=updates, agent_steps=updates)
    assert names(tmp_path, "*.pt") == [f"update_000000{n}.pt" for n in (213, 223, 233)]
    os.utime(tmp_path / "update_000000213.pt", (9e9, 9e9))
    (tmp_path / "update_000000233.pt").write_bytes(b"damaged")
    assert load(tmp_path).state["updates"] == 223


def test_an_update_is_saved_once_and_its_files_are_not_written_over(tmp_path, monkeypatch):
    writer = CheckpointWriter(tmp_path)

    def save(n, mark):
        writer.save(state_at(n), updates=n, agent_steps=n, replay={"mark": mark})

    save(1, 10)
    save(1, 11)
    assert load(tmp_path).load_replay()["mark"] == 10
    write = checkpoint_file.write_tree

    def write_replay_only(path, tree, **options):
        if path.suffix == ".pt":
            raise CheckpointError("the disk is gone")
        write(path, tree, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_writer, "write_tree", write_replay_only)
        with pytest.raises(CheckpointError, match="the disk is gone"):
            save(2, 20)
    assert names(tmp_path, "*.replay") == ["update_000000001.replay"]
    save(2, 21)
    assert load(tmp_path).load_replay()["mark"] == 21


def test_a_file_that_reads_back_otherwise_than_it_was_written_does_not_take_its_place(
    tmp_path, monkeypatch
):
    writer = save_several(tmp_path, [1])
    before = contents(tmp_path)
    save = torch.save

    def save_and_lose_a_bit(data, file):
        save(data, file)
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1) if file.readable() else b"\xff"
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))

    monkeypatch.setattr(torch, "save", save_and_lose_a_bit)
    big = {**state_at(2), "weights": torch.ones(10_000)}
    with pytest.raises(CheckpointError, match=r"Could not write .*checksum.*before it is intact"):
        writer.save(big, updates=2, agent_steps=2)
    assert contents(tmp_path) == before


def rewritten(path, description, compress=0):
    """Change the tree's description in a checkpoint, with right checksums, as a stranger can."""
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", compress or zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(name, description(data) if name.endswith("data.pkl") else data)


def saved(folder, replay=None):
    state = {**state_at(1), "weights": torch.arange(10, dtype=torch.uint8)}
    return CheckpointWriter(folder).save(state, updates=1, agent_steps=1, replay=replay)


def refused(path, reason):
    with pytest.raises(CheckpointError, match=reason):
        load(path)


def test_a_tensor_that_claims_more_numbers_than_it_stores_is_refused(tmp_path):
    path = saved(tmp_path)
    huge = b"\x8a\x06\x00\x00\x00\x00\x00\x01\x85"  # (2**40,)

    def expand(data):
        assert b"K\n\x85" in data
        return data.replace(b"K\n\x85", huge).replace(b"K\x01\x85", b"K\x00\x85")

    rewritten(path, expand)
    refused(path, "does not hold just its own numbers")


def test_compressed_entries_are_refused_before_they_are_expanded(tmp_path):
    path = saved(tmp_path)
    rewritten(path, lambda data: data, zipfile.ZIP_DEFLATED)
    refused(path, "would expand")


def test_compressed_entries_of_a_directory_that_only_torch_reads_are_refused(tmp_path):
    path = saved(tmp_path)
    rewritten(path, lambda data: data, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as archive:
        names_of_entries, start = archive.namelist(), archive.start_dir
    path.write_bytes(path.read_bytes()[:-22])  # all but the end, after which others are appended
    with zipfile.ZipFile(path, "a") as archive:
        for name in names_of_entries:
            archive.writestr(name, "")
        for entry in archive.infolist():
            entry.header_offset -= archive.start_dir - start
    path.write_bytes(path.read_bytes()[:-6] + struct.pack("<IH", start, 0))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    torch.load(path)
    refused(path, "its directory is not where its end says")


def test_an_archive_without_an_entry_is_said_to_be_one(tmp_path):
    path = saved(tmp_path)
    zipfile.ZipFile(path, "w").close()
    refused(path, "it is an archive of nothing")


def test_a_tree_that_contains_itself_many_times_is_refused_at_once(tmp_path):
    path = saved(tmp_path)
    tree = []
    for _ in range(60):
        tree = [tree, tree]
    bomb = pickle.dumps({"format_version": 1, "state": {"tree": tree}}, 2)
    rewritten(path, lambda data: bomb)
    refused(path, "repeats or contains itself")
    endless = []
    endless.append(endless)
    bomb = pickle.dumps({"format_version": 1, "state": {"tree": endless}}, 2)
    rewritten(path, lambda data: bomb)
    refused(path, "repeats or contains itself")


class Call:
    def __init__(self, function, *arguments):
        self._call = (function, arguments)

    def __reduce__(self):
        return self._call


def test_a_buffer_of_any_size_is_refused_before_it_is_made(tmp_path):
    path = saved(tmp_path)
    tree = {"format_version": 1, "state": {"tree": Call(bytearray, 10**16)}}
    rewritten(path, lambda data: pickle.dumps(tree, 2))
    refused(path, "holds more than tensors")


def test_bytes_that_come_twice_are_refused(tmp_path):
    path, tensor = saved(tmp_path), torch.zeros(10, dtype=torch.uint8)
    state = {"a": {"__bytes__": tensor}, "b": {"__bytes__": tensor}}
    torch.save({"format_version": 1, "state": state}, path)
    refused(path, "repeats")


def test_a_long_key_of_many_levels_takes_no_memory_for_each():
    key, tree = "k" * 20_000, 1.0
    for _ in range(100):
        tree = {key: tree}
    tracemalloc.start()
    try:
        assert first_not_finite(decode(tree)) is None
        assert tracemalloc.get_traced_memory()[1] < 50e6  # else 100 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "tree",
    [
        {"a": torch.nn.Parameter(torch.ones(2))}, {"a": torch.eye(3).to_sparse()}, {"a": {1, 2}},
        {"a": torch.Size([1])}, {"__ndarray__": 5}, {"a": {"__bytes__": "text"}}, {(1, 2): 3},
        {"a": {"__ndarray__": torch.ones(2, dtype=torch.bfloat16)}}, {"a": torch.ones(4)[:2]},
        {"a": torch.ones(4).to(torch.float8_e5m2)}, {"a": torch.ones(4).to(torch.float8_e4m3fn)},
        [1, 2], 5, {"a": 1j},
    ],
)  # fmt: skip
def test_what_the_writer_would_not_have_written_is_refused(tmp_path, tree):
    path = tmp_path / "update_000000001.pt"
    torch.save({"format_version": 1, "state": tree}, path)
    refused(path, "damaged or not a checkpoint of ours")


class Evil:
    def __init__(self, folder):
        self._folder = folder

    def __reduce__(self):
        return (os.mkdir, (str(self._folder / "executed"),))


@pytest.mark.parametrize("kind", ["archive", "legacy", "raw pickle", "state", "replay"])
def test_a_payload_does_not_run_and_the_message_is_one_plain_line(tmp_path, kind):
    path = CheckpointWriter(tmp_path).save(state_at(1), updates=1, agent_steps=1, replay={"a": 1})
    evil = {"format_version": 1, "state": {"a": Evil(tmp_path)}}
    if kind == "raw pickle":
        path.write_bytes(pickle.dumps(evil))
    elif kind == "replay":
        torch.save(evil, path.with_suffix(".replay"))
    else:
        torch.save(evil, path, _use_new_zipfile_serialization=kind != "legacy")
    with pytest.raises(CheckpointError, match="damaged or not a checkpoint of ours") as caught:
        load(path).load_replay(exact=True)
    assert str(caught.value).isprintable()
    if kind == "replay":
        assert load(path).load_replay() is None
    assert not (tmp_path / "executed").exists()
