from __future__ import annotations

import pytest

from ritornello.core.errors import first_line


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("it is torn.\nand more"), "it is torn"),
        (ValueError("\n  \n  it is torn\n"), "it is torn"),
        (ValueError(), "ValueError"),
        (ValueError("\x1b[31mred"), "[31mred"),
        (ValueError("x" * 1000), "x" * 300),
    ],
)
def test_of_an_error_the_first_line_is_told_fit_for_a_terminal(
    error: Exception, words: str
) -> None:
    assert first_line(error) == words
