"""What the user reads about the code of an environment."""

import threading

from ritornello.wrappers import user_code


class Terminal:
    """Takes lines, and lets somebody wait for them."""

    def __init__(self):
        self.text = ""
        self.has_two_lines = threading.Event()

    def write(self, text):
        self.text += text
        if self.text.count("\n") >= 2:
            self.has_two_lines.set()

    def flush(self):
        pass


def test_an_environment_that_does_not_come_back_is_named_with_its_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(user_code, "PATIENCE_S", 0.01)
    with user_code.told_if_slow("MyEnv-v0"):
        hangs_until(terminal.has_two_lines)
    first, second, *_ = terminal.text.splitlines()
    assert first.startswith("env MyEnv-v0 is tried out, and has not come back for 0 s. It is in")
    assert "test_user_code.py" in first
    assert "done.wait(240)`" in first
    assert second.endswith("Still waiting; Ctrl-C ends it.")


def hangs_until(done):
    assert done.wait(240)
