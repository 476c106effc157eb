"""YAML of users: a key that is given twice, and `<<`, which takes keys over from elsewhere."""

import pytest

from ritornello.core.errors import ConfigError
from ritornello.core.plain_yaml import parse_yaml


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("lr: 0.001\nseed: 1\nlr: 0.1\n", "lr", 3),
        ("runs:\n- {lr: 1}\n- {gamma: 1, 'lr': 2, lr: 3}\n", "lr", 3),
        ("a: &a {lr: 1, lr: 2}\nb: *a\n", "lr", 1),
        ("a: &a {gamma: 1}\nb: {<<: *a, lr: 1, lr: 2}\n", "lr", 2),
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_its_place(text, key, line):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "mine.yaml")
    message = str(caught.value)
    assert f"mine.yaml is not valid YAML: the key '{key}' is given twice" in message
    assert f"at line {line}, column" in message
    assert "delete one of the two" in message


@pytest.mark.parametrize("text", ["[{type:queue}]", "- {capacity: 4, type:queue, share: 1}"])
def test_a_colon_without_a_blank_is_told(text):
    told = r"it is not valid YAML: 'type:queue' has no blank .* expected type: queue at line 1"
    with pytest.raises(ConfigError, match=told):
        parse_yaml(text, "it")


@pytest.mark.parametrize("text", ["{mine:Env-v0: 1, mine:A: {}}", "{'a:b': }"])
def test_a_name_with_a_colon_may_be_a_key(text):
    parse_yaml(text, "it")


def test_what_is_taken_over_by_a_merge_may_be_said_otherwise():
    text = "a: &a {lr: 1, gamma: 1}\nb: &b {lr: 2}\nc: {lr: 3, <<: [*a, *b]}\n"
    assert parse_yaml(text, "it")["c"] == {"lr": 3, "gamma": 1}
    # `m` is taken over by `x` before it is itself made: it stands deeper.
    text = "a: &a {lr: 1}\nin: {deep: {m: &m {<<: *a, lr: 2}}}\nx: {<<: *m, gamma: 1}\n"
    assert parse_yaml(text, "it")["in"] == {"deep": {"m": {"lr": 2}}}
    assert parse_yaml(text, "it")["x"] == {"lr": 2, "gamma": 1}


def test_more_than_fits_into_memory_is_not_taken_over():
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: 0" for n in range(10)) + "}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="takes over more than 10,000 keys"):
        parse_yaml("\n".join(lines), "it")
