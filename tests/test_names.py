"""Names on a command line: other spellings are taken, other programs' names are answered."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ritornello.agent.algorithms.base import FLAG_OF_FIELD
from ritornello.core.errors import ConfigError
from ritornello.flags.earlier import CONVERTED, is_earlier
from ritornello.flags.group import marks_of
from ritornello.flags.names import ALIASES, COMMANDS, HINTS, flag_of, named_values, unknown_option
from ritornello.flags.options import Flags
from ritornello.flags.parts import ALGORITHMS
from ritornello.flags.presets import PRESETS


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--unroll_length=7"], {"r_f_steps": "7"}),
        (["--max-steps", "9"], {"environment_max_steps": "9"}),
        (["--normalize_pixels=False"], {"normalise_pixels": "False"}),
        (["--xpid=a", "--run_name=b"], {"run_name": "b"}),
        (["--resume=x"], {"op_mode": "train_w_load", "load_model_url": "x"}),
        (["--test", "x"], {"op_mode": "test", "load_model_url": "x"}),
        (["--op_mode=test", "--test=x"], {"op_mode": "test", "load_model_url": "x"}),
    ],
)
def test_a_flag_has_several_spellings(argv, expected):
    assert named_values(argv) == expected


@pytest.mark.parametrize("given", ["--resume_or_start={run}", "--resume-or-start=~/results/a+1"])
def test_one_command_starts_a_run_and_then_goes_on_with_it(tmp_path, monkeypatch, given):
    monkeypatch.setenv("HOME", str(tmp_path))  # shells leave the ~ of an option as it is
    run = tmp_path / "results" / "a+1"
    argv = [given.format(run=run), "--load=models/pong"]
    start = {"op_mode": "train", "results_dir": str(run.parent), "run_name": "a+1"}
    start["load_model_url"] = "models/pong"
    assert named_values(argv) == start
    assert named_values([*argv, "--results_dir=~/results/"]) == start
    (run / "checkpoints").mkdir(parents=True)
    assert named_values(argv) == start, "killed before its first checkpoint"
    run.with_name("a+1_2").mkdir()
    # The later ones first: once a run has a checkpoint, another of such a name is another run.
    for name in ("a+1_10", "a+1_9", "a+1", "a+1_1"):
        checkpoints = run.with_name(name) / "checkpoints"
        checkpoints.mkdir(parents=True, exist_ok=True)
        (checkpoints / "update_000000001.pt").touch()
        own = name.removesuffix("_1")  # nor is the name ending in 1 ever given to a repeated one
        goes_on = {"op_mode": "train_w_load", "load_model_url": str(run.with_name(own))}
        assert named_values(argv) == goes_on, "and not from the weights that it began with"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--learning_rate=1"], "--learning_rate is not an option here: write --lr"),
        (["--track=True"], "write --sink=wandb"),
        (
            ["--sequence=smoke"],
            "--sequence is not an option here: write multi_train.py in the place",
        ),
        *(([f"--{x}="], f"--{x} needs a value, e.g. --{x}=results/<run>") for x in COMMANDS),
        (["--resume_or_start="], "--resume_or_start needs a value"),
        (["--resume_or_start=results/a b"], "--resume_or_start=results/a b: the last name must be"),
        (["--resume_or_start=models/pong"], "models/pong is a model folder, expected a run's"),
        (["--lr"], "--lr needs a value, e.g. --lr=0.00025"),
        (["--seed"], "--seed needs a value (--help=all explains it)"),
        (["--env_kwargs"], "--env_kwargs needs a value (--help=all explains it)"),
        (["--replay"], "e.g. --replay_parameters=queue:4:0.5,standard:1000:0.5"),
        (["resume", "x"], "write --resume=<run folder>"),
        (["--resume=a", "--test=b"], "--resume and --test cannot be done at once"),
        # Each job would begin anew where the last flag counted.
        *(
            (
                ["--resume_or_start=results/a", f"--{x}"],
                f"--resume_or_start=results/a and --{x} contradict each other",
            )
            for x in ("results_dir=c", "run_name=b", "op_mode=train", "new_run_folder=True")
        ),
        (["--resume=a", "--op_mode=train"], "--resume=a and --op_mode=train contradict each other"),
        (["--load=b", "--test=a"], "--test=a and --load_model_url=b contradict each other"),
        (
            ["--replay=[{type:", "queue,", "capacity:", "4}]"],
            "whole value in single",
        ),
    ],
)
def test_what_is_no_flag_is_answered(argv, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        named_values(argv)


MAY_BE_EMPTY = {
    *("env_kwargs", "env_shares", "action_set", "algorithm_kwargs", "ray_address", "sink"),
    "optimizer_decay",
}


@pytest.mark.parametrize("name", Flags.model_fields)
def test_only_a_flag_whose_default_is_empty_may_be_given_as_empty(name):
    """As by --load=$RUN where RUN is not set, which would begin anew."""
    if name in MAY_BE_EMPTY:
        assert named_values([f"--{name}="]) == {name: ""}
    else:
        with pytest.raises(ConfigError, match=f"^--{name} needs a value"):
            named_values([f"--{name}="])


def test_every_hint_names_flags_and_presets_that_exist_and_hides_none():
    known = {*Flags.model_fields, *COMMANDS}
    known |= {name for field in Flags.model_fields.values() if (name := marks_of(field).also)}
    theirs = [name for names in HINTS.values() for name in names.split()]
    assert len(theirs) == len(set(theirs))
    assert not {*theirs, *ALIASES} & known
    assert set(ALIASES.values()) <= known
    for hint in HINTS:
        assert set(re.findall(r"--(\w+)", hint)) <= known, hint
        assert set(re.findall(r"--preset=([\w-]+)", hint)) <= set(PRESETS), hint
    assert all(flag_of(name) == name or name in ALIASES for name in theirs)


def test_each_flag_of_an_earlier_system_is_answered_with_a_flag_of_its_row_in_the_docs():
    tables = Path("docs/migration.md").read_text().partition("Its other programs")[0]
    rows = re.findall(r"^\| `--(.*?) \|(.*)", tables, re.M)
    assert len(rows) > 40
    for theirs, told in rows:
        ours = {flag_of(name) for name in re.findall(r"--(\w+)", told)}
        for name in re.findall(r"--([\w-]+)", f"--{theirs}") if ours else ():
            is_taken = flag_of(name) in Flags.model_fields or is_earlier(name)
            hinted = {flag_of(other) for other in re.findall(r"--(\w+)", unknown_option(name))}
            assert is_taken or hinted & ours, unknown_option(name)


@pytest.mark.parametrize("algorithm", ALGORITHMS.shipped)
def test_who_gives_an_argument_of_an_algorithm_as_a_flag_is_told_where_it_belongs(algorithm):
    names = {field.name for field in fields(ALGORITHMS.find(algorithm).Config)}
    for name in names - FLAG_OF_FIELD.keys() - CONVERTED.keys():
        with pytest.raises(ConfigError, match=f"--{name} is .* write --algorithm_kwargs="):
            named_values([f"--{name}=0.5"])
