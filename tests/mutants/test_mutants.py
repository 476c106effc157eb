"""That the mutants fit the source as it is; whether they are noticed: python -m tests.mutants."""

import ast
import os
import signal
import subprocess
import sys

import pytest

from tests.deadlines import HANGS_S
from tests.house import ROOT
from tests.mutants import table
from tests.mutants.__main__ import main
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import DoesNotApply, Mutant, Place, named
from tests.mutants.runner import Broken, Runner


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source_as_it_is(mutant):
    path, text = mutant.apply()
    assert text != path.read_text("utf-8")
    ast.parse(text)
    assert mutant.test_ids()


def test_there_are_enough_of_them_and_each_has_a_name_and_a_fault_of_its_own():
    assert len(MUTANTS) >= 60
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.place, mutant.fault) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("old", ["no such text", "ratios"])
def test_a_text_that_is_not_there_once_is_refused(old):
    mutant = Mutant("x", "y", Place("vtrace.py", old, ""), ("test_vtrace.py",))
    with pytest.raises(DoesNotApply, match=r"mutant x: expected once in vtrace.py, found \d+"):
        mutant.apply()


@pytest.mark.parametrize("test", ["test_no_such_file.py", "test_vtrace.py::test_no_such"])
def test_a_test_that_is_not_there_is_refused(test):
    with pytest.raises(DoesNotApply, match="mutant x"):
        Mutant("x", "y", Place("vtrace.py", "ratios", ""), (test,)).test_ids()


def test_mutants_are_found_by_parts_of_their_names():
    assert named(MUTANTS, "") == list(MUTANTS)
    assert {mutant.name for mutant in named(MUTANTS, "lag, entropy-s")} >= {
        "learner-lag-sign", "entropy-sign",
    }  # fmt: skip


def test_a_list_needs_no_run_and_a_name_that_nobody_has_is_refused(capsys):
    assert main(["--list", "--only=entropy-sign"]) == 0
    assert capsys.readouterr().out.startswith("entropy-sign ")
    assert main(["--only=nobody"]) == 2
    assert "--list" in capsys.readouterr().out


def test_the_documentation_has_the_verdict_on_every_mutant():
    found = table.in_page()
    assert list(found) == [mutant.name for mutant in MUTANTS]
    assert not [name for name, line in found.items() if table.SURVIVED in line]


def test_verdicts_are_put_beside_those_that_are_known(tmp_path, monkeypatch):
    page = tmp_path / "mutants.md"
    monkeypatch.setattr(table, "PAGE", page)
    page.write_text(f"before\n{table.BEGIN}{table.END}after\n", "utf-8")
    one, two, three = MUTANTS[:3]
    table.write([(two, ""), (three, "tests/a/test_a.py::test_it_is_so")], MUTANTS)
    table.write([(two, "tests/a/test_a.py::test_b"), (one, "")], MUTANTS)
    assert list(table.in_page()) == [one.name, two.name, three.name]
    assert table.SURVIVED in table.in_page()[one.name]
    assert "| `test_a.py`: test b |" in table.in_page()[two.name]
    assert "| `test_a.py`: test it is so |" in table.in_page()[three.name]
    table.write([], MUTANTS[1:])
    assert list(table.in_page()) == [two.name, three.name], "that of a mutant that is gone goes"
    assert page.read_text("utf-8").startswith("before\n")
    assert page.read_text("utf-8").endswith("after\n")


ASKED_TO_END = """
import os, pathlib, sys, tempfile
import tests.mutants.__main__ as program
class Runner:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mutants-")
        return self
    def __exit__(self, *exception):
        self.folder.cleanup()
    def run(self, mutant):
        os.kill(os.getpid(), {number})
program.Runner = Runner
sys.exit(program.main(["--only=entropy-sign", "--unchecked"]))
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_leaves_no_copy_of_the_tree(tmp_path, number):
    done = subprocess.run(
        [sys.executable, "-c", ASKED_TO_END.format(number=int(number))],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "interrupted after 0 of" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("new", "killed_by"),
    [
        ("self.carry = [0 for _ in left]\n", "test_the_fraction_is_carried_to_the_next_batch"),
        ("self.carry = list(left)\n", ""),
    ],
)
def test_a_fault_is_noticed_and_what_is_none_survives(new, killed_by):
    """In a copy of the tree: the source here is untouched."""
    test = "test_quotas.py::test_the_fraction_is_carried_to_the_next_batch"
    mutant = Mutant("x", "y", Place("quotas.py", "self.carry = left\n", new), (test,))
    path, _ = mutant.apply()
    sound = path.read_text("utf-8")
    with Runner(forks=False) as runner:
        assert runner.run(mutant).killed_by.rpartition("::")[2] == killed_by
        assert (runner.root / path.relative_to(ROOT)).read_text("utf-8") == sound
    assert path.read_text("utf-8") == sound


@pytest.mark.process
def test_if_the_tests_of_the_sound_program_fail_nothing_is_said_of_mutants():
    with Runner(forks=False) as runner, pytest.raises(Broken, match="sound program does not pass"):
        runner.check(["tests/replay/test_quotas.py::test_that_is_not_there"])
