"""Names that other programs have for what is set here, and what to write instead.

Three systems came before this one: the platform of elite replay (here: the older platform),
TorchBeast in its two forms with PopArt, and IMPALA with LASER on Ray. docs/migration.md has all of
their flags, also those that have the same name here but mean something else.
"""

from __future__ import annotations

# Flags of the older platform that no longer make sense, and what to do instead.
REMOVED_FLAGS: dict[str, str] = {
    "actions_count": "the number of actions is read from --env; see --full_action_space",
    "observation_shape": "it follows from --env, --frames_stacked, --frame_scale_resolution",
    "use_additional_scaling_FC_layer": "features are the output of the model's torso",
    "cache_sample_size": "the cache always composes whole batches; see --caching_threads",
    "replay_writer_queue_size": "there is no such queue any more; see --shared_queue_size",
    "verbose_worker_out_int": "progress is shown by time; see --log_interval_s",
    "verbose_learner_out_int": "progress is shown by time; see --log_interval_s",
    "worker_verbose": "what workers do is in train.log; their deaths are always shown",
    "background_save": "statistics are always written while running; see --log_interval_s",
}

# Flags of TorchBeast that mean here exactly what they mean there, in the same unit: these are taken.
ALIASES: dict[str, str] = {
    "unroll_length": "r_f_steps",
    "total_steps": "environment_max_steps",
    "discounting": "gamma",
    "savedir": "results_dir",
    "xpid": "run_name",
    "num_episodes": "test_episode_count",
}

_COST = "beside losses that are summed; here they are means unless --loss_reduction=sum"
_WORKERS = "--worker_count=<processes> and --envs_per_worker=<environments in each>"
_RUN = "--load_model_url=<run folder>"
_REPLAY = '--replay_parameters, e.g. [{"type": "queue", "capacity": 4, "sample_ratio": 1}]'
_ONE_NUMBER = "--learner_thread_count, and --learner_count for several learners"

NOTHING = (
    "nothing: "  # begins the hints about what has no counterpart here; then the reason follows
)

# Name -> what to write here, for names that mean nearly the same, or need a value of another kind.
SYNONYMS: dict[str, str] = {
    # TorchBeast, PolyBeast and MonoBeast, and the port of LASER
    "mode": "--op_mode=train or --op_mode=test (record and test_render: test with --render=True)",
    "num_actors": _WORKERS,
    "num_threads": _ONE_NUMBER,
    "num_learner_threads": _ONE_NUMBER,
    "num_inference_threads": "--inference=worker or --inference=server",
    "num_buffers": "--shared_queue_size (slots of each worker)",
    "max_learner_queue_size": "--replay_parameters (capacity of the queue)",
    "num_actions": "nothing: the number of actions is read from --env; see --full_action_space",
    "disable_cuda": "--device=cpu",
    "disable_checkpoint": "--save_model_period=<a large number>; the last state is always saved",
    "entropy_cost": f"--entropy_loss_weight ({_COST})",
    "baseline_cost": f"--value_loss_weight ({_COST})",
    "reward_clipping": "--clip_rewards=False for none; --reward_clipping_method=abs_one_clamp for "
    "abs_one",
    "alpha": "--rmsprop_alpha, with --optimizer=rmsprop",
    "momentum": "nothing: RMSprop has no momentum here, as in the published settings",
    "epsilon": "--rmsprop_eps or --adam_eps",
    "grad_norm_clipping": f"--gradient_clip_by_norm_threshold, inf for none ({_COST})",
    "beta": "--popart_beta",
    "agent_type": "--model=nature, --model=resnet or --preset=attention",
    "aaa_input_format": "--preset=rgb_last or --preset=rgb_stack",
    "frame_height": "--frame_scale_resolution=<height>,<width>",
    "frame_width": "--frame_scale_resolution=<height>,<width>",
    "intermediate_model_id": "--load_model_url=<checkpoint file>, or --test_all_checkpoints=True",
    "pipes_basename": "nothing: workers and learner share memory",
    "start_servers": "nothing: workers are always started",
    "no_start_servers": "nothing: workers are always started",
    "num_servers": _WORKERS,
    "multitask": "--env=<game>,<game>,... (and --use_task_id)",
    "write_profiler_trace": "nothing: start it as python -m cProfile main.py ...",
    "actions": "python -m ritornello.analysis saliency --help, where actions can be replayed",
    "replay_size": "--replay_parameters (capacity, in unrolls of --r_f_steps steps)",
    "replay_ratio": "--replay_parameters (sample_ratio: share of each batch)",
    "learn_start": "--training_fill_in_factor",
    "episodes_for_avg": "--avg_buff_size",
    "suppress_logs": "--basic_verbose=False",
    "use_resnet": "--model=resnet",
    "use_es": "nothing: there are no evolution strategies here",
    # Older commits of the older platform
    "training_max_steps": "--environment_max_steps (agent steps, not updates)",
    "max_avg_reward": "--stop_at_mean_return",
    "max_episodes": "--environment_max_steps or --training_seconds",
    "use_replay_buffer": _REPLAY,
    "replay_buffer_size": "--replay_parameters (capacity, in unrolls)",
    "elite_set_size": '--replay_parameters (capacity of a buffer of "type": "elite")',
    "replay_data_ratio": "--replay_parameters (sample_ratio: share of each batch)",
    "elite_set_data_ratio": "--replay_parameters (sample_ratio: share of each batch)",
    "max_avg_reward_deviation": "--stop_at_mean_return=<a lower number>",
    "max_avg_rew_time_accept_deviation": "--stop_at_mean_return: the run ends when it is reached",
    "max_cache_pos_pointer": "--cache_output_buffer_size",
    **dict.fromkeys(
        (
            *("elite_reset_period", "add_rew_feature", "random_search", "rnd_index_chance"),
            *("reward_time_decay", "dist_input_filter", "dist_direction", "policy_sample"),
            *("drop_old_samples", "sample_life"),
        ),
        'nothing: --replay_parameters with "type": "elite" has what is left of it (docs/replay.md)',
    ),
    # Stable-Baselines3, CleanRL, Sample Factory, RLlib, Acme and others
    "learning_rate": "--lr",
    "anneal_lr": "--lr_schedule=linear or --lr_schedule=constant",
    "num_workers": "--worker_count",
    "n_workers": "--worker_count",
    "num_rollout_workers": "--worker_count",
    "num_env_runners": "--worker_count",
    "n_envs": _WORKERS,
    "num_envs": _WORKERS,
    "num_envs_per_worker": "--envs_per_worker",
    "total_timesteps": "--environment_max_steps (agent steps)",
    "timesteps": "--environment_max_steps (agent steps)",
    "n_timesteps": "--environment_max_steps (agent steps)",
    "total_env_steps": "--environment_max_steps (agent steps; frames are --skipped_frames of them)",
    "train_for_env_steps": "--environment_max_steps (agent steps)",
    "num_frames": "--environment_max_steps (agent steps: frames divided by --skipped_frames)",
    "total_frames": "--environment_max_steps (agent steps: frames divided by --skipped_frames)",
    "max_steps": "--environment_max_steps (agent steps)",
    "train_for_seconds": "--training_seconds",
    "n_steps": "--r_f_steps",
    "num_steps": "--r_f_steps",
    "rollout": "--r_f_steps",
    "rollout_length": "--r_f_steps",
    "rollout_fragment_length": "--r_f_steps",
    "sequence_length": "--r_f_steps",
    "discount": "--gamma",
    "game": "--env",
    "env_id": "--env",
    "env_name": "--env",
    "algo": "--algorithm (impala, impact, or one of your own); --preset=<name> for a recipe",
    "config": "--flags_file=<run.yaml>",
    "config_file": "--flags_file=<run.yaml>",
    "conf_file": "--flags_file=<run.yaml>",
    "cfg": "--flags_file=<run.yaml>",
    "wandb": "--sink=wandb (docs/library.md)",
    "with_wandb": "--sink=wandb (docs/library.md)",
    "track": "--sink=wandb, mlflow or trackio (docs/library.md)",
    "tensorboard_log": "--tensorboard=True; the files are in the run folder",
    "exp_name": "--run_name",
    "experiment": "--run_name",
    "name": "--run_name",
    "log_dir": "--results_dir",
    "logdir": "--results_dir",
    "output_dir": "--results_dir",
    "train_dir": "--results_dir",
    "resume": f"--op_mode=train_w_load {_RUN}",
    "restore": f"--op_mode=train_w_load {_RUN}",
    "checkpoint": f"{_RUN} or a checkpoint file",
    "load_checkpoint": f"{_RUN} or a checkpoint file",
    "eval": f"--op_mode=test {_RUN}",
    "evaluate": f"--op_mode=test {_RUN}",
    "play": f"--op_mode=test {_RUN} --render=True",
    "n_eval_episodes": "--test_episode_count",
    "num_eval_episodes": "--test_episode_count",
    "deterministic": "--greedy=True in test mode; --reproducible=True for the same numbers twice",
    "torch_deterministic": "--reproducible=True",
    "capture_video": f"--op_mode=test {_RUN} --render=True",
    "record_video": f"--op_mode=test {_RUN} --render=True",
    "verbose": "--basic_verbose=True or --debug=True",
    "ent_coef": f"--entropy_loss_weight ({_COST})",
    "entropy_coeff": f"--entropy_loss_weight ({_COST})",
    "vf_coef": f"--value_loss_weight ({_COST})",
    "vf_loss_coeff": f"--value_loss_weight ({_COST})",
    "value_coef": f"--value_loss_weight ({_COST})",
    "max_grad_norm": "--gradient_clip_by_norm_threshold",
    "grad_clip": "--gradient_clip_by_norm_threshold",
    "gae_lambda": "--vtrace_lambda",
    "buffer_size": "--replay_parameters (capacity, in unrolls of --r_f_steps steps)",
    "replay_capacity": "--replay_parameters (capacity, in unrolls of --r_f_steps steps)",
    "train_batch_size": "--batch_size (unrolls of --r_f_steps steps)",
    "minibatch_size": "--batch_size (unrolls of --r_f_steps steps)",
    "use_rnn": "--use_lstm=True",
    "rnn_size": "--lstm_size",
    "hidden_size": "--feature_out_layer_size",
    "network": "--model",
    "policy": "--model",
    "arch": "--model",
    "cuda": "--device=cuda or --device=cpu",
    "gpu": "--device=cuda",
    "num_gpus": "--device=cuda, and --learner_count for several",
    "frame_skip": "--skipped_frames",
    "frameskip": "--skipped_frames",
    "env_frameskip": "--skipped_frames",
    "action_repeat": "--skipped_frames",
    "frame_stack": "--frames_stacked",
    "framestack": "--frames_stacked",
    "env_framestack": "--frames_stacked",
    "sticky_actions": "--repeat_action_probability=0.25 or --preset=sticky",
    "reward_clip": "--clip_rewards and --reward_clipping_method",
    "clip_reward": "--clip_rewards",
    "save_interval": "--save_model_period (updates)",
    "save_freq": "--save_model_period (updates)",
    "log_interval": "--log_interval_s (seconds)",
}

# (flag, value) -> what to do, for values that were possible in the older platform.
FORMER_VALUES: dict[tuple[str, str], str] = {
    ("multiprocessing_backend", "Ray"): "write --multiprocessing_backend=ray",
}

# Words that are commands elsewhere.
COMMANDS: dict[str, str] = {
    "train": "--op_mode=train",
    "resume": f"--op_mode=train_w_load {_RUN}",
    "test": f"--op_mode=test {_RUN}",
    "eval": f"--op_mode=test {_RUN}",
    "evaluate": f"--op_mode=test {_RUN}",
    "play": f"--op_mode=test {_RUN} --render=True",
    "help": "--help",
}


def answer(name: str) -> str | None:
    """Return what to write instead of a flag that is none here; None for an unknown name."""
    if name in ALIASES:
        return f"--{name} is --{ALIASES[name]} here"
    if name in REMOVED_FLAGS:
        return f"--{name} is gone: {REMOVED_FLAGS[name]}"
    hint = SYNONYMS.get(name) or SYNONYMS.get(name.lower())
    if hint is None:
        return None
    if hint.startswith(NOTHING):
        return f"--{name} is not an option here. Leave it out: {hint.removeprefix(NOTHING)}"
    return f"--{name} is not an option here: write {hint}"
