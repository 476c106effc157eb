"""What is made of the answer of a cluster's head to somebody without a token.

Here no head is asked: a cluster that does, and one that does not, are in test_ray_refusals.py.
"""

from __future__ import annotations

import logging

import pytest

from ritornello.agent.cluster import token_check
from ritornello.agent.cluster.token_check import REFUSAL, lets_in_without_token

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("question", "lets_in", "warned_of"),
    [
        ("pass", True, ""),
        (f"class {REFUSAL}(Exception): pass\nraise {REFUSAL}('token missing')", False, ""),
        ("raise ImportError('token: renamed in another Ray')", False, "renamed in another Ray"),
        ("import os; os._exit(7)", False, "status 7"),
        ("import sys; sys.exit('\\x1b[2Jno token here')", False, r"\x1b[2Jno token here"),
    ],
    ids=["let in", "refused", "another Ray", "died", "hostile"],
)
def test_only_a_refusal_is_taken_for_one_without_a_word(
    question, lets_in, warned_of, monkeypatch, caplog
):
    monkeypatch.setattr(token_check, "QUESTION", question)
    with caplog.at_level(logging.WARNING):
        assert lets_in_without_token("127.0.0.1:1") is lets_in
    assert bool(caplog.text) is bool(warned_of)
    assert warned_of in caplog.text


def test_a_head_that_does_not_answer_in_time_is_warned_of(monkeypatch, caplog):
    monkeypatch.setattr(token_check, "QUESTION", "import time; time.sleep(600)")
    monkeypatch.setattr(token_check, "ASK_S", 0.2)
    assert lets_in_without_token("127.0.0.1:1") is False
    assert "no answer within" in caplog.text
