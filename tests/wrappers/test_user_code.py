"""What the user reads about the code of an environment."""

import threading

import gymnasium
import pytest

from ritornello.core.errors import ConfigError
from ritornello.wrappers.check import check
from ritornello.wrappers.registry import gym_spec
from ritornello.wrappers.user_code import told_if_slow
from tests.extensions.own_environment import Light


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
    with told_if_slow("MyEnv-v0", patience_s=0.01):
        hangs_until(terminal.has_two_lines)
    first, second, *_ = terminal.text.splitlines()
    assert first.startswith("env MyEnv-v0 is tried out, and has not come back for 0 s. It is in")
    assert "test_user_code.py" in first
    assert "done.wait(240)`" in first
    assert second.endswith("Still waiting; Ctrl-C ends it.")


def hangs_until(done):
    assert done.wait(240)


class Sized(Light):
    """An environment that takes arguments."""

    def __init__(self, size=3, *, hardness=1.0, render_mode=None):
        super().__init__()


@pytest.fixture
def sized(monkeypatch):
    for name, maker in (("Sized-v0", Sized), ("Bare-v0", lambda: Light())):
        gymnasium.register(name, entry_point=maker)
    yield
    for name in ("Sized-v0", "Bare-v0"):
        del gymnasium.registry[name]


@pytest.mark.parametrize(
    ("env_id", "found"),
    [
        ("Sized-v0", "it takes size, hardness. Write one of these, or leave foo out."),
        ("Bare-v0", "leave foo out."),
    ],
)
def test_an_argument_that_an_environment_does_not_take_is_told_with_those_it_takes(
    sized, env_id, found
):
    told = f'--env_kwargs={{"foo": 1}} gives foo, which {env_id} does not take: {found}'
    with pytest.raises(ConfigError) as raised:
        gym_spec(env_id, '{"foo": 1}')
    assert str(raised.value) == told
    lines = []
    check(env_id, '{"foo": 1}', show=lines.append)
    assert lines[-1].endswith(f"making it: {told.removesuffix('.')}")
