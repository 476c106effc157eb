import io
import time
import warnings

import pytest

from ritornello.core.standard_error import (
    WARNINGS_OF_A_LINE,
    limit_warnings,
    say,
    told_while_waiting,
)
from tests.deadlines import HANGS_S, wait_until


def test_a_line_is_written_at_once(capsys):
    say("a line")
    assert capsys.readouterr().err == "a line\n"


class Full(io.StringIO):
    def write(self, text):
        raise OSError(28, "No space left on device")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, Full(), closed()])
def test_where_nobody_can_read_it_nothing_happens(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    say("a line")


def test_a_long_wait_is_told_and_a_short_one_is_not(monkeypatch):
    said = []
    monkeypatch.setattr("ritornello.core.standard_error.say", said.append)
    with told_while_waiting(lambda waited_s: f"waiting for {waited_s:.2f} s", 60.0):
        pass
    assert said == []
    deadline = time.monotonic() + HANGS_S
    with told_while_waiting(lambda waited_s: f"waiting for {waited_s:.2f} s", 0.01):
        while len(said) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said[:2] == ["waiting for 0.01 s", "waiting for 0.03 s"]


def test_whoever_comes_forward_is_not_spoken_of(monkeypatch):
    asked, said = [], []

    def progress():
        asked.append(min(len(asked), 5))
        return asked[-1]

    text = "waiting for {:.2f} s".format
    with told_while_waiting(text, 0.01, progress=progress, tell=said.append):
        wait_until(lambda: said)
    assert asked[:6] == [0, 1, 2, 3, 4, 5]
    assert len(asked) > 6
    assert said[0] == "waiting for 0.01 s"


def test_a_line_that_warns_of_each_step_is_soon_quiet_and_others_are_not(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *more: shown.append(str(message)))
    limit_warnings()
    for step in range(100):
        warnings.showwarning(f"step {step} is odd", UserWarning, "env.py", 6)
    warnings.showwarning("another line", UserWarning, "env.py", 7)
    expected = [f"step {step} is odd" for step in range(WARNINGS_OF_A_LINE)]
    assert shown == [*expected, "another line"]
    assert capsys.readouterr().err.count("env.py:6: further warnings of this line") == 1
