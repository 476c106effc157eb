import json
import os

import pytest

from ritornello.core.errors import ConfigError
from ritornello.flags.flags_file import ONLY_TYPED
from ritornello.flags.options import Flags
from ritornello.flags.parsing import parse
from ritornello.flags.presets import PRESETS
from ritornello.wrappers import trusted_modules


@pytest.fixture(autouse=True)
def trusting_nobody(monkeypatch):
    monkeypatch.setattr(trusted_modules, "_trusted", set())


def resolve(*argv, checkpoint=None, family="atari"):
    return parse(argv, lambda *_: checkpoint or {}, lambda *_: family)


def written(tmp_path, text, name="run.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return f"--flags_file={path}"


YAML = """
env: CartPole-v1
lr: 1e-3
batch_size: 16
frame_scale_resolution: [96, 64]
replay_parameters:
  - {type: queue, capacity: 4, sample_ratio: 1}
use_lstm: yes
stop_at_mean_return: 475
"""


def test_flags_are_read_from_yaml_and_what_is_typed_wins(tmp_path):
    flags = resolve(written(tmp_path, YAML), "--batch_size=8")
    assert (flags.env, flags.lr, flags.batch_size) == ("CartPole-v1", 1e-3, 8)
    assert flags.frame_scale_resolution == (96, 64)
    assert [buffer["type"] for buffer in flags.replay_parameters] == ["queue"]
    assert (flags.use_lstm, flags.stop_at_mean_return) == (True, 475)


def test_the_flags_of_a_run_are_used_again_but_for_those_of_its_command(tmp_path):
    first = resolve(
        "--seed=5", "--lr=0.01", "--results_dir=elsewhere", "--render=True", "--env=six",
        "--env_shares=1,2,3,4,5,6", "--rho_const=inf",
    )  # fmt: skip
    (tmp_path / "flags.json").write_text(json.dumps(first.to_json() | {"of_another_version": 1}))
    for path in (tmp_path / "flags.json", tmp_path):
        again = resolve(f"--flags_file={path}")
        assert (again.seed, again.lr, again.env) == (5, 0.01, first.env)
        assert (again.env_shares, again.rho_const) == (first.env_shares, float("inf"))
        assert (again.results_dir, again.render) == ("results", False)
    other = resolve(f"--flags_file={tmp_path}", "--env=PongNoFrameskip-v4")
    assert other.env_shares == ()


def test_what_an_earlier_run_was_given_as_empty_is_read_as_before(tmp_path):
    empty = dict.fromkeys(("preset", "load_model_url", "flags_file", "evaluation_preset"), "")
    record = resolve("--lr=0.01").to_json() | empty
    (tmp_path / "flags.json").write_text(json.dumps(record))
    assert resolve(f"--flags_file={tmp_path}").lr == 0.01
    resumed = resolve("--resume=somewhere", checkpoint=record)
    assert (resumed.lr, resumed.load_model_url) == (0.01, "somewhere")


def test_a_preset_in_the_file_is_below_its_other_flags_and_a_typed_one_above_them(tmp_path):
    file = written(tmp_path, "preset: impala-shallow\nlr: 0.5\n")
    flags = resolve(file)
    assert (flags.lr, flags.optimizer) == (0.5, "rmsprop_tf")
    flags = resolve(file, "--preset=impala-deep")
    assert (flags.lr, flags.model) == (PRESETS["impala-deep"].flags["lr"], "resnet")


def test_the_file_wins_over_a_checkpoint_and_over_the_family(tmp_path):
    url = ("--op_mode=train_w_load", "--load_model_url=somewhere")
    stored = {"lr": 0.3, "gamma": 0.5, "env": "A,B", "env_shares": [1, 2]}
    flags = resolve(*url, written(tmp_path, "lr: 0.2\nenv: C,D\n"), checkpoint=stored)
    assert (flags.lr, flags.gamma, flags.env_shares) == (0.2, 0.5, ())
    assert resolve(written(tmp_path, "model: nature"), family="vector").model == "nature"


@pytest.mark.parametrize("typed", ["--env=A,B", "--preset=cartpole"])
def test_what_the_file_says_of_its_games_goes_with_them(tmp_path, typed):
    games = {"env": "C,D", "env_shares": [2, 1], "env_kwargs": '{"size": 5}', "lr": 0.3}
    file = written(tmp_path, json.dumps(games), "mine.json")
    flags = resolve(file, typed)
    assert (flags.env_shares, flags.env_kwargs, flags.lr) == ((), "", 0.3)
    for same in ("C,D", "a.module.that_was_moved:C,D"):
        flags = resolve(file, f"--env={same}")
        assert (flags.env_shares, flags.env_kwargs) == ((2, 1), '{"size": 5}')


def test_what_is_done_read_and_written_where_is_typed(tmp_path):
    for name in sorted(ONLY_TYPED):
        with pytest.raises(ConfigError, match=f"sets {name}, which no file may: type --{name}"):
            resolve(written(tmp_path, f"{name}: x\n"))


def test_a_file_names_no_code(tmp_path):
    file = written(tmp_path, "env: evil_module:Env-v0\n")
    with pytest.raises(ConfigError, match=r"from --flags_file=.*run.yaml: expected a plain id"):
        resolve(file)
    record = resolve().to_json() | {"env": "evil_module:Env-v0", "trust_env_module": True}
    (tmp_path / "flags.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="expected a plain id"):
        resolve(f"--flags_file={tmp_path}")
    assert resolve(file, "--trust_env_module=True").env == "evil_module:Env-v0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("learning_rate: 3", "--learning_rate is not an option here: write --lr"),
        ("max_steps: 5\nenvironment-max-steps: 7", "'environment-max-steps', which are one"),
        ("evaluate_every_steps: yes", "--evaluate_every_steps=True: expected a whole number"),
        ("lr: true", "--lr=True: input should be a valid number"),
        ("cache_output_buffer_size: on", "=True: expected auto or a whole number"),
        ("op_mode: [", "not valid YAML"),
        ("lr: 0.001\nlr: 0.1", "the key 'lr' is given twice, .*at line 2"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("a: &a [1,1,1,1,1,1,1,1]\n" + "".join(
            f"a{n}: &a{n} [{','.join(['*a' + (str(n - 1) if n else '')] * 9)}]\n"
            for n in range(8)), "more than"),
        ("\n".join(f"no_flag_{n}: 1" for n in range(500)), "and 480 more"),
        ("replay_parameters: [{type: queue}]", "replay buffer 1 lacks capacity"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_honoured_is_one_message(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(written(tmp_path, content))
    assert len(str(caught.value)) < 20_000
    assert len(str(caught.value).splitlines()) <= 22


def test_a_file_that_is_none_is_one_message(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, message in (
        ("gone.yaml", "cannot read the flags file"),
        ("pipe.yaml", "not a regular file"),
        (".", "cannot read the flags file"),
        ("x" * 300, "must be a path|cannot read"),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve(f"--flags_file={tmp_path / name}")
    with pytest.raises(ConfigError, match="longer than"):
        resolve(written(tmp_path, "lr: 1\n" + "#" * 300_000))


def test_a_sequence_names_no_flags_file(tmp_path):
    overrides = tmp_path / "overrides.json"
    overrides.write_text(json.dumps({"flags_file": str(tmp_path / "run.yaml")}))
    with pytest.raises(ConfigError, match="gives flags_file, which only the command line may"):
        resolve(f"--multi_train_overrides={overrides}")


def test_a_resumed_run_does_not_read_the_file_of_its_first_command_again():
    stored = {"flags_file": "gone.yaml", "run_name": "first", "lr": 0.3}
    flags = resolve("--op_mode=train_w_load", "--load_model_url=somewhere", checkpoint=stored)
    assert (flags.flags_file, flags.run_name, flags.lr) == (None, None, 0.3)


@pytest.mark.parametrize(
    "name",
    ["..", ".hidden", "a/b", "a b", "-x", "A" * 101, "é", "a:b"],
)
def test_a_name_that_is_not_plain_is_refused(name):
    with pytest.raises(ConfigError, match="--run_name=.*must be a plain name"):
        resolve(f"--run_name={name}")


def test_a_run_that_makes_no_folder_takes_no_name():
    url = "--load_model_url=somewhere"
    for mode in ("test", "train_w_load"):
        with pytest.raises(ConfigError, match="names the folder of a new run"):
            resolve(f"--op_mode={mode}", url, "--run_name=x")
    assert resolve("--op_mode=train_w_load", url, "--run_name=x", "--new_run_folder=True")
    assert resolve(url, "--run_name=x").run_name == "x"


def test_flags_that_no_file_may_set_belong_to_one_command():
    from ritornello.flags.parsing import NOT_FROM_CHECKPOINT

    assert ONLY_TYPED <= NOT_FROM_CHECKPOINT <= set(Flags.model_fields)


def test_a_file_of_ones_own_may_be_named_flags_json_and_is_checked(tmp_path):
    path = tmp_path / "flags.json"
    path.write_text('{"lr": 0.01, "bach_size": 8}')
    with pytest.raises(ConfigError, match="batch_size"):
        resolve(f"--flags_file={path}")
    path.write_text('{"lr": 0.01, "preset": "laser"}')
    flags = resolve(f"--flags_file={path}")
    assert (flags.lr, flags.use_lstm) == (0.01, resolve("--preset=laser").use_lstm)
    (tmp_path / "run.json").write_text("{}")  # beside it, it is of a run
    path.write_text('{"lr": 0.01, "of_another_version": 8}')
    assert resolve(f"--flags_file={path}").lr == 0.01


@pytest.mark.parametrize("name", ["resume", "test", "load_model_url"])
def test_the_home_folder_is_found_behind_a_tilde(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.json").write_text('{"lr": 0.5}')
    asked = []
    parse(
        ["--flags_file=~/mine.json", f"--{name}=~/run"], lambda url, mode: asked.append(url) or {}
    )
    assert asked == [str(tmp_path / "run")]
