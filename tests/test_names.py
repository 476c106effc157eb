"""That the pages which explain names agree with the flags and with the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ritornello.agent.algorithms.base import FLAG_OF_FIELD
from ritornello.flags.options import Flags
from tests.house import ROOT

ROW = re.compile(r"^\| `--(\w+)` \| `(\w+)` \| `([\w/]+\.py)` \|", re.MULTILINE)


def listed() -> list[tuple[str, str, str]]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Names of one thing\n")[2].partition("\n## ")[0]
    return ROW.findall(section)


def names_in(path: Path) -> set[str]:
    """Return the arguments and the annotated fields of a file."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    fields = {node.target.id for node in nodes if is_field(node)}  # type: ignore[attr-defined]
    return fields | {node.arg for node in nodes if isinstance(node, ast.arg)}


def is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def test_each_row_names_a_flag_and_what_it_is_called_in_the_code() -> None:
    rows = listed()
    assert len(rows) > 20
    for flag, name, file in rows:
        assert flag in Flags.model_fields, flag
        assert name in names_in(ROOT / file), f"{file} has no {name}"


def test_every_field_of_an_algorithm_with_another_name_than_its_flag_is_listed() -> None:
    others = {(flag, field) for field, flag in FLAG_OF_FIELD.items() if flag != field}
    assert others <= {(flag, name) for flag, name, _ in listed()}


def test_the_picture_of_a_batch_names_the_classes_of_replay() -> None:
    page = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    section = page.partition("## From buffers to a batch\n")[2].partition("\n## ")[0]
    named = re.findall(r"-> (\w+)$", section, re.MULTILINE)
    defined = {
        node.name
        for path in (ROOT / "replay").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert len(named) > 5
    assert set(named) <= defined
