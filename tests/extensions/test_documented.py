"""The page about parts of one's own shows the files that the tests run."""

import re

from tests.house import ROOT

PAGE = ROOT / "docs" / "your_own.md"
EXAMPLES = sorted((ROOT / "tests" / "extensions").glob("own_*.py"))


def test_the_examples_of_the_page_are_the_files_that_are_tested():
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert sorted(name for name, _ in blocks) == [
        path.relative_to(ROOT).as_posix() for path in EXAMPLES
    ]
    for name, code in blocks:
        assert code == (ROOT / name).read_text("utf-8"), f"copy {name} into {PAGE.name}"
