from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.house import LAYER, ROOMS, ROOT, imported_modules, product_files

# Beyond the standard library. metrics/ finds tensorboard by its name, if it is there.
THIRD_PARTY = {
    "core": {"numpy", "yaml", "psutil"},
    "flags": {"pydantic", "pydantic_settings", "pydantic_core"},
    "replay": {"numpy", "lz4"},
    "transport": {"numpy"},
    "wrappers": {"numpy", "gymnasium", "ale_py", "cv2"},
    "metrics": {"numpy", "rich", "matplotlib", "psutil", "imageio"},
}
# Packages that are imported under another name, by the name of the package.
IMPORTED_AS = {
    "ale-py": {"ale_py"},
    "opencv-python-headless": {"cv2"},
    "pydantic-settings": {"pydantic_settings", "pydantic", "pydantic_core"},
    "pyyaml": {"yaml"},
    "pillow": {"PIL"},
    "imageio, av": {"imageio"},
}
# Everywhere; by their names; by Gymnasium.
NOT_IMPORTED = {"numpy", "tensorboard", "nvidia-ml-py", "pygame-ce"}
NOT_IMPORTED |= {"mujoco", "box2d", "minigrid", "vizdoom"}
NOT_IMPORTED |= {"wandb", "mlflow-skinny", "trackio", "huggingface-hub", "optuna"}
# Flags are read where a run is put together; all below takes plain arguments.
READERS_OF_FLAGS = {
    "main.py",
    "multi_train.py",
    "agent/run/guardian.py",
    "agent/run/next_commands.py",
    "agent/run/several_checks.py",
    "agent/run/sharing.py",
    "agent/session.py",
    "agent/assembly.py",
    "agent/run/sources.py",
    "agent/run/trainer.py",
    "agent/run/training.py",
    "agent/run/reporting.py",
    "agent/testing/evaluator.py",
    "analysis/configuration.py",  # the defaults of flags that are newer than a run
    "sequences/populations.py",
    "sequences/typed_flags.py",  # so that a misspelled one is told what is near
}
# What flags choose from, which those who take the settings as plain values know as well.
SAID_ONCE = ("flags.parts", "flags.values", "flags.parsing", "flags.presets")
PRODUCT = product_files()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for line, module in imported_modules(path):
        target = module.split(".")[0]
        assert target not in ("tests", "benchmarks"), f"{path.name}:{line} imports {module}"
        if package in LAYER and target in LAYER and target != package:
            assert LAYER[target] < LAYER[package], (
                f"{name_of(path)}:{line}: {package} must not import {module}"
            )


@pytest.mark.parametrize("path", sorted((ROOT / "agent").rglob("*.py")), ids=name_of)
def test_rooms_import_only_rooms_before_them(path: Path) -> None:
    room = path.relative_to(ROOT / "agent").parts[0].removesuffix(".py")
    if room == "__init__":
        return
    assert room in ROOMS, f"{name_of(path)} is in no room: see tests/house.py, agent/__init__.py"
    for line, module in imported_modules(path):
        package, _, inner = module.partition(".")
        target = inner.partition(".")[0]
        if package == "agent" and target:
            assert target in ROOMS, f"{name_of(path)}:{line} imports {module}, which is in no room"
            assert ROOMS.index(target) <= ROOMS.index(room), (
                f"{name_of(path)}:{line}: {room} must not import {module}"
            )


def test_the_map_of_the_agent_names_every_room_in_order() -> None:
    text = (ROOT / "agent" / "__init__.py").read_text(encoding="utf-8")
    places = [text.index(f"`{room}") for room in ROOMS]
    by_themselves = [ROOMS.index("export"), ROOMS.index("torchbeast")]
    shown = [place for index, place in enumerate(places) if index not in by_themselves]
    assert shown == sorted(shown)


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_lower_packages_use_only_their_own_libraries(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    if package not in THIRD_PARTY:
        return
    allowed = THIRD_PARTY[package] | set(sys.stdlib_module_names) | set(LAYER)
    foreign = {module for _, module in imported_modules(path)}
    assert not {module for module in foreign if module.split(".")[0] not in allowed}


def test_the_dependencies_are_used_where_the_page_says() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (`[^|]+) \|$", page, re.MULTILINE)
    assert len(rows) > 10
    for package, places in rows:
        if package in NOT_IMPORTED:
            continue
        names = IMPORTED_AS.get(package, {package})
        used = {
            name_of(path).partition("/")[0] + ("/" if "/" in name_of(path) else "")
            for path in PRODUCT
            for _, module in imported_modules(path)
            if module.split(".")[0] in names
        }
        assert set(re.findall(r"`([^`]+)`", places)) == used, package


def test_ray_is_imported_in_one_file_and_only_when_it_is_used() -> None:
    users = {
        name_of(path)
        for path in PRODUCT
        for _, module in imported_modules(path)
        if module.split(".")[0] == "ray"
    }
    assert users == {"agent/cluster/ray_engine.py"}
    tree = ast.parse((ROOT / "agent/cluster/ray_engine.py").read_text(encoding="utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("ray" in (alias.name for alias in node.names) for node in at_once)


def test_flags_are_read_only_where_a_run_is_put_together() -> None:
    readers = {
        name_of(path)
        for path in PRODUCT
        for _, module in imported_modules(path)
        if module.split(".")[0] in ("option_flags", "flags")
        and module not in SAID_ONCE
        and name_of(path).split("/")[0] not in ("option_flags.py", "flags")
    }
    assert readers <= READERS_OF_FLAGS


def test_one_file_knows_how_learners_are_connected() -> None:
    importers = {
        name_of(path)
        for path in PRODUCT
        for _, module in imported_modules(path)
        if module.startswith("torch.distributed")
    }
    assert importers == {"agent/learners/group.py"}


def test_only_the_programs_know_the_sequences() -> None:
    for path in PRODUCT:
        if path.relative_to(ROOT).parts[0] not in (
            *("sequences", "analysis", "experiments", "live", "multi_train.py"),
        ):
            assert not any(module.startswith("sequences") for _, module in imported_modules(path))
