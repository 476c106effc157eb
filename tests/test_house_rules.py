import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ritornello.flags.names import COMMANDS, RESUME_OR_START, flag_of
from ritornello.flags.options import Flags
from tests.deadlines import HANGS_S
from tests.house import ROOT, all_files, module_name, product_files, tree_of

PRODUCT = product_files()
MAX_LINES = 450
# Longer files, each with the reason why cutting it would make it worse to read.
LONG_FILES: dict[str, str] = {}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


IMPORT_EVERYTHING = """
import importlib, multiprocessing, os, random, signal, sys, threading
modules = sys.argv.pop().split(",")
sys.argv += ["--this_is_no_flag"]
handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
import numpy, rich.console  # rich itself draws from the global generator when it is imported
random_state, numpy_state = random.getstate(), numpy.random.get_state()[1].copy()
for module in modules:
    importlib.import_module(module)
assert threading.active_count() == 1, threading.enumerate()
assert not multiprocessing.active_children()
assert handlers == {s: signal.getsignal(s) for s in handlers}
assert random.getstate() == random_state
assert (numpy.random.get_state()[1] == numpy_state).all()
assert "torch" not in sys.modules or not sys.modules["torch"].cuda.is_initialized()
assert multiprocessing.get_start_method(allow_none=True) is None
"""


@pytest.mark.process
def test_importing_any_module_has_no_side_effect(tmp_path):
    modules = [module_name(path) for path in PRODUCT if path.stem != "__main__"]
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, ",".join(modules)],
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert [path for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_files_are_short_or_have_a_reason():
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in PRODUCT}
    long = {name for name, lines in lengths.items() if lines > MAX_LINES}
    assert long <= set(LONG_FILES), "cut them, or say in LONG_FILES why not"
    assert set(LONG_FILES) <= long, "these are short by now: remove them from LONG_FILES"


def test_nothing_sleeps_to_synchronise_and_no_error_is_swallowed():
    wrong = []
    for path in PRODUCT:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep":
                wrong.append(f"{name_of(path)}:{node.lineno} sleeps")
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "everything"
                silent = all(isinstance(line, (ast.Pass, ast.Continue)) for line in node.body)
                if silent and caught in ("everything", "Exception", "BaseException"):
                    wrong.append(f"{name_of(path)}:{node.lineno} swallows {caught}")
    assert not wrong


WAITS_FOR_EVER = {  # file -> reason
    "replay/cache.py": "the thread waits for work; `close` ends it, and joins in time",
}


def test_every_wait_has_a_timeout():
    without = set()
    for path in PRODUCT:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                waits = node.func.attr in ("wait", "join", "communicate")
                if waits and not node.args and not node.keywords:
                    without.add(name_of(path))
    assert without == set(WAITS_FOR_EVER)


def test_no_package_index_is_named():
    # pip uses whatever the machine is set up with. (Joined here, or this file would name them.)
    hosts = [".".join(parts) for parts in (("pypi", "org"), ("python" + "hosted", "org"))]
    hosts += [".".join(parts) for parts in (("pytorch", "org/whl"), ("anaconda", "org"))]
    for path in all_files(".py", ".md", ".yaml", ".toml", ".txt", "Makefile", "Dockerfile", "run"):
        text = path.read_text(encoding="utf-8")
        assert not [host for host in hosts if host in text], name_of(path)


def test_sequences_name_files_that_exist():
    for path in (ROOT / "ritornello" / "sequences").glob("*.yaml"):
        for name in re.findall(r"[\w/]+\.(?:md|yaml)\b", path.read_text(encoding="utf-8")):
            assert any((folder / name).exists() for folder in (ROOT, path.parent)), (
                f"{name_of(path)}: {name}"
            )


def command_lines():
    """Every line in a code block or in `code` of the documents that starts one of our programs."""
    found: list[tuple[Path, str]] = []
    for path in all_files(".md"):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for code in re.findall(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL):
            lines = "\n".join(code).splitlines()
            commands = [x for x in lines if re.search(r"python\S* \w+\.py|^make ", x)]
            found += [(path, command.split("  #")[0]) for command in commands]
    return found


def test_commands_in_documents_use_flags_that_exist():
    ours = {"sequence", "tune", "resume", "report", "results_dir", "dry_run", "list", "help"}
    for path, line in command_lines():
        for program, rest in re.findall(r"(main|multi_train)\.py([^|;&]*)", line):
            before, _, after = rest.partition(" -- ")
            own, others = (before, after) if program == "multi_train" else ("", rest)
            for known, text in ((ours, own), ({"help", "version"}, others)):
                names = set(re.findall(r"--([A-Za-z_]+)", text)) - known
                unknown = {name for name in names if flag_of(name) not in Flags.model_fields}
                assert not unknown - {*COMMANDS, RESUME_OR_START}, (
                    f"{name_of(path)}: {line.strip()!r}: {unknown}"
                )
        for flags in re.findall(r'ARGS="([^"]*)"', line):
            assert set(re.findall(r"--([A-Za-z_]+)", flags)) <= set(Flags.model_fields), line


PAGES = """
import json, sys
sys.path.insert(0, "docs")
import generate
print(json.dumps({str(path): text for path, text in generate.pages().items()}))
"""


@pytest.mark.process
def test_generated_documents_are_up_to_date():
    """In a process of its own: other tests register parts, which the pages would list."""
    done = subprocess.run(
        [sys.executable, "-c", PAGES],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=True, timeout=HANGS_S,
    )  # fmt: skip
    for name, content in json.loads(done.stdout).items():
        path = Path(name)
        assert path.exists(), "run `make docs`"
        assert path.read_text(encoding="utf-8") == content, f"{name_of(path)}: run `make docs`"


def test_every_flag_explains_itself():
    for name, field in Flags.model_fields.items():
        assert field.description, f"--{name} has no help"
        assert re.fullmatch(r"[a-z][A-Za-z0-9_]*", name), name
