import sys

from ritornello.core.process_settings import SETTINGS, environment_to_restart_with


def test_only_what_is_missing_is_added_and_only_once(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")  # the user's own choice
    environment = environment_to_restart_with()
    assert environment is not None
    assert {name: environment[name] for name in SETTINGS} == {
        **SETTINGS,
        "OPENBLAS_NUM_THREADS": "7",
    }
    for name in SETTINGS:
        monkeypatch.setenv(name, environment[name])
    assert environment_to_restart_with() is None  # main.py would start itself for ever
