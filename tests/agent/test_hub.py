import json
import sys
import types

import pytest

from ritornello.agent.session import prepare
from ritornello.agent.stored.hub import Repository, fetch, push
from ritornello.agent.stored.model_file import FACTS, FLAGS, WEIGHTS
from ritornello.core.errors import CheckpointError, ConfigError
from tests.analysis.agents import write_agent

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class NotThere(OSError):
    """What the client raises for a repository that does not exist."""


class FalseHub(types.ModuleType):
    """One repository, `ann/pole`, with a cache as the client has it."""

    def __init__(self, cache, content):
        super().__init__("huggingface_hub")
        self.cache, self.content = cache, dict(content)
        self.is_reachable = True
        self.asked, self.pushed = [], []

    def HfApi(self):
        return self

    def snapshot_download(self, name, *, revision, allow_patterns, etag_timeout):
        assert etag_timeout > 0
        self.asked.append((allow_patterns, revision))
        folder = self.cache / COMMIT
        if self.is_reachable and (name != "ann/pole" or revision not in (None, "v1")):
            raise NotThere("404\nand more")
        if not self.is_reachable:
            if not folder.is_dir():
                raise ConnectionError("no route to host")
            return str(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for file in set(allow_patterns) & set(self.content):
            (folder / file).write_bytes(self.content[file])
        return str(folder)

    def CommitOperationAdd(self, path_in_repo, path):
        return path_in_repo, path

    def create_repo(self, name, *, private, exist_ok):
        if not self.is_reachable:
            raise ConnectionError("no route to host")
        self.pushed.append(("made", name, private, exist_ok))

    def create_commit(self, name, operations, *, commit_message, revision):
        self.pushed.append(("commit", name, dict(operations), revision))
        return types.SimpleNamespace(repo_url=f"https://hub/{name}")


@pytest.fixture
def model(tmp_path):
    return write_agent(tmp_path / "made" / "pole")


@pytest.fixture
def false_hub(tmp_path, model, monkeypatch):
    content = {name: (model / name).read_bytes() for name in (WEIGHTS, FLAGS, FACTS)}
    false = FalseHub(tmp_path / "cache", {**content, "evil.py": b"import os"})
    monkeypatch.setitem(sys.modules, "huggingface_hub", false)
    return false


def test_three_files_are_fetched_and_no_other(false_hub):
    folder = fetch(Repository.parse("hf:ann/pole@v1"))
    assert false_hub.asked == [([WEIGHTS, FLAGS, FACTS], "v1")]
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, FLAGS, FACTS}
    false_hub.is_reachable = False
    assert fetch(Repository.parse("ann/pole@v1")) == folder, "what was fetched before is used"


def test_a_model_of_the_hub_is_tested_and_its_games_lie_under_its_name(
    false_hub, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for games, revision in (1, ""), (2, "@v1"):
        url, count = f"hf:ann/pole{revision}", f"--test_episode_count={games}"
        prepare(["--op_mode=test", f"--load_model_url={url}", count, "--seed=1"]).test()
    for games, revision in (1, ""), (2, "@v1"):
        (written,) = tmp_path.glob(f"results/ann--pole{revision}/test_*.json")
        assert json.loads(written.read_text())["episodes"] == games


@pytest.mark.parametrize(
    "text",
    [
        "hf:pole", "hf:../x", "hf:ann/..", "hf:ann/po/le", "hf:/etc/passwd", "hf:ann/pole@", "hf:",
        "hf:ann/pole@../..", "hf:a b/c", "hf:ann/-x", "hf:ann/x\n", "hf:ann//x", "hf:ann/x@a/b",
        f"hf:{'a' * 97}/b", "hf:ann/a..b",
    ],
)  # fmt: skip
def test_what_is_no_name_of_a_model_is_refused_before_anybody_is_asked(false_hub, text):
    with pytest.raises(ConfigError, match="names no model on the hub"):
        prepare(["--op_mode=test", f"--load_model_url={text}"][:2]) if text.isprintable() else (
            Repository.parse(text)
        )
    assert false_hub.asked == []


def test_a_model_that_is_not_there_or_not_whole_is_refused(false_hub):
    for name in ("ann/other", "ann/pole@v9"):
        with pytest.raises(CheckpointError, match=f"{name} was not fetched: .*404. Expected"):
            fetch(Repository.parse(name))
    del false_hub.content[FACTS]
    with pytest.raises(CheckpointError, match=r"has no model\.json"):
        prepare(["--op_mode=test", "--load_model_url=hf:ann/pole"])


def test_named_files_are_pushed_in_one_commit(false_hub, model):
    (model / "secrets.txt").write_text("hunter2")
    address = push(model, [WEIGHTS, FLAGS], Repository.parse("ann/pole"), private=True)
    assert address == "https://hub/ann/pole"
    assert false_hub.pushed == [
        ("made", "ann/pole", True, True),
        ("commit", "ann/pole", {n: str(model / n) for n in (WEIGHTS, FLAGS)}, None),
    ]
    false_hub.is_reachable = False
    with pytest.raises(ConfigError, match="hf auth login"):
        push(model, [WEIGHTS], Repository.parse("ann/pole"), private=False)
