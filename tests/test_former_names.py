"""Old command lines, and those of other programs: honoured, or answered with what to write."""

from __future__ import annotations

import re

import pytest

from ritornello.core.errors import ConfigError
from ritornello.flags import parsing
from ritornello.flags.former_names import (
    ALIASES,
    COMMANDS,
    FORMER_VALUES,
    REMOVED_FLAGS,
    SYNONYMS,
    answer,
)
from ritornello.flags.options import Flags
from ritornello.flags.parsing import parse, remarks
from ritornello.flags.presets import PRESETS
from tests.house import ROOT


def resolve(*argv):
    return parse(argv, None, lambda env, _: "atari")


@pytest.mark.parametrize("name", REMOVED_FLAGS)
def test_an_option_of_the_older_platform_that_is_gone_says_what_to_do(name):
    with pytest.raises(ConfigError, match=f"--{name} is gone"):
        resolve(f"--{name}=1")


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_name_of_another_program_says_what_to_write_here(name):
    for argv in ([f"--{name}=1"], [f"--{name}", "1"], [f"--{name.replace('_', '-')}=1"]):
        with pytest.raises(ConfigError) as caught:
            resolve(*argv)
        says, is_gone, reason = SYNONYMS[name].rpartition("nothing: ")
        does = f". Leave it out: {reason}" if is_gone else f": write {reason}"
        assert says == ""
        assert str(caught.value) == f"--{name} is not an option here{does}"


def test_a_misspelt_name_of_another_program_is_answered_as_well():
    with pytest.raises(ConfigError) as caught:
        resolve("--learning_rte=1")
    assert str(caught.value) == (
        "unknown option --learning_rte: --learning_rate is not an option here: write --lr"
    )
    with pytest.raises(ConfigError, match="did you mean --batch_size"):
        resolve("--batchsize=1")


def test_no_answer_hides_a_flag_and_every_answer_names_flags_that_exist():
    flags = set(Flags.model_fields) | {"help"}
    old = {*REMOVED_FLAGS, *ALIASES, *SYNONYMS}
    assert not old & flags
    assert len(old) == len(REMOVED_FLAGS) + len(ALIASES) + len(SYNONYMS)
    assert set(ALIASES.values()) <= flags
    answers = [*REMOVED_FLAGS.values(), *SYNONYMS.values(), *COMMANDS.values()]
    named = {name for text in answers for name in re.findall(r"--(\w+)", text)}
    assert named <= flags
    presets = {name for text in answers for name in re.findall(r"--preset=([\w-]+)", text)}
    assert presets <= set(PRESETS)
    assert answer("nothing_like_this") is None


@pytest.mark.parametrize(("name", "ours"), ALIASES.items())
def test_a_flag_that_only_has_another_name_here_is_honoured_and_the_user_hears_of_it(name, ours):
    value = {"gamma": "0.9", "results_dir": "x", "run_name": "x"}.get(ours, "7")
    argv = [f"--{name}={value}"]
    flags = resolve(*argv)
    assert str(getattr(flags, ours)) == value
    assert remarks(argv, flags) == [f"--{name} is --{ours} here"]


@pytest.mark.parametrize(("flag", "value"), FORMER_VALUES)
def test_a_value_that_is_gone_says_what_to_do(flag, value):
    for argv in ([f"--{flag}={value}"], [f"--{flag}", value]):
        with pytest.raises(
            ConfigError, match=re.escape(f"--{flag}={value}: {FORMER_VALUES[flag, value]}")
        ):
            resolve(*argv)


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_of_other_programs_says_what_to_write(word):
    with pytest.raises(ConfigError, match=re.escape(f"write {COMMANDS[word]}")):
        resolve(word)


# --- a learning rate that annealed over updates ------------------------------------------------

QUEUE = '[{"type": "queue", "capacity": 4, "sample_ratio": 1}]'
CIRCULAR = '[{"type": "circular", "capacity": 32, "sample_ratio": 1, "uses": 2}]'
CIRCULAR_AND_QUEUE = (
    '[{"type": "circular", "capacity": 32, "sample_ratio": 0.5, "uses": 2}, '
    '{"type": "queue", "capacity": 4, "sample_ratio": 0.5}]'
)
STANDARD = '[{"type": "standard", "capacity": 4, "sample_ratio": 1}]'


def test_a_schedule_in_updates_is_as_long_as_the_steps_that_these_updates_take():
    # 8 unrolls of 20 steps, half of them new: 80 steps for each update.
    flags = resolve("--lr_scheduler_updates=70000", "--batch_size=8", "--r_f_steps=20")
    assert flags.schedule_steps == 70_000 * 80
    flags = resolve("--lr_scheduler_updates=100", f"--replay_parameters={QUEUE}")
    assert flags.schedule_steps == 100 * 160
    # Without a queue each unroll is drawn four times: 2 new ones for 8 draws.
    flags = resolve(
        "--lr_scheduler_updates=100", f"--replay_parameters={STANDARD}", "--max_draws_per_unroll=4"
    )
    assert flags.schedule_steps == 100 * 40
    # Of a circular buffer each unroll is drawn twice: 4 new ones for 8 draws.
    flags = resolve("--lr_scheduler_updates=100", f"--replay_parameters={CIRCULAR}")
    assert flags.schedule_steps == 100 * 80
    # Beside it a queue hands on 4 new ones, and the circular buffer needs 2 of them.
    flags = resolve("--lr_scheduler_updates=100", f"--replay_parameters={CIRCULAR_AND_QUEUE}")
    assert flags.schedule_steps == 100 * 80
    flags = resolve("--preset=mujoco", "--lr_scheduler_updates=100")
    assert flags.schedule_steps == 100 * 8 * 32 // 2


def test_of_the_two_units_the_one_that_is_said_last_counts():
    def resumed(*argv, **stored):
        return parse(
            ("--op_mode=train_w_load", "--load_model_url=x", *argv), lambda _: stored, None
        )

    stored = {"lr_scheduler_steps": 0, "lr_scheduler_updates": 100}
    assert resumed(**stored).schedule_steps == 8000
    assert resumed("--lr_scheduler_steps=5", **stored).schedule_steps == 5
    stored = {"lr_scheduler_steps": 3000, "lr_scheduler_updates": 0}
    assert resumed("--lr_scheduler_updates=1", **stored).schedule_steps == 80
    assert parse(["--lr_scheduler_updates=1"], None, lambda env, _: "vector").schedule_steps == 80


def test_a_learning_rate_that_ends_at_once_is_remarked_on():
    argv = ["--lr_scheduler_steps=10000"]
    (line,) = remarks(argv, resolve(*argv))
    assert "after 10,000 of 2,500,000 agent steps" in line
    assert "--lr_scheduler_updates=10000" in line
    argv = ["--lr_scheduler_steps=1000000"]
    assert remarks(argv, resolve(*argv)) == []


def test_the_older_name_of_the_clip_in_the_policy_gradient_is_remarked_on():
    argv = ["--c-const=0.5"]
    (line,) = remarks(argv, resolve(*argv))
    assert "--pg_rho_const=0.5" in line
    argv += ["--pg_rho_const=1"]
    assert remarks(argv, resolve(*argv)) == []


def test_an_old_command_line_is_honoured_with_the_defaults_that_it_left_unsaid():
    flags = resolve(
        "--preset=older-platform", "--env=PongNoFrameskip-v4", "--batch_size=10", "--r_f_steps=50",
        '--replay_parameters=[{"type": "custom", "capacity": 1000, "sample_ratio": 0.5, '
        '"dist_function": "ln_norm", "sample_strategy": "elite_sampling", '
        '"lambda_batch_multiplier": 6, "alfa_annealing_factor": 2.0, '
        '"elite_sampling_strategy": "strategy3"}, '
        '{"type": "queue", "capacity": 1, "sample_ratio": 0.5}]',
        "--lr_scheduler_updates=70000", "--frame_scale_resolution=84,84", "--rho-const=1.0",
    )  # fmt: skip
    assert flags.replay_parameters[0]["type"] == "elite"
    assert (flags.loss_reduction, flags.optimizer, flags.lr) == ("sum", "rmsprop", 8e-4)
    assert flags.schedule_steps == 70_000 * 10 * 50 // 2


OLD_QUEUE = "{'type': 'queue', 'capacity': 1, 'sample_ratio': 0.5}"
OLD_VALUES = {  # what the older platform had as defaults and as choices, as it was typed
    "op_mode": ["train"],
    "multiprocessing_backend": ["python_native"],
    "env": ["AtlantisNoFrameskip-v4"],
    "reward_clipping_method": ["abs_one_sign", "abs_one_clamp", "soft_asymmetric"],
    "discarding_strategy": ["keep_latest", "keep_oldest", "alternating"],
    "frame_scale_resolution": ["84,84"],
    "optimizer": ["rmsprop", "adam"],
    "load_optimizer_save": ["True"],
    "cache_output_buffer_size": ["3"],
    "use_kl_mask": ["False"],
    "replay_parameters": [
        f"[{OLD_QUEUE}, {{'type': 'standard', 'capacity': 1000, 'sample_ratio': 0.5}}]",
        *(
            f"[{{'type': 'Custom', 'capacity': 1000, 'sample_ratio': 0.5, {rest}}}, {OLD_QUEUE}]"
            for rest in (
                "'dist_function': 'kl_div'",
                "'dist_function': 'ln_norm', 'p': 2, 'sample_strategy': 'attentive_sampling', "
                "'lambda_batch_multiplier': 6, 'alfa_annealing_factor': 2.0",
                "'dist_function': 'cos_dist', 'sample_strategy': 'elite_sampling', "
                "'elite_sampling_strategy': 'strategy4', 'insert_strategy': 'elite_insertion', "
                "'elite_batch_size': 20",
            )
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OLD_VALUES.items() for value in values]
)
def test_a_value_of_the_older_platform_is_taken_as_it_was_typed(name, value):
    given = getattr(resolve(f"--{name}={value}"), name)
    if name == "replay_parameters":
        assert sorted(buffer["capacity"] for buffer in given) == [1, 1000]
    elif name == "frame_scale_resolution":
        assert given == (84, 84)
    else:
        assert str(given) == value


def test_what_is_no_list_of_buffers_is_answered_with_one():
    for text in ("buffers.json", "[{'type': 'queue'", "[{type: queue}]"):
        with pytest.raises(ConfigError, match="neither JSON nor a Python literal") as caught:
            resolve(f"--replay_parameters={text}")
        assert 'Write it like [{"type": "queue"' in str(caught.value)
        assert "--flags_file" in str(caught.value)


# --- the page about it ---------------------------------------------------------------------------


def words(text: str) -> list[str]:
    return text.split()


OLDER_PLATFORM = words("""
op_mode load_model_url load_optimizer_save save_model_period debug lr batch_size r_f_steps
gradient_clip_by_norm_threshold gamma seed reproducible env clip_rewards reward_clipping_method
skipped_frames frames_stacked noop_threshold grayscaling_frames episodic_life
frame_scale_resolution actions_count observation_shape learner_thread_count worker_count
envs_per_worker multiprocessing_backend shared_queue_size environment_max_steps
replay_writer_queue_size discarding_strategy use_replay_compression lz4_compression_level caching
caching_threads cache_sample_size cache_output_buffer_size avg_buff_size verbose_worker_out_int
verbose_learner_out_int basic_verbose worker_verbose background_save test_episode_count render
feature_out_layer_size use_additional_scaling_FC_layer lr_scheduler_steps optimizer rmsprop_eps
lr_end_value replay_parameters training_fill_in_factor policy_gradient_loss_weight
value_loss_weight entropy_loss_weight c-const rho-const use_policy_cloning_loss
use_value_cloning_loss policy_cloning_loss_weight value_cloning_loss_weight use_kl_mask
kl_div_threshold
""")  # fmt: skip
BEFORE_THE_OLDER_PLATFORM_WAS_PUBLISHED = words("""
training_max_steps max_episodes max_avg_reward use_replay_buffer replay_buffer_size elite_set_size
replay_data_ratio elite_set_data_ratio max_avg_reward_deviation max_avg_rew_time_accept_deviation
max_cache_pos_pointer elite_reset_period add_rew_feature random_search rnd_index_chance
reward_time_decay dist_input_filter dist_direction policy_sample drop_old_samples sample_life
""")  # fmt: skip
TORCHBEAST = words("""
pipes_basename mode xpid start_servers no_start_servers env disable_checkpoint savedir num_actors
total_steps batch_size unroll_length num_learner_threads num_inference_threads disable_cuda
num_actions use_lstm max_learner_queue_size use_popart entropy_cost baseline_cost discounting
reward_clipping learning_rate alpha momentum epsilon grad_norm_clipping beta write_profiler_trace
save_model_every_nsteps num_episodes intermediate_model_id actions num_servers multitask
num_buffers num_threads agent_type frame_height frame_width aaa_input_format
""")  # fmt: skip
LASER_ON_RAY = words(
    "episodes_for_avg suppress_logs learn_start replay_size replay_ratio use_resnet use_es"
)
OTHER_PROGRAMS = words("""
first_frame num_frames density radius saliencydir resolution load_path save_dir layer_index
filter_index comp_num_models match_num_models comp_no_optimal plot_match_type comp_between
comp_single_single_model plot_metric_type plot_heatmaps save_figures hide_plots
""")  # of TorchBeast, and no flags of the training  # fmt: skip
VALUES = words("lim_zero lim_inf brute_force aaa res_net filter_vis filter_comp filter_comp_plot")
FILES = words("""
agent_model_scripted_save.pt checkpoint_data_save.pt options_flags.json Scores.txt
Episode_steps.txt Train_time.txt Loss_file.txt lr_file.txt max_reward_file.txt
training_summary.txt debug.log timings.txt model.tar out.log logs.csv fields.csv meta.json
intermediate/model.<step>.tar multi_train.py Charts/ elite_set_feature_dist.png
elite_features_end.pt movies/play_raw/*.png Saliency_*.png Atari_*.png filter_comp/*.pkl
model_id,model_steps,env_name,ep_steps,ep_return
""")  # fmt: skip


OF_THE_TRAINING = [
    *OLDER_PLATFORM,
    *BEFORE_THE_OLDER_PLATFORM_WAS_PUBLISHED,
    *TORCHBEAST,
    *LASER_ON_RAY,
]


@pytest.mark.parametrize("name", OF_THE_TRAINING)
def test_every_flag_of_the_older_systems_is_known_or_answered(name):
    name = name.replace("-", "_")
    assert name in Flags.model_fields or answer(name) is not None


@pytest.mark.parametrize("name", [*OF_THE_TRAINING, *OTHER_PROGRAMS, *VALUES, *FILES])
def test_every_flag_and_file_of_the_older_systems_is_on_the_page(name):
    page = (ROOT / "docs" / "migration.md").read_text("utf-8")
    assert f"`{name}`" in page or f"`--{name}`" in page


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ("CartPole-v1", "--skipped_frames, --frames_stacked, --max_episode_frames"),
        ("PongNoFrameskip-v4", ""),
        ("PongNoFrameskip-v4,CartPole-v1", ""),
    ],
)
def test_typed_flags_of_which_nothing_comes_are_named_in_one_line(env, named):
    argv = [f"--env={env}", "--frames_stacked=2", "--skipped-frames=2", "--max_episode_frames=50"]
    lines = remarks(argv, resolve(*argv))
    assert len(lines) == bool(named)
    assert named in "".join(lines)
    assert remarks(argv[:1], resolve(*argv)) == []  # only what was typed


def test_no_environment_is_looked_at_unless_a_flag_about_games_was_typed(monkeypatch):
    looked = []
    monkeypatch.setattr(parsing, "_idle", lambda flags: looked.append(1) or set())
    argv = ["--env=CartPole-v1", "--lr=0.001"]
    assert remarks(argv, resolve(*argv)) == []
    assert not looked
    argv += ["--frames_stacked=2", "--noop_threshold=3"]
    assert remarks(argv, resolve(*argv)) == []
    assert looked == [1]
