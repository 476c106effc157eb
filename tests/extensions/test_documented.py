"""The pages about parts of one's own show the files that the tests run."""

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


def test_the_page_of_replay_shows_the_kind_that_is_tested():
    text = (ROOT / "docs" / "replay.md").read_text("utf-8")
    code = (ROOT / "tests/extensions/replay_kind.py").read_text("utf-8").split('"""\n\n', 1)[1]
    assert f"```python\n{code}```" in text
