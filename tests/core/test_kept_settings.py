"""Whatever code of the user does to its process, the program finds it as it was."""

import contextlib
import logging
import logging.config
import os
import sys
import warnings

import pytest
import torch

from ritornello.core.errors import ConfigError
from ritornello.core.kept_settings import settings_kept
from ritornello.wrappers.user_code import import_module

PLAIN = {"version": 1, "root": {"level": "WARNING"}}  # disables the loggers that there are
DEEDS = {
    "dictConfig": lambda: logging.config.dictConfig(PLAIN),
    "disable": lambda: logging.disable(logging.CRITICAL),
    "level": lambda: logging.getLogger("ritornello.agent").setLevel(logging.CRITICAL),
    "propagate": lambda: setattr(logging.getLogger("ritornello"), "propagate", False),
    "filter": lambda: logging.getLogger().addFilter(lambda record: False),
    "own filter": lambda: log.addFilter(lambda record: False),
    "level of handlers": lambda: [each.setLevel(100) for each in logging.getLogger().handlers],
    "records": lambda: logging.setLogRecordFactory(lambda *given, **named: None),
    "chdir": lambda: os.chdir("/"),
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "no gradients": lambda: torch.set_grad_enabled(False),
    "device": lambda: torch.set_default_device("meta"),
    "recursion": lambda: sys.setrecursionlimit(500),
    "stdout": lambda: setattr(sys, "stdout", None),
    "warnings": lambda: warnings.simplefilter("ignore"),
}
log = logging.getLogger("ritornello.agent.run.training")


def state():
    root = logging.getLogger()
    return (
        *(os.getcwd(), sys.stdout, sys.stderr, sys.getrecursionlimit(), len(warnings.filters)),
        *(root.level, tuple(root.handlers), root.manager.disable, log.isEnabledFor(logging.INFO)),
        *([(h.level, *h.filters) for h in (root, *root.handlers)], logging.getLogRecordFactory()),
        *(
            list(log.filters),
            log.disabled,
            logging.getLogger("ritornello").propagate,
            log.getEffectiveLevel(),
        ),
        *(torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()),
    )


@pytest.mark.parametrize("deed", DEEDS)
def test_settings_are_as_before(deed, caplog):
    caplog.set_level(logging.INFO)
    before = state()
    with contextlib.suppress(RuntimeError), settings_kept():
        DEEDS[deed]()
        assert state() != before, "the deed changes nothing that is looked at"
        raise RuntimeError
    assert state() == before
    log.info("heard")
    assert "heard" in caplog.text


def test_a_directory_that_was_removed_is_passed_over(tmp_path):
    (tmp_path / "gone").mkdir()
    before = os.getcwd()
    os.chdir(tmp_path / "gone")
    try:
        with settings_kept():
            os.chdir("/")
            (tmp_path / "gone").rmdir()
    finally:
        os.chdir(before)


def test_a_module_of_the_user_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "changes_everything.py").write_text(
        "import logging, os, torch\n"
        "logging.disable(logging.CRITICAL)\n"
        "os.chdir('/')\n"
        "torch.set_default_dtype(torch.float64)\n"
        "raise ValueError('in the module')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = state()
    with pytest.raises(ConfigError, match="in the module"):
        import_module("changes_everything", "changes_everything:Id-v0")
    assert state() == before
