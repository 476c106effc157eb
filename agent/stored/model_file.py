"""A trained agent as a small folder that can be shipped, and played by somebody else.

    models/<name>/
      model.safetensors   the model's state dict, as the learner kept it (fp32)
      flags.json          the flags of the run, without those that are about its machine
      model.json          facts: environment, steps, scores, versions, checksum of the weights

Safetensors is a format for tensors and nothing else: reading it runs no code, and nothing here is
ever unpickled. The checksum tells damage, not a stranger: whoever changes the weights can change it
too. What a stranger's folder cannot do is run code, name a module to import (an environment
module:Id is refused, see wrappers/trusted_modules.py), have anything written, or bring weights that
are not finite; its flags are checked like flags that are typed.

Each file is replaced at once, the weights last: a process that is killed in between leaves a folder
whose checksum is wrong, and never one model's weights with another one's flags. The facts go first:
by them the next export knows the folder.

What is read comes back as a `Checkpoint` (agent/stored/checkpoint.py) that holds weights, but no
optimiser, no counters of games and no replay. `agent/export.py` makes such a folder.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes

from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.checkpoint_folder import MILESTONE_NAME, UPDATE_NAME
from ritornello.agent.stored.checkpoint_tree import KNOWN_DTYPES, first_not_finite
from ritornello.core.atomic_file import (
    TEMPORARY_SUFFIX,
    as_json,
    atomic_path,
    remove_temporaries,
    writable_folder,
)
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.core.files import disk
from ritornello.core.plain_data import parse_json, read_text, shown, shown_text
from ritornello.core.project import typed_path
from ritornello.core.run_layout import FLAGS, MODEL_WEIGHTS, RECORDS
from ritornello.core.saved_state import StateError, item, whole
from ritornello.core.spec import EnvSpec

FORMAT_VERSION = 1
FORMAT_MARK = '"format_version"'
WEIGHTS, FACTS = MODEL_WEIGHTS, "model.json"
# An agent that was trained on a large GPU machine is to play on a laptop.
FLAGS_OF_THE_MACHINE = ("load_model_url", "results_dir", "device", "learner_thread_count")
MAX_DIFFERENCES_SHOWN = 4
REPLACED_WITHIN_S, LOOK_S = 1.0, 0.02  # for another process to replace the files of a model


@dataclass(frozen=True)
class ShippedModel(Checkpoint):
    """A model read from a model folder: `state` has flags, env_spec, weights and two counters.

    It can be tested like any checkpoint, and a new run can start from it, but there is nothing in
    it to resume. `path` is the file of the weights.
    """

    label: str = ""  # name for what is made with it; "": that of its folder
    facts: dict[str, Any] = field(default_factory=dict)  # content of model.json
    can_resume = False

    @property
    def name(self) -> str:
        """`model` with a part of its checksum: folders of one name share an `output_folder`."""
        return f"{self.path.stem}_{self.facts['sha256'][:8]}"

    def output_folder(self, results: Path | str) -> Path:
        """Return its folder if that lies in a run and may be written to, else one in `results`."""
        if (self.home.parent / RECORDS).is_file():  # best_evaluated/: each run has one of that name
            return super().output_folder(results)
        return Path(results) / (self.label or self.home.resolve().name)


def find_model_folder(url: Path | str) -> Path | None:
    """Return the model folder that `url` means; None if there is no model.

    `url` is the folder, or the model.safetensors in it. `models/<name>` also means the model that
    comes with the program, whatever the working directory.
    """
    folder = Path(url)
    if folder.name == WEIGHTS:
        folder = folder.parent
    folder = typed_path(folder).absolute()  # an environment may change the working directory
    # Either file tells: a folder that has lost the other is damaged, and `load_model` says so.
    try:
        return folder if _holds_model(folder) else None
    except OSError:  # such as a name that is too long: whoever loads it says so
        return None


def _holds_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (WEIGHTS, FACTS))


def save_model(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    flags: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> None:
    """Write a model folder, or replace the model in it.

    Args:
      folder: made if missing; its other files stay.
      weights: the model's state dict, on the CPU.
      flags: flags of the run; those of FLAGS_OF_THE_MACHINE are left out.
      facts: JSON types, with what `load_model` needs: env_spec, agent_steps and updates. A checksum
        of the weights is added.

    Raises:
      ConfigError: if the folder belongs to a run or to another program, or cannot be written.
    """
    if not (folder / FLAGS).exists():
        check_is_of_export(folder, FACTS, [WEIGHTS])
    # Weights may lie in memory as NHWC, and two of them in one place; the file has one order, and
    # each by itself.
    content = tensors_to_bytes(
        {
            name: tensor.clone(memory_format=torch.contiguous_format)
            for name, tensor in weights.items()
        }
    )
    kept = {name: value for name, value in flags.items() if name not in FLAGS_OF_THE_MACHINE}
    sha256 = hashlib.sha256(content).hexdigest()
    about = {"format_version": FORMAT_VERSION, **facts, "sha256": sha256}
    files = {FACTS: as_json(about).encode(), FLAGS: as_json(kept).encode(), WEIGHTS: content}
    write_folder(folder, files)


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into a folder, which is made if missing; its other files stay.

    All files are on the disk before the first of them takes its place; then each takes its place in
    turn.

    Raises:
      ConfigError: if the folder belongs to a run, or cannot be written.
    """
    try:
        check_is_of_no_run(folder)
        writable_folder(folder)
        remove_temporaries(folder)
        with ExitStack() as places:  # which are left in the reverse order
            for name, content in reversed(files.items()):
                place = places.enter_context(atomic_path(folder / name))
                place.write_bytes(content)
                disk().sync(place)
    except OSError as error:
        raise ConfigError(f"Cannot write the folder {folder}: {error}.") from error


def check_is_of_export(folder: Path, mark: str, names: Sequence[str]) -> None:
    """Raise ConfigError if a folder has one of the files `names` or `mark`, but not of an export.

    `mark` is a file of JSON with a format version, which an export puts in its place first.
    """
    known = folder / mark
    if known.is_file() and FORMAT_MARK in read_text(known, "the file"):
        return
    for name in (*names, mark):
        if (folder / name).exists():
            raise ConfigError(
                f"{folder} has a {name} that is not of an export: give another folder."
            )


def check_is_of_no_run(folder: Path) -> None:
    """Raise ConfigError if a folder is that of a run or of its checkpoints.

    A model in there would be taken for the checkpoint to resume, or replace the run's flags.
    """
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        is_checkpoint = UPDATE_NAME.fullmatch(name) or MILESTONE_NAME.fullmatch(name)
        is_of_run = name == RECORDS or (name == FLAGS and not _holds_model(folder))
        if is_checkpoint or is_of_run:
            raise ConfigError(
                f"{folder} holds {name}, so it is the folder of a run or of its checkpoints, and "
                "a model there would be taken for the run: give another folder."
            )


def load_model(folder: Path, label: str = "") -> ShippedModel:
    """Read and verify a model folder; wait REPLACED_WITHIN_S for one that is being replaced.

    `label` is the name of what is made with the model, by default the name of the folder.

    Raises:
      CheckpointError: if a file is missing or damaged, or they do not belong together; the message
        names the file.
    """
    ends_at_s = time.monotonic() + REPLACED_WITHIN_S
    while True:
        before = _files(folder)
        try:
            return _load_model(folder, label)
        except CheckpointError:
            after = _files(folder)
            is_changing = after != before or any(x.endswith(TEMPORARY_SUFFIX) for x, _ in after)
            if not is_changing or time.monotonic() >= ends_at_s:
                raise
        threading.Event().wait(LOOK_S)


def _files(folder: Path) -> set[tuple[str, int]]:
    """Return the names in a folder, with the number of the file that each stands for."""
    try:
        return {(entry.name, entry.inode()) for entry in os.scandir(folder)}
    except OSError:
        return set()


def _load_model(folder: Path, label: str) -> ShippedModel:
    missing = [name for name in (WEIGHTS, FLAGS, FACTS) if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} has no {' and no '.join(missing)}. A model folder holds {WEIGHTS}, {FLAGS} "
            f"and {FACTS}: fetch it whole, or make it again with python -m ritornello.agent.export."
        )
    # In the reverse of the order in which they are replaced: new weights have new flags then.
    content = _read_weights(folder / WEIGHTS)
    flags, facts = _read_json(folder / FLAGS), _read_json(folder / FACTS)
    version = facts.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{folder / FACTS} has format version {shown(version)}, this program reads version "
            f"{FORMAT_VERSION}. Use the program that came with the model."
        )
    try:
        env_spec = EnvSpec.from_dict(item(facts, "env_spec", dict)).to_dict()
        tally = {name: whole(facts, name) for name in ("agent_steps", "updates")}
        sha256 = item(facts, "sha256", str)
    except StateError as error:
        raise CheckpointError(
            f"{folder / FACTS} is not complete: {error}; expected env_spec, agent_steps, updates "
            "and sha256 of a model. Fetch the folder anew."
        ) from error
    weights = _weights(content, sha256, folder / WEIGHTS)
    state = {"flags": flags, "env_spec": env_spec, "learner": {"model": weights}, "tally": tally}
    return ShippedModel(folder / WEIGHTS, state, label=label, facts=facts)


def check_weights(checkpoint: Checkpoint, model: torch.nn.Module) -> None:
    """Raise CheckpointError unless the saved weights are those of a model like `model`.

    Compares the names and shapes of all tensors; the error lists the first differences.
    """
    saved = {name: tuple(t.shape) for name, t in checkpoint.state["learner"]["model"].items()}
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    differences = [
        f"  {shown_text(name)}: expected {wanted.get(name, 'nothing')}, "
        f"got {saved.get(name, 'nothing')}"
        for name in {**wanted, **saved}
        if saved.get(name) != wanted.get(name)
    ]
    if differences:
        first = differences[:MAX_DIFFERENCES_SHOWN]
        if len(differences) > len(first):
            first.append(f"  and {len(differences) - len(first)} more")
        raise CheckpointError(
            f"{checkpoint.path} holds the weights of another network:\n"
            + "\n".join(first)
            + "\nLeave --algorithm and the flags of group model (--model and others) as they were "
            "in that run."
        )


def _read_weights(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def _weights(content: bytes, sha256: str, path: Path) -> dict[str, torch.Tensor]:
    got = hashlib.sha256(content).hexdigest()
    if got != sha256:
        raise CheckpointError(
            f"{path} is damaged or of another model: expected sha256 "
            f"{shown_text(sha256, 70)} (from {FACTS}), got {got} in {len(content)} bytes. "
            "Fetch the folder anew."
        )
    try:
        weights = tensors_from_bytes(content)
    except (SafetensorError, KeyError) as error:  # KeyError: of a kind that torch has no name for
        raise CheckpointError(
            f"{path} is as {FACTS} says, but not a safetensors file of ours: {shown(str(error))}. "
            "Make it again with python -m ritornello.agent.export."
        ) from error
    strange = [name for name, tensor in weights.items() if tensor.dtype not in KNOWN_DTYPES]
    if strange:
        found = f"{shown(strange[0])} holds numbers of the kind {weights[strange[0]].dtype}"
    else:
        found = first_not_finite(weights, (), "the model") or ""
    if found:
        raise CheckpointError(
            f"{path}: {found}, expected finite numbers that this program writes. Export another "
            "checkpoint of that run."
        )
    return weights


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = parse_json(read_text(path, "the file"), str(path))
    except ConfigError as error:
        raise CheckpointError(
            f"{path} is damaged: expected JSON, got this: {error} Fetch the folder anew."
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(
            f"{path} is not ours: expected a JSON object, got a {type(data).__name__}."
        )
    return data
