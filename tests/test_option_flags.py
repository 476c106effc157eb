import json
import shlex

import pytest

from ritornello.core.errors import ConfigError
from ritornello.flags.options import MIN_SCHEDULE_STEPS, Flags
from ritornello.flags.parsing import idle_rules, parse
from ritornello.flags.presets import PRESETS, describe
from ritornello.replay.registry import SHIPPED, sampler_of


def resolve(*argv, checkpoint=None, family="atari"):
    return parse(argv, lambda *_: checkpoint or {}, lambda env, env_kwargs, backend: family)


def overrides(tmp_path, **values):
    path = tmp_path / "overrides.json"
    path.write_text(json.dumps(values))
    return f"--multi_train_overrides={path}"


RESUME = ("--op_mode=train_w_load", "--load_model_url=somewhere")


def test_each_source_wins_over_those_below_it(tmp_path):
    checkpoint = {"lr": 0.3, "gamma": 0.3, "batch_size": 3, "seed": 3}
    file = overrides(tmp_path, lr=0.2, gamma=0.2)
    flags = resolve(*RESUME, file, "--lr=0.1", checkpoint=checkpoint, family="vector")
    assert (flags.lr, flags.gamma, flags.batch_size, flags.seed) == (0.1, 0.2, 3, 3)
    assert flags.model == PRESETS["vector"].flags["model"] == "mlp"
    assert flags.vtrace_lambda == Flags.model_fields["vtrace_lambda"].default
    assert PRESETS["vector"].flags["lr"] != 0.1


@pytest.mark.parametrize(
    ("argv", "algorithm", "like"),
    [
        ((), "impact", "impact-mujoco"),
        (("--preset=sticky",), "impact", "impact-mujoco"),
        (("--algorithm=impala",), "impala", "mujoco"),
        (("--kl_mask_kind=kl_pi_mu",), "impala", "mujoco"),
        (("--preset=clear",), "impala", "mujoco,clear"),
        (("--preset=clear,impact",), "impact", "impact-mujoco,clear,impact"),
        (("--preset=mujoco",), "impala", "mujoco"),
        (("--preset=sticky, vector",), "impala", "vector"),
        (("--preset=vector", "--algorithm=impact"), "impact", "vector"),
    ],
)
def test_real_numbers_begin_with_one_set_of_flags_that_fit_together(argv, algorithm, like):
    flags = resolve(*argv, family="impact-mujoco")
    assert flags.algorithm == algorithm
    expected = resolve(f"--preset={like}", family="vector")
    for name in ("algorithm_kwargs", "replay_parameters", "r_f_steps", "lr", "use_popart"):
        assert getattr(flags, name) == getattr(expected, name), name


def test_a_checkpoint_may_remember_a_preset_that_is_no_more():
    assert resolve(*RESUME, checkpoint={"preset": "gone", "lr": 0.3}, family="vector").lr == 0.3


def test_a_preset_of_a_flags_file_says_as_well_how_real_numbers_begin(tmp_path):
    (tmp_path / "flags.yaml").write_text("preset: vector")
    file = f"--flags_file={tmp_path / 'flags.yaml'}"
    flags = resolve(file, "--preset=elite", family="impact-mujoco")
    assert flags == resolve(file, "--preset=elite", family="vector")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_sets_what_it_says(name):
    flags = resolve(f"--preset={name}")
    for flag, value in PRESETS[name].flags.items():
        if flag != "replay_parameters":
            assert getattr(flags, flag) == value
    assert sampler_of(flags.replay_parameters[0]["type"]).sets_the_pace()
    # What help shows can be typed.
    typed = resolve(f"--preset={name}", *shlex.split(describe(PRESETS[name])))
    assert typed == flags


def test_every_shipped_kind_of_replay_has_a_preset():
    lists = [preset.flags.get("replay_parameters", []) for preset in PRESETS.values()]
    assert {buffer["type"] for buffers in lists for buffer in buffers} == SHIPPED


def test_what_the_user_says_wins_over_the_preset_and_the_later_preset_over_the_earlier():
    flags = resolve("--preset=impala-shallow,impala-deep", "--lr=0.1")
    assert (flags.lr, flags.model, flags.optimizer) == (0.1, "resnet", "rmsprop_tf")
    assert resolve("--preset=impala-deep,impala-shallow").model == "impala_shallow"


def test_a_preset_that_is_given_wins_over_the_checkpoint_a_remembered_one_does_not():
    stored = {"preset": "sticky", "action_set": "", "lr": 0.3}
    flags = resolve(*RESUME, checkpoint=stored)
    assert (flags.preset, flags.action_set, flags.lr) == ("sticky", "", 0.3)
    flags = resolve(*RESUME, "--preset=impala-shallow", checkpoint=stored)
    assert flags.lr == PRESETS["impala-shallow"].flags["lr"]


def test_what_belongs_to_one_invocation_never_comes_from_a_checkpoint():
    flags = resolve(*RESUME, checkpoint={"render": True, "op_mode": "test"})
    assert flags.render is False
    assert flags.op_mode == "train_w_load"


START = ("--load_model_url=somewhere",)


def test_a_run_that_starts_from_weights_takes_their_flags():
    stored = {"lr": 0.3, "env": "six", "env_shares": [1, 2, 3, 4, 5, 6]}
    flags = resolve(*START, "--gamma=0.5", checkpoint=stored)
    assert (flags.op_mode, flags.lr, flags.gamma) == ("train", 0.3, 0.5)
    assert flags.env.count(",") == 5
    assert flags.env_shares == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("mode", [START, RESUME, ("--op_mode=test", *START)])
def test_shares_of_other_games_are_not_taken_along(mode):
    stored = {"env": "PongNoFrameskip-v4,BreakoutNoFrameskip-v4", "env_shares": [2, 1]}
    assert resolve(*mode, checkpoint=stored).env_shares == (2, 1)
    assert resolve(*mode, "--env=PongNoFrameskip-v4", checkpoint=stored).env_shares == ()
    # Whoever names the game: a preset above does as well.
    flags = resolve(*mode, "--preset=cartpole", checkpoint=stored)
    assert (flags.env, flags.env_shares) == ("CartPole-v1", ())
    assert resolve(*mode, "--preset=sticky", checkpoint=stored).env_shares == (2, 1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (["--env=A,,B"], "--env=A,,B: .*single commas"),
        (["--env=A,A"], "names A more than once"),
        (["--env=A,B", "--env_shares=1,2,3"], "3 numbers and --env 2 games"),
        (["--machine_share=2/2"], "expected <which>/<of how many>"),
        (["--machine_share=²/4"], "expected <which>/<of how many>"),
        (["--lr_scheduler_steps=10uu"], "lr_scheduler_steps"),
        ([f"--seed={2**63}"], "--seed=.*less than 9223372036854775808"),  # no file would hold it
    ],
)
def test_wrong_lists_of_games_and_bounds_are_refused(said, message):
    with pytest.raises(ConfigError, match=message):
        resolve(*said)


@pytest.mark.parametrize("text", ["2500000", "2_500_000", "2.5e6", "25E+5", " 2500000 "])
def test_a_count_may_be_written_as_people_write_it(text):
    flags = resolve(f"--environment_max_steps={text}", f"--lr_scheduler_steps={text}")
    assert (flags.environment_max_steps, flags.lr_scheduler_steps) == (2_500_000, 2_500_000)


@pytest.mark.parametrize("text", ["1e16", "1e30", "1.5e99"])
def test_a_count_beyond_its_bound_is_refused_however_large(text):
    with pytest.raises(ConfigError, match="must be from 1 to 1e"):
        resolve(f"--environment_max_steps={text}")


@pytest.mark.parametrize("text", ["1.5e0", "1e-3", "e6", "1e", "1e400000000", "nan", "1.0001e3"])
def test_what_is_no_whole_number_is_no_count(text):
    with pytest.raises(ConfigError, match="--batch_size=.*: expected a whole number"):
        resolve(f"--batch_size={text}")
    with pytest.raises(ConfigError, match="=.*: expected a whole number or <number>u for updates$"):
        resolve(f"--lr_scheduler_steps={text}")


@pytest.mark.parametrize(
    ("said", "flag", "value"),
    [
        ("use_kl_mask=False", "kl_mask_kind", "none"),
        ("clip_rewards=False", "reward_clipping_method", "none"),
        ("use_policy_cloning_loss=True", "policy_cloning_loss_weight", 0.01),
        ("impact_clip=0.2", "algorithm_kwargs", '{"surrogate_clip": 0.2}'),
        ("impact_clip=.25", "algorithm_kwargs", '{"surrogate_clip": 0.25}'),
        ("impact_target_period=4", "algorithm_kwargs", '{"target_period": 4}'),
        ("full_action_space=True", "action_set", "all"),
        ("adam_beta1=0.8", "optimizer_decay", (0.8, 0.999)),
        ("cuda_graph=False", "compile", False),
        ("caching=False", "caching_threads", 0),
        ("agent_count=3", "machine_share", "0/3"),
    ],
)
def test_a_flag_of_an_earlier_version_is_taken_in_todays_form(tmp_path, said, flag, value):
    assert getattr(resolve(f"--{said}"), flag) == value
    name, _, text = said.partition("=")
    assert getattr(resolve(overrides(tmp_path, **{name: text})), flag) == value


@pytest.mark.parametrize(
    ("said", "flag", "value"),
    [
        ("use_kl_mask=True", "kl_mask_kind", "kl_pi_mu"),
        ("use_kl_mask=False", "kl_mask_kind", "none"),
        ("use_policy_cloning_loss=True", "policy_cloning_loss_weight", 0.05),
        ("use_policy_cloning_loss=False", "policy_cloning_loss_weight", 0.0),
        ("rmsprop_eps=0.1", "optimizer_eps", 0.1),
    ],
)
def test_a_flag_of_an_earlier_version_means_what_its_preset_says(tmp_path, said, flag, value):
    preset = "older-platform"
    assert getattr(resolve(f"--preset={preset}", f"--{said}"), flag) == value
    name, _, text = said.partition("=")
    assert getattr(resolve(overrides(tmp_path, preset=preset, **{name: text})), flag) == value
    assert getattr(resolve(overrides(tmp_path, preset=preset), f"--{said}"), flag) == value
    file = tmp_path / "mine.yaml"
    file.write_text(f"preset: {preset}\n{name}: {text}\n")
    assert getattr(resolve(f"--flags_file={file}"), flag) == value


@pytest.mark.parametrize(
    "said", ["--impact_clip=inf", "--algorithm_kwargs={", "--algorithm_kwargs=[1]"]
)
def test_arguments_that_are_none_are_refused_beside_an_earlier_flag(said):
    with pytest.raises(ConfigError, match=r"^--algorithm_kwargs=.*: "):
        resolve("--impact_clip=0.2", said)


def test_a_run_of_an_earlier_version_goes_on_as_it_was():
    stored = {
        **{"compile": False, "cuda_graph": True, "use_kl_mask": False, "kl_mask_kind": "implied"},
        **{"use_policy_cloning_loss": False, "policy_cloning_loss_weight": 0.01},
        **{"use_lstm": True, "lstm_layers": 2, "clip_rewards": True, "impact_values": "target"},
        **{"reward_clipping_method": "abs_one_clamp", "lr_scheduler_steps": 5},
        **{"lr_scheduler_updates": 0, "optimizer": "adam", "adam_eps": 1e-4, "rmsprop_eps": 0.1},
        **{"advantage_lambda": None, "a_flag_that_nobody_remembers": 1},
    }
    flags = resolve(*RESUME, checkpoint=stored)
    assert (flags.compile, flags.kl_mask_kind, flags.use_lstm) == ("auto", "none", 2)
    assert (flags.policy_cloning_loss_weight, flags.algorithm_kwargs) == (0, "")
    assert (flags.reward_clipping_method, flags.lr_scheduler_steps) == ("abs_one_clamp", 5)
    assert flags.optimizer_eps == 1e-4


@pytest.mark.parametrize(
    ("argv", "steps"),
    [
        (["--replay=queue:4:0.5,standard:9:0.5"], 80),  # of 8 unrolls of 20 steps half are new
        (["--replay=standard:4:1", "--max_draws_per_unroll=4"], 40),
        # A queue beside it hands on 4 new ones, and the circular buffer needs 2 of them.
        (["--replay=circular:32:0.5:uses=2,queue:4:0.5"], 80),
    ],
)
def test_a_schedule_in_updates_is_as_long_as_the_steps_that_these_updates_take(argv, steps):
    assert resolve("--lr_scheduler_steps=100u", *argv).schedule_steps == 100 * steps


def test_rules_of_atari_that_are_asked_for_elsewhere_are_found_wherever_they_are_from(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("fire_reset: false\nnoop_threshold: 0\n")
    argv = ["--env=CartPole-v1", "--skipped_frames=2", "--preset=sticky", f"--flags_file={file}"]
    asked = {*idle_rules(resolve(*argv, family="vector"), shows_images=False)}
    assert asked >= {"skipped_frames", "repeat_action_probability", "fire_reset"}
    assert "noop_threshold" not in asked, "that is what is done anyway"
    assert idle_rules(resolve("--frames_stacked=2", family="vector"), False) == ["frames_stacked"]
    for family, shows_images in (("vector", False), ("image", True)):
        assert idle_rules(resolve(family=family), shows_images) == []


BOOLEANS = [name for name, f in Flags.model_fields.items() if f.annotation is bool]


@pytest.mark.parametrize(
    ("text", "value"), [("True", True), ("False", False), ("0", False), ("yes", True)]
)
def test_every_boolean_honours_true_and_false(text, value):
    for name in BOOLEANS:
        assert getattr(resolve(f"--{name}={text}"), name) is value


def test_without_a_queue_a_pace_is_demanded():
    replay = '[{"type": "standard", "capacity": 9, "sample_ratio": 1}]'
    with pytest.raises(ConfigError, match="max_draws_per_unroll"):
        resolve(f"--replay_parameters={replay}")
    assert resolve(f"--replay_parameters={replay}", "--max_draws_per_unroll=4")


def test_short_runs_keep_their_learning_rate_and_long_ones_anneal_it_to_their_end():
    assert resolve("--environment_max_steps=1000").schedule_steps == MIN_SCHEDULE_STEPS
    assert resolve("--environment_max_steps=50000000").schedule_steps == 50_000_000
    assert resolve("--lr_scheduler_steps=77").schedule_steps == 77


def test_a_list_that_is_given_twice_is_taken_from_the_last_one():
    once = [{"type": "queue", "capacity": 3, "sample_ratio": 1}]
    again = [{"type": "queue", "capacity": 7, "sample_ratio": 1}]
    flags = resolve(
        f"--replay_parameters={json.dumps(once)}",
        "--env_shares=1,2",
        "--lr=1e-3",
        "--env=A,B",
        f"--replay-parameters={json.dumps(again)}",
        "--env_shares=3,4",
        "--lr=2e-3",
    )
    assert [buffer["capacity"] for buffer in flags.replay_parameters] == [7]
    assert (flags.env_shares, flags.lr) == ((3.0, 4.0), 2e-3)


LONG = "x" * 100_000
MANY = json.dumps([[{"type": "no"}] * 30] * 300)


@pytest.mark.parametrize(
    "argv",
    [
        [f"--batch_size={LONG}"],
        [f"--env={'A,' * 5000}A"],
        [f"--{LONG}=1"],
        [f"--action_set={LONG}\n"],
        [f"--replay_parameters={MANY}"],
        [f'--replay_parameters=[{{"type": "{LONG}", "capacity": 1, "sample_ratio": 1}}]'],
        [f"--no_flag_{n}=1" for n in range(500)],
        [f"--lr={LONG}", f"--gamma={LONG}", f"--render={LONG}", f"--seed={LONG}"],
        [f"--multi_train_overrides={LONG}"],
    ],
    ids=lambda argv: argv[0][:30],
)
def test_no_message_is_longer_than_a_screen(argv):
    with pytest.raises(ConfigError) as caught:
        resolve(*argv)
    lines = str(caught.value).splitlines()
    assert len(lines) <= 21
    assert sum(map(len, lines)) <= 4000
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("argv", [["--no\x1b[2Jsuch=1"], ["\x1b[31m"], ["--lr=\x1b[2J"]])
def test_a_terminal_finds_nothing_to_obey_in_a_message(argv):
    with pytest.raises(ConfigError) as caught:
        resolve(*argv)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "not text in UTF-8"),
        (b"[" * 100_000, "nested too deeply|not valid JSON"),
        (b'[["lr", 0.1]]', "expected a mapping"),
        (b'{"lr": ' + b"9" * 5000 + b"}", "number that is too long"),
        (b'{"results_dir": "a\\u0000b"}', "--results_dir=a\\\\x00b: .*printable"),
        (b'{"replay_parameters": ' + b"[" * 900 + b"]" * 900 + b"}", "nested too deeply"),
    ],
)
def test_an_overrides_file_that_is_none_is_refused_with_one_message(tmp_path, content, message):
    path = tmp_path / "overrides.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        resolve(f"--multi_train_overrides={path}")


@pytest.mark.parametrize("word", ["none", "null"])
def test_what_the_help_calls_none_can_be_typed(word, tmp_path):
    argv = ["--preset=minigrid", f"--entropy_end_weight={word}"]
    flags = resolve(*argv)
    assert flags.entropy_end_weight is None
    file = tmp_path / "run.yaml"
    file.write_text(f"optimizer_eps: {word}\nlayer_norm: none\n")
    flags = resolve(f"--flags_file={file}")
    assert (flags.optimizer_eps, flags.layer_norm) == (None, "none")


def test_one_number_of_several_needs_no_list_in_a_file(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("optimizer_decay: 0.9\n")
    assert resolve(f"--flags_file={file}").optimizer_decay == (0.9,)


def test_a_learning_rate_may_not_rise_but_a_constant_one_may_be_as_small_as_it_likes():
    with pytest.raises(ConfigError, match="--lr_end_value=1e-05 is above --lr=5e-06"):
        resolve("--lr=5e-6")
    assert resolve("--lr=5e-6", "--lr_schedule=constant").lr == 5e-6


@pytest.mark.parametrize(
    "flag",
    ["lr_end_value=inf", "stop_at_mean_return=nan"],
)
def test_numbers_that_are_none_are_refused(flag):
    with pytest.raises(ConfigError, match=f"--{flag}: .*finite"):
        resolve(f"--{flag}")


@pytest.mark.parametrize(
    "flag",
    [
        *("batch_size=10000000000", "frame_scale_resolution=84,1000000"),
        *("environment_max_steps=" + "9" * 400, "cache_output_buffer_size=100000000"),
    ],
)
def test_sizes_beyond_all_sense_are_refused_before_anything_is_made_of_them(flag):
    with pytest.raises(ConfigError, match=f"--{flag.split('=')[0]}=.*(less than|valid integer|to)"):
        resolve(f"--{flag}")


@pytest.mark.parametrize(
    ("typed", "method"),
    [((), "none"), (("--reward_clipping_method=abs_one_sign",), "abs_one_sign")],
)
def test_a_preset_says_how_rewards_are_clipped_and_the_family_whether(typed, method):
    argv = ("--env=CartPole-v1", "--preset=impala-shallow", *typed)
    flags = parse(argv, family_of=lambda env, kwargs, backend: "vector")
    assert flags.reward_clipping_method == method
    flags = parse(argv, family_of=lambda env, kwargs, backend: "atari")
    assert flags.reward_clipping_method in ("abs_one_clamp", method)
