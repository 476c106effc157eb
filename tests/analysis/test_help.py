"""The help of the analyses: whole at 80 columns."""

from __future__ import annotations

import pytest

from ritornello.analysis.__main__ import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    # An example is a command: broken into two lines it would not be one any more.
    said = [
        line for line in text.splitlines() if not line.startswith("  python -m ritornello.analysis")
    ]
    assert not [line for line in said if len(line) > 80]
