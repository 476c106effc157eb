"""The source tree, as the house rules see it."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYER = {
    **{"core": 0},
    **{"wrappers": 1, "replay": 1, "transport": 1, "metrics": 1},
    **{"flags": 2},
    **{"option_flags": 3},  # the door of flags/
    **{"agent": 5},
    **{"sequences": 6},
    **{"analysis": 7},
    **{"main": 8, "multi_train": 8, "live": 8, "ritornello": 8},
}
# These packages lie at the top, and `ritornello/` has links to them; the others lie in it.
AT_THE_TOP = ("agent", "replay", "wrappers")
PROGRAMS = ("main.py", "multi_train.py", "option_flags.py")


def product_files():
    """Every Python file of the product, so without tests, benchmarks and research."""
    folders = [ROOT / name for name in (*AT_THE_TOP, "ritornello")]
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    inside = [path for path in found if not path.is_symlink()]
    return inside + [ROOT / name for name in PROGRAMS if (ROOT / name).exists()]


def all_files(*suffixes):
    """Every file of the repository with such a suffix, without what is ignored."""
    ignored = {".git", ".venv", "results", "__pycache__"}
    return [
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and (path.suffix in suffixes or path.name in suffixes)
        and not any(
            part in ignored or part.endswith("_cache") or part == ".hypothesis"
            for part in path.relative_to(ROOT).parts[:-1]
        )
    ]


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported_modules(path):
    """Return (line, module) of every import of a file, lazy ones included."""
    return tuple(_imports(path))


def _imports(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name.removeprefix("ritornello.")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            yield node.lineno, (node.module or "").removeprefix("ritornello.")


def package_of(path):
    """`ritornello/core/rng.py` -> `core`; `ritornello/table.py` -> `ritornello`."""
    parts = path.relative_to(ROOT).parts
    inside = parts[1:] if parts[0] == "ritornello" and len(parts) > 2 else parts
    return inside[0].removesuffix(".py")


def module_name(path):
    """`core/rng.py` -> `ritornello.core.rng`; a package's `__init__.py` -> the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = ("ritornello", *parts) if parts[0] in AT_THE_TOP else parts
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)
