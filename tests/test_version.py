"""One version: of the program, of its packaging, of its change log and of its citation."""

import json

import yaml

from ritornello import main
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.core.version import VERSION
from tests.house import ROOT


def test_the_program_says_its_version(capsys):
    assert main.main(["--version", "--lr=no"]) == 0
    assert capsys.readouterr().out == f"ritornello {VERSION}\n"


def test_a_run_records_it(tmp_path):
    folder = RunFolder.create(tmp_path, "CartPole-v1")
    folder.write_run_info(["main.py"])
    assert json.loads(folder.run_file.read_text())["version"] == VERSION


def test_the_citation_repeats_it():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == VERSION
    assert citation["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text("utf-8").startswith("MIT License")
