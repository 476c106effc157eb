import enum
import errno
import sys
import weakref
from collections import OrderedDict
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ritornello.agent.stored import checkpoint_file, checkpoint_writer
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_file import read_tree, write_tree
from ritornello.agent.stored.checkpoint_folder import resolve
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.core import faults, files
from ritornello.core.errors import CheckpointError
from ritornello.core.run_layout import SEQUENCE
from tests.agent.states import state_at
from tests.faulty import Fault, Plan


def save_several(folder, updates, **options):
    writer = CheckpointWriter(folder, **options)
    for n in updates:
        writer.save(state_at(n), updates=n, agent_steps=100 * n)
    return writer


def flip_a_byte(path, needle):
    content = bytearray(path.read_bytes())
    position = content.index(needle)
    content[position] ^= 1
    path.write_bytes(content)


def names(folder, pattern="*"):
    return sorted(path.name for path in folder.glob(pattern))


numbers = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
arrays = hnp.arrays(
    st.sampled_from(["uint8", "int64", "float16", "float32", "float64", "bool"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
trees = st.recursive(
    numbers | arrays | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@settings(max_examples=60)
@given(tree=trees)
def test_any_tree_of_plain_types_and_arrays_comes_back_from_disk_as_it_was(tree, tmp_path_factory):
    path = tmp_path_factory.mktemp("tree") / "update_000000001.pt"
    write_tree(path, encode({"tree": tree}), verify=True)
    assert same(read_tree(path)["tree"], tree)


def test_numpy_scalars_ordered_dicts_and_views_become_plain_data():
    encoded = encode(OrderedDict(a=np.float32(1.5), b=np.int64(3), c=np.bool_(True)))
    assert type(encoded) is dict
    assert [type(value) for value in encoded.values()] == [float, int, bool]
    (view,) = encode([torch.zeros(1000)[:10]])
    assert view.untyped_storage().nbytes() == 40, "a view drags its whole storage into the file"


def test_read_only_memory_is_written_without_a_second_copy_of_it():
    array = np.arange(10)
    array.flags.writeable = False
    encoded = encode([array, b"bytes too"])
    (tensor,), (other,) = (item.values() for item in encoded)
    assert tensor.data_ptr() == array.ctypes.data
    owner = weakref.ref(array)
    del array, encoded
    assert owner() is not None, "the tensor must keep the memory alive"
    assert tensor.tolist() == list(range(10))
    assert bytes(other.tolist()) == b"bytes too"


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize("value", [object(), {1, 2}, Colour.RED, len, np.array(["text"])])
def test_anything_but_data_is_refused_by_its_place_in_the_tree(tmp_path, value):
    with pytest.raises(CheckpointError, match=r"state\['a'\]\[1\]"):
        CheckpointWriter(tmp_path).save({"a": [0, value]}, updates=1, agent_steps=1)
    assert names(tmp_path) == []


@pytest.mark.parametrize("for_ever", [False, True])
def test_a_write_that_fails_in_the_middle_says_so_in_words_and_leaves_nothing(
    tmp_path, monkeypatch, for_ever
):
    """For torch ends its archive whatever happened, and complains of that instead."""
    monkeypatch.setattr(files, "BUFFER_BYTES", 64)
    plan = Plan([])
    with faults.loaded(plan):
        writer = save_several(tmp_path, [1])
    writes = plan.hits["file.write"]
    assert writes > 5
    full = "the disk is full: .* Nothing has changed there: free some space"  # it may be the last
    for kind, message in (("enospc", full), ("eio", "Input/output error.*intact")):
        fault = Fault(("file.write",), kind, for_ever=for_ever)
        for nth in range(1, writes + 1):
            with (
                faults.loaded(Plan([replace(fault, nth=nth)])),
                pytest.raises(CheckpointError, match=message),
            ):
                writer.save(state_at(2), updates=2, agent_steps=2)
            assert load(tmp_path).state["updates"] == 1
            assert names(tmp_path, ".*") == [], "a temporary file is left"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_newest_checkpoint_falls_back_with_a_warning_naming_both(
    tmp_path, caplog, damage
):
    save_several(tmp_path, [1, 2])
    newest = tmp_path / "update_000000002.pt"
    if damage == "flipped":
        flip_a_byte(newest, torch.full((3,), 2).numpy().tobytes())
    else:
        newest.write_bytes(newest.read_bytes()[:-100] if damage == "truncated" else b"")
    assert load(tmp_path).state["updates"] == 1
    assert "update_000000002.pt is damaged" in caplog.text
    assert "Falling back to" in caplog.text
    assert "update_000000001.pt" in caplog.text


def test_another_format_version_is_an_error_and_not_damage(tmp_path):
    save_several(tmp_path, [1])
    torch.save({"format_version": 99, "state": {}}, tmp_path / "update_000000001.pt")
    with pytest.raises(CheckpointError, match="format version 99.*reads version 1"):
        load(tmp_path)


@pytest.mark.parametrize(
    "refusal",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.ESTALE, "Stale file handle"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_newest_checkpoint_that_cannot_be_read_now_is_an_error_and_not_damage(
    tmp_path, monkeypatch, refusal
):
    save_several(tmp_path, [1, 2])
    monkeypatch.setattr(checkpoint_file, "_check_archive", mock.Mock(side_effect=refusal))
    said = getattr(refusal, "strerror", None) or "there is not enough memory"
    with pytest.raises(CheckpointError, match=f"update_000000002.pt may not be read: {said}"):
        load(tmp_path)


def test_a_url_that_leads_nowhere_says_what_was_expected_and_what_there_is(tmp_path):
    for name in ("Pong_1", "Pong_2"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    for number in (1, 2):
        (tmp_path / "Pong_1" / "checkpoints" / f"update_00000000{number}.pt").touch()
    with pytest.raises(CheckpointError, match=r"does not exist. Expected a run folder") as caught:
        resolve(tmp_path / "Pnog_1")
    assert str(caught.value).count("Pong_1") == 1
    assert "Pong_2" not in str(caught.value), "it has nothing to load"
    with pytest.raises(CheckpointError, match="No checkpoint in .*: this is no run folder, or"):
        resolve(tmp_path / "Pong_2")
    with pytest.raises(CheckpointError, match=r"is no agent itself. There are: .*Pong_1\.$"):
        resolve(tmp_path)
    for folder, runs in ((tmp_path, r"one of its runs: .*Pong_1\."), (tmp_path / "new", "No run")):
        folder.mkdir(exist_ok=True)
        (folder / SEQUENCE).touch()
        with pytest.raises(CheckpointError, match=rf"is a sequence, and .* --resume=.*{runs}"):
            resolve(folder)


@pytest.mark.parametrize("keep_last", [1, 2, 5])
def test_the_last_k_are_kept_and_their_replay_with_them(tmp_path, keep_last):
    writer = CheckpointWriter(tmp_path, keep_last=keep_last)
    for n in range(1, 5):
        writer.save(state_at(n), updates=n, agent_steps=n, replay={"n": np.array([n])})
    kept = [f"update_{n:09d}" for n in range(max(1, 5 - keep_last), 5)]
    assert names(tmp_path, "*.pt") == [f"{stem}.pt" for stem in kept]
    assert names(tmp_path, "*.replay") == [f"{stem}.replay" for stem in kept]


def test_milestones_are_left_once_per_interval_and_never_dropped(tmp_path):
    writer = save_several(tmp_path, [], keep_last=1, milestone_steps=1000, start_steps=1000)
    for steps in (1400, 1900, 2100, 2900, 5000, 5001):
        writer.save(state_at(steps), updates=steps, agent_steps=steps)
    assert names(tmp_path, "step_*") == ["step_000000002100.pt", "step_000000005000.pt"]
    assert load(tmp_path / "step_000000002100.pt").state["updates"] == 2100


def test_a_milestone_that_a_kill_has_left_without_its_name_comes_with_the_next_save(
    tmp_path, monkeypatch
):
    writer = CheckpointWriter(tmp_path, milestone_steps=1000)
    with monkeypatch.context() as killed:
        killed.setattr(checkpoint_writer, "give_second_name", lambda *names: sys.exit())
        with pytest.raises(SystemExit):
            writer.save(state_at(1), updates=1, agent_steps=1100)
    for n, start, steps in ((2, 1100, 1200), (3, 1200, 1300)):
        writer = CheckpointWriter(tmp_path, milestone_steps=1000, start_steps=start)
        writer.save(state_at(n), updates=n, agent_steps=steps)
    assert names(tmp_path, "step_*") == ["step_000000001200.pt"]


def test_a_disk_that_has_no_room_for_a_milestone_still_keeps_the_last_k(tmp_path):
    """A milestone is a copy where the file system has no second names."""
    writer = save_several(tmp_path, [], keep_last=2, milestone_steps=100)
    with faults.loaded(Plan([Fault(("file.link",), "enospc", for_ever=True)])):
        for n in range(1, 6):
            with pytest.raises(CheckpointError, match="No space left"):
                writer.save(state_at(n), updates=n, agent_steps=100 * n)
    assert names(tmp_path) == ["update_000000004.pt", "update_000000005.pt"]


def test_replay_contents_come_back_and_absence_is_a_warning(tmp_path, caplog):
    records = np.arange(100, dtype=np.uint8)
    replay = {"records": records}
    path = CheckpointWriter(tmp_path).save(state_at(1), updates=1, agent_steps=1, replay=replay)
    assert np.array_equal(load(path).load_replay()["records"], records)
    path.with_suffix(".replay").unlink()
    assert load(path).load_replay() is None
    assert "update_000000001.replay is missing. The replay buffers start empty." in caplog.text


def test_damaged_replay_contents_fall_back_unless_they_have_to_fit_exactly(tmp_path, caplog):
    """Else each job of a chain that nobody watches would end by them."""
    writer = CheckpointWriter(tmp_path)
    for n in (1, 2, 3):
        writer.save(state_at(n), updates=n, agent_steps=n, replay={"n": n})
    damaged, found = [], []
    for n in (3, 2, 1):
        damaged.append(f"update_00000000{n}.replay is damaged")
        replay_path = tmp_path / f"update_00000000{n}.replay"
        replay_path.write_bytes(replay_path.read_bytes()[:-100])
        caplog.clear()
        found.append(load(tmp_path).load_replay())
        (said,) = caplog.messages
        assert [said.count(text) for text in damaged] == [1] * len(damaged)
        start = f"with the contents of update {n - 1}" if n > 1 else "empty"
        assert said.endswith(f"The replay buffers start {start}.")
        with pytest.raises(CheckpointError, match=r"3\.replay is damaged.*--load_replay=False"):
            load(tmp_path).load_replay(exact=True)
    assert found == [{"n": 2}, {"n": 1}, None]
