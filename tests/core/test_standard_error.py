import io

import pytest

from ritornello.core.standard_error import say


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
