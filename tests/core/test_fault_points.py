"""Declared fault points and the places that pass them are the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ritornello.core.faults import POINTS
from tests.house import product_files


def places(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (name of the point, whether that is all of it) of every `faults.at` of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "faults.at":
            continue
        name = node.args[0]
        if isinstance(name, ast.JoinedStr):  # f"shutdown.{step}": one of several
            assert isinstance(name.values[0], ast.Constant), ast.unparse(node)
            yield str(name.values[0].value), False
        else:
            assert isinstance(name, ast.Constant), f"{path}: {ast.unparse(node)}: name it plainly"
            yield str(name.value), True


def test_each_declared_point_is_passed_somewhere_and_each_passed_one_is_declared() -> None:
    passed = [place for path in product_files() for place in places(path)]
    names = {name for name, whole in passed if whole}
    families = tuple(name for name, whole in passed if not whole)
    assert names <= set(POINTS)
    assert {name for name in POINTS if not name.startswith(families)} <= names
    for family in families:
        assert any(name.startswith(family) for name in POINTS), family


def test_each_point_says_when_it_is_passed() -> None:
    for name, text in POINTS.items():
        assert len(name.split(".")) == 2, name
        assert text[0].islower(), name
