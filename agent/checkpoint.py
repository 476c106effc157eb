"""Checkpoints: saved whole or not at all, verified when loaded, never executed.

What comes in is a tree of state dicts (model, optimiser, counters, random states, flags); what goes
out is one file that `torch.load(weights_only=True)` can read:

    checkpoints/
      update_000012000.pt       the last K, for resuming
      update_000012000.replay   contents of the buffers, if they are saved at all
      step_000001000000.pt      milestones, kept for ever
      best.pt                   the best mean return so far
      latest                    text: the name of the newest of them

Only tensors and plain types are stored. NumPy arrays travel as tensors and come back as arrays. A
checkpoint is therefore data: loading one from a stranger can run no code. Each file carries
checksums (torch writes them, but does not look at them), so a flipped bit is found as well as a
missing end; a damaged newest checkpoint falls back to the one before it, with a warning.
"""

from __future__ import annotations

import logging
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core import faults
from core.atomic_file import atomic_file, atomic_path, remove_temporaries, write_text
from core.errors import CheckpointError
from core.files import disk
from core.spec import EnvSpec

FORMAT_VERSION = 1
LATEST = "latest"
BEST = "best.pt"
# What decides the shapes and the meaning of a model's inputs and outputs. The game itself may
# differ: going on with a model in another game is an experiment, not a mistake.
MODEL_DECIDING_FIELDS = ("frame_shape", "frame_dtype", "frames_stacked", "action_meanings")
_ARRAY, _BYTES = "__ndarray__", "__bytes__"

logger = logging.getLogger(__name__)


class DamagedFile(CheckpointError):
    """The bytes of one file are not what was written."""


class CheckpointWriter:
    """Saves the checkpoints of one run and drops old ones. Not thread-safe, on purpose."""

    def __init__(
        self,
        folder: Path | str,
        *,
        keep_last: int = 3,
        milestone_steps: int = 0,
        start_steps: int = 0,
    ) -> None:
        """Prepare the folder; removes what a killed process left half-written.

        Args:
          folder: the run's `checkpoints` folder; made if missing.
          keep_last: K >= 1, how many regular checkpoints to keep.
          milestone_steps: keep one checkpoint for ever per this many agent steps; 0 for none.
          start_steps: agent steps already done, when a run is resumed.
        """
        if keep_last < 1:
            raise CheckpointError(f"keep_last is {keep_last}, expected at least 1.")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        self._keep_last = keep_last
        self._milestone_steps = milestone_steps
        self._milestones_done = start_steps // milestone_steps if milestone_steps else 0

    def milestone_due(self, agent_steps: int) -> bool:
        """Whether a `save` now would also leave a milestone."""
        return bool(self._milestone_steps) and (
            agent_steps // self._milestone_steps > self._milestones_done
        )

    def save(
        self,
        state: Mapping[str, Any],
        *,
        updates: int,
        agent_steps: int,
        replay: Mapping[str, Any] | None = None,
    ) -> Path:
        """Save a checkpoint, make it the latest, and drop the oldest beyond K.

        The replay contents are written first: a checkpoint that exists is complete.

        Args:
          state: nested dicts and lists of tensors, arrays and plain types; see `encode`.
          updates: optimiser steps done; names the file.
          agent_steps: agent steps done; names the milestone.
          replay: contents of the buffers, kept in a file of their own; None to leave them out.

        Returns:
          The path of the checkpoint.

        Raises:
          CheckpointError: if the state holds something else than data, or the disk refuses. The
            previous checkpoint is intact.
        """
        path = self.folder / f"update_{updates:09d}.pt"
        replay_path = path.with_suffix(".replay")
        if replay is None:
            disk().unlink(replay_path)  # of an earlier save of the same update
        else:
            _write(replay_path, replay)
        faults.at("save.after_replay")
        _write(path, {**state, "has_replay": replay is not None})
        faults.at("save.after_pt")
        if self.milestone_due(agent_steps):
            _link(path, self.folder / f"step_{agent_steps:012d}.pt")
            self._milestones_done = agent_steps // self._milestone_steps
        write_text(self.folder / LATEST, path.name + "\n")
        faults.at("save.after_latest")
        self._drop_old(keep=path)
        return path

    def save_best(self, state: Mapping[str, Any], *, score: float) -> Path:
        """Save `best.pt` in place of the previous one; it is never dropped and has no replay.

        Args:
          state: as for `save`.
          score: mean return that these very weights are the best by.
        """
        faults.at("save.before_best")
        path = self.folder / BEST
        _write(path, {**state, "has_replay": False, "best_score": score})
        return path

    def best_score(self) -> float | None:
        """Return the score of the `best.pt` that is there; None if there is none to beat."""
        try:
            score = _read(self.folder / BEST).get("best_score")
        except CheckpointError:
            return None
        return None if score is None else float(score)

    def _drop_old(self, keep: Path) -> None:
        regular = _newest_first(self.folder, "update_*.pt")
        kept = [keep, *[path for path in regular if path != keep]][: self._keep_last]
        for path in regular:
            if path not in kept:
                disk().unlink(path)
        for path in self.folder.glob("update_*.replay"):
            if path.with_suffix(".pt") not in kept:
                disk().unlink(path)


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: the state that was given to `save`, and where it came from."""

    path: Path
    state: dict[str, Any]

    def load_replay(self) -> dict[str, Any] | None:
        """Return the saved contents of the buffers, or None if there are none.

        Raises:
          CheckpointError: if the file is damaged.
        """
        if not self.state.get("has_replay"):
            return None
        replay_path = self.path.with_suffix(".replay")
        if not replay_path.exists():
            logger.warning("%s is gone: the replay buffers start empty.", replay_path)
            return None
        try:
            return _read(replay_path)
        except DamagedFile as error:
            raise CheckpointError(
                f"{error} The model in {self.path.name} is sound: give --load_replay=False to "
                "resume it with empty buffers."
            ) from error

    def check_spec(self, current: EnvSpec) -> None:
        """Raise CheckpointError unless the saved model fits the environment at hand.

        Compares the spec stored under the key "env_spec" and lists every difference.
        """
        saved = EnvSpec.from_dict(self.state["env_spec"])
        differences = [
            f"  {name}: {getattr(saved, name)} in the checkpoint, {getattr(current, name)} now"
            for name in MODEL_DECIDING_FIELDS
            if getattr(saved, name) != getattr(current, name)
        ]
        if differences:
            raise CheckpointError(
                f"{self.path} was trained on {saved.env_id} and does not fit {current.env_id}:\n"
                + "\n".join(differences)
                + "\nGive the flags of that run (its flags.json), or start a new one."
            )


def resolve(url: Path | str, *, prefer_best: bool = False) -> list[Path]:
    """Return the checkpoint files that `url` means, the best guess first.

    Args:
      url: a run folder, its checkpoints folder, or a checkpoint file.
      prefer_best: put `best.pt` first when a folder has one.

    Raises:
      CheckpointError: if there is none.
    """
    path = Path(url)
    if path.is_file():
        return [path]
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    if not folder.is_dir():
        raise CheckpointError(
            f"{path} does not exist. Expected a run folder (results/<run>), its checkpoints "
            f"folder, or a checkpoint file (.pt).{_runs_nearby(path)}"
        )
    found = [
        *_latest(folder),
        *_newest_first(folder, "update_*.pt"),
        *_newest_first(folder, "step_*.pt"),
        *_newest_first(folder, BEST),
    ]
    if prefer_best:
        found = _newest_first(folder, BEST) + found
    if not found:
        raise CheckpointError(
            f"No checkpoint in {folder}. Expected update_*.pt, step_*.pt or best.pt there: the run "
            "may have ended before its first save (--save_model_period)."
        )
    return list(dict.fromkeys(found))


def load(url: Path | str, *, prefer_best: bool = False) -> Checkpoint:
    """Load the checkpoint that `url` means (see `resolve`) onto the CPU.

    A damaged file in a folder falls back to the next one with a warning that names both. A file
    that was named outright does not: whoever names a file wants that file.

    Raises:
      CheckpointError: if there is none, none is sound, or it is of another format version.
    """
    candidates = resolve(url, prefer_best=prefer_best)
    damages: list[str] = []
    for path in candidates:
        try:
            state = _read(path)
        except DamagedFile as error:
            damages.append(str(error))
            continue
        if damages:
            logger.warning("%s Falling back to %s.", " ".join(damages), path)
        return Checkpoint(path, state)
    raise CheckpointError(" ".join(damages) + f" Nothing sound is left at {url}.")


def encode(state: Any, where: str = "state") -> Any:
    """Return `state` as tensors and plain types only.

    Tensors are detached and moved to the CPU, but not copied if they are there already: encode
    right before writing. Mappings become dicts, tuples stay tuples.

    Raises:
      CheckpointError: at anything else, naming the place in the tree.
    """
    # Exact types: a subclass (an enum, numpy's float64) is pickled by reference to code.
    if state is None or type(state) in (bool, int, float, str):
        return state
    if isinstance(state, torch.Tensor):
        tensor = state.detach().cpu()
        # A view would drag its whole storage into the file.
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        return tensor if whole else tensor.clone()
    if isinstance(state, np.generic):
        return encode(state.item(), where)
    if isinstance(state, np.ndarray):
        return {_ARRAY: _array_to_tensor(state, where)}
    if isinstance(state, (bytes, bytearray)):
        return {_BYTES: _array_to_tensor(np.frombuffer(state, np.uint8), where)}
    if isinstance(state, Mapping):
        return {_plain_key(key, where): encode(v, f"{where}[{key!r}]") for key, v in state.items()}
    if isinstance(state, (list, tuple)):
        items = [encode(item, f"{where}[{index}]") for index, item in enumerate(state)]
        return tuple(items) if isinstance(state, tuple) else items
    raise CheckpointError(
        f"{where} is a {type(state).__name__}; a checkpoint holds tensors, arrays and plain types "
        "(None, bool, int, float, str, bytes, list, tuple, dict) only. Convert it in state_dict()."
    )


def decode(data: Any) -> Any:
    """Undo `encode`: arrays and bytes are themselves again."""
    if isinstance(data, dict):
        if data.keys() == {_ARRAY}:
            return data[_ARRAY].numpy()
        if data.keys() == {_BYTES}:
            return data[_BYTES].numpy().tobytes()
        return {key: decode(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(decode(item) for item in data)
    return data


def _write(path: Path, state: Mapping[str, Any]) -> None:
    encoded = {"format_version": FORMAT_VERSION, "state": encode(state)}
    try:
        with atomic_file(path) as file:
            torch.save(encoded, file)
    except (OSError, RuntimeError) as error:
        # torch closes its archive whatever happened before, and then complains of that instead.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        raise CheckpointError(
            f"Could not write {path}: {cause}. The checkpoint before it is intact."
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise DamagedFile(f"{path} is damaged: wrong checksum of {broken}.")
        data = torch.load(path, map_location="cpu", weights_only=True)
        version, state = data["format_version"], data["state"]
    except FileNotFoundError as error:
        raise DamagedFile(f"{path} is missing.") from error
    except (
        *(OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError),
        *(zipfile.BadZipFile, pickle.UnpicklingError),
    ) as error:
        reason = str(error).split("\n")[0]
        raise DamagedFile(f"{path} is damaged or not a checkpoint of ours: {reason}.") from error
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version}, this program reads version {FORMAT_VERSION}. "
            "Use the commit that wrote it (source.commit in the run's run.json)."
        )
    decoded: dict[str, Any] = decode(state)
    return decoded


def _array_to_tensor(array: np.ndarray, where: str) -> torch.Tensor:
    if not array.flags.c_contiguous:
        array = array.copy()
    elif not array.flags.writeable:
        array = np.asarray(_PresentedAsWritable(array))
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{where} is an array of {array.dtype}, not of numbers.") from error


class _PresentedAsWritable:
    """Read-only memory, presented as writable by NumPy's array interface.

    torch warns about tensors over read-only memory, because they can be written to. These are only
    read, and copying them instead would take a second set of gigabytes for the replay contents.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = array  # owns the memory, which must outlive the tensor
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _plain_key(key: Any, where: str) -> Any:
    if isinstance(key, np.integer):
        return int(key)
    if type(key) in (str, int, float, bool) or key is None:
        return key
    raise CheckpointError(
        f"{where} has the key {key!r} of type {type(key).__name__}; keys are text or numbers."
    )


def _link(source: Path, target: Path) -> None:
    """Give a checkpoint a second name: no bytes are written where the file system can link."""
    with atomic_path(target) as temporary:
        disk().link(source, temporary)


def _latest(folder: Path) -> list[Path]:
    try:
        path = folder / (folder / LATEST).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return []
    return [path] if path.is_file() else []


def _newest_first(folder: Path, pattern: str) -> list[Path]:
    """Sort by time of writing: a run resumed from an older update overtakes its former future."""
    found = folder.glob(pattern)
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def _runs_nearby(path: Path) -> str:
    """Return a hint that lists the newest runs beside a folder that is not there."""
    runs: Sequence[Path] = sorted(path.parent.glob("*/checkpoints"), key=os.path.getmtime)[-3:]
    names = ", ".join(str(run.parent) for run in reversed(runs))
    return f" There are: {names}." if names else ""
