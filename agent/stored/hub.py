"""Model folders on the Hugging Face Hub: fetched for `hf:<owner>/<name>`, and pushed.

A stranger's repository may hold anything. Three files are asked for by name, all of one commit; no
other file is looked at, and none is written by us: the client keeps them in its cache. They are
read as every model folder is (agent/stored/model_file.py), which runs no code. The client is
optional (extra hub) and imported only here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ritornello.agent.stored.checkpoint_folder import ON_HUB
from ritornello.agent.stored.model_file import FACTS, WEIGHTS
from ritornello.core.errors import CheckpointError, ConfigError, first_line
from ritornello.core.plain_data import shown_text
from ritornello.core.project import import_extra
from ritornello.core.run_layout import FLAGS

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
NAME = re.compile(rf"(?P<repository>{_PART}/{_PART})(?:@(?P<revision>{_PART}))?")
TIMEOUT_S = 30.0  # for what the hub says about a file
FILES = (WEIGHTS, FLAGS, FACTS)


@dataclass(frozen=True)
class Repository:
    """A model on the hub, and which version of it."""

    name: str  # <owner>/<name>
    revision: str | None = None  # branch, tag or commit; None: the newest

    def __str__(self) -> str:
        """Return what `parse` reads."""
        return f"{self.name}@{self.revision}" if self.revision else self.name

    @property
    def label(self) -> str:
        """Its name as the name of a folder; each revision that is named has its own."""
        return str(self).replace("/", "--")

    @classmethod
    def parse(cls, text: str) -> Repository:
        """Read `<owner>/<name>`, with or without `hf:`, perhaps with `@<revision>`.

        Raises:
          ConfigError: if `text` is not of that form.
        """
        match = NAME.fullmatch(text.removeprefix(ON_HUB))
        if match is None or ".." in text or "--" in text:
            raise ConfigError(
                f"{shown_text(text)} names no model on the hub: expected hf:<owner>/<name> or "
                "hf:<owner>/<name>@<revision>, of letters, digits and . _ -"
            )
        return cls(match["repository"], match["revision"])


def fetch(repository: Repository) -> Path:
    """Return the folder, in the client's cache, with the three files of a model, of one commit.

    If the hub does not answer, the client uses the files that it has fetched before.

    Raises:
      ConfigError: if the client is not installed.
      CheckpointError: if there is no such model, or neither the hub nor the cache has it.
    """
    hub = _client()
    try:
        return Path(
            hub.snapshot_download(
                repository.name,
                revision=repository.revision,
                allow_patterns=list(FILES),
                etag_timeout=TIMEOUT_S,
            )
        )
    except Exception as error:  # of the client, of the network below it, of the system
        raise CheckpointError(
            f"{repository} was not fetched: {first_line(error)}. Expected a model that is on "
            "the hub, for whom is logged in (hf auth login), and a hub that answers."
        ) from error


def push(folder: Path, names: Sequence[str], repository: Repository, *, private: bool) -> str:
    """Send files of a folder to the hub in one commit; return the address of the model.

    Other files in the repository stay as they are. A missing repository is made; if `private`, it
    is visible to its owner only. The client knows who is logged in.

    Raises:
      ConfigError: if the client is not installed, nobody is logged in, or the hub refuses.
    """
    hub = _client()
    operations = [hub.CommitOperationAdd(name, str(folder / name)) for name in names]
    try:
        api = hub.HfApi()
        # None leaves it to the hub, and to who owns it, whether others can see it.
        api.create_repo(repository.name, private=private or None, exist_ok=True)
        made = api.create_commit(
            repository.name,
            operations,
            commit_message="Export an agent",
            revision=repository.revision,
        )
    except Exception as error:  # of the client, of the network below it, of the system
        raise ConfigError(
            f"{repository} was not pushed: {first_line(error)}. Expected a hub that answers, "
            "and somebody logged in who may write there: hf auth login. The model folder "
            f"{folder} is complete; the same command tries again."
        ) from error
    return shown_text(str(getattr(made, "repo_url", "") or repository.name), 300)


def _client() -> Any:
    return import_extra("huggingface_hub", "hub", "a model on the hub")
