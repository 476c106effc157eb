import ast
import sys

from tests.house import LAYER, ROOT, imported_modules, package_of, product_files

# Beyond the standard library. metrics/ finds tensorboard by its name, if it is there.
THIRD_PARTY = {
    "core": {"numpy", "yaml", "psutil"},
    "flags": {"pydantic", "pydantic_core"},
    "replay": {"numpy", "lz4"},
    "transport": {"numpy"},
    "wrappers": {"numpy", "gymnasium", "ale_py", "cv2"},
    "metrics": {"numpy", "rich", "matplotlib", "psutil", "imageio"},
}
PRODUCT = product_files()


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def test_imports_point_downwards():
    upwards = []
    for path in PRODUCT:
        package = package_of(path)
        for line, module in imported_modules(path):
            target = module.split(".")[0]
            known = package in LAYER and target in LAYER and target != package
            outside = target in ("tests", "benchmarks", "research")
            if outside or (known and LAYER[target] >= LAYER[package]):
                upwards.append(f"{name_of(path)}:{line} must not import {module}")
    assert not upwards


def test_lower_packages_use_only_their_own_libraries():
    foreign = []
    for path in PRODUCT:
        if (package := package_of(path)) in THIRD_PARTY:
            allowed = THIRD_PARTY[package] | set(sys.stdlib_module_names) | set(LAYER)
            for line, module in imported_modules(path):
                if module.split(".")[0] not in allowed:
                    foreign.append(f"{name_of(path)}:{line} imports {module}")
    assert not foreign


def test_ray_is_imported_in_one_file_and_only_when_it_is_used():
    users = {
        name_of(path)
        for path in PRODUCT
        for _, module in imported_modules(path)
        if module.split(".")[0] == "ray"
    }
    assert users == {"agent/cluster/ray_cluster.py"}
    tree = ast.parse((ROOT / "agent/cluster/ray_cluster.py").read_text(encoding="utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("ray" in (alias.name for alias in node.names) for node in at_once)
