"""Names that other programs have for what is set here, and what to write instead.

docs/migration.md has all flags of the three systems that came before this one, also those that have
the same name here but mean something else.
"""

from __future__ import annotations

# Flags of TorchBeast that mean here exactly what they mean there, in the same unit: these are taken.
ALIASES: dict[str, str] = {
    "total_steps": "environment_max_steps",
    "discounting": "gamma",
    "savedir": "results_dir",
    "xpid": "run_name",
    "num_episodes": "test_episode_count",
}

# What to write here, and the names that mean nearly the same, or take a value of another kind.
HINTS: dict[str, str] = {
    "--lr": "learning_rate",
    "--lr_schedule=linear or constant": "anneal_lr",
    "--worker_count=<processes> and --envs_per_worker=<environments in each>": "num_actors n_envs "
    "num_envs num_workers n_workers num_servers num_env_runners num_rollout_workers",
    "--envs_per_worker": "num_envs_per_worker",
    "--learner_thread_count, and --learner_count for several learners": "num_threads "
    "num_learner_threads num_learners",
    "--inference=worker or --inference=server": "num_inference_threads",
    "--max_steps (agent steps; frames are --skipped_frames times as many)": "total_timesteps "
    "timesteps n_timesteps total_env_steps train_for_env_steps num_frames total_frames "
    "max_episodes training_max_steps",
    "--training_seconds": "train_for_seconds",
    "--stop_at_mean_return": "max_avg_reward",
    "--unroll_length": "n_steps num_steps rollout rollout_length rollout_fragment_length "
    "sequence_length",
    "--gamma": "discount",
    "--env": "game env_id env_name",
    "--env=<game>,<game>,... (and --use_task_id)": "multitask",
    "--algorithm=impala, impact, or one of your own; --preset=<name> for a recipe": "algo",
    "--flags_file=<run.yaml>": "config config_file conf_file cfg",
    "--sink=wandb, mlflow or trackio (docs/library.md)": "wandb with_wandb track use_wandb",
    "--tensorboard=True; the files are in the run folder": "tensorboard_log",
    "--run_name": "exp_name experiment name",
    "--results_dir": "log_dir logdir output_dir train_dir",
    "--resume=<run folder>": "restore",
    "--load=<run folder or checkpoint file>": "checkpoint load_checkpoint intermediate_model_id",
    "--test=<run folder>": "eval evaluate play",
    "--test=<run folder> --render=True": "capture_video record_video",
    "--test_episode_count": "n_eval_episodes num_eval_episodes",
    "--greedy=True with --test; --reproducible=True for the same numbers twice": "deterministic "
    "torch_deterministic",
    "--console=True, or --debug=True": "verbose basic_verbosity worker_verbose suppress_logs",
    "--entropy_loss_weight (losses are means here, unless --loss_reduction=sum)": "ent_coef "
    "entropy_coeff entropy_cost",
    "--value_loss_weight (losses are means here, unless --loss_reduction=sum)": "vf_coef "
    "vf_loss_coeff value_coef baseline_cost",
    "--gradient_clip_by_norm_threshold (inf for none)": "max_grad_norm grad_clip "
    "grad_norm_clipping",
    "--vtrace_lambda": "gae_lambda",
    "--replay=queue:<unrolls>:<share of the batch>,standard:<unrolls>:<share>": "buffer_size "
    "replay_size replay_capacity replay_ratio replay_buffer_size use_replay_buffer "
    "replay_data_ratio max_learner_queue_size elite_set_size elite_set_data_ratio",
    "--training_fill_in_factor": "learn_start learning_starts",
    "--batch_size (unrolls)": "train_batch_size minibatch_size",
    "--use_lstm=True": "use_rnn",
    "--lstm_size": "rnn_size",
    "--feature_out_layer_size": "hidden_size",
    "--model": "network policy arch agent_type use_resnet",
    "--device=cuda or cpu, and --learner_count for several GPUs": "cuda gpu use_gpu num_gpus disable_cuda",
    "--skipped_frames": "frame_skip frameskip env_frameskip action_repeat",
    "--frames_stacked": "frame_stack framestack env_framestack",
    "--frame_scale_resolution=<height>,<width>": "frame_height frame_width",
    "--repeat_action_probability=0.25 or --preset=sticky": "sticky_actions",
    "--reward_clipping_method": "reward_clip clip_reward reward_clipping",
    "--save_model_period (updates)": "save_interval save_freq disable_checkpoint",
    "--log_interval_s (seconds)": "log_interval verbose_worker_out_int verbose_learner_out_int",
    "--avg_buff_size": "episodes_for_avg",
    "--popart_beta": "beta",
    "--shared_queue_size (slots of each worker)": "num_buffers replay_writer_queue_size",
    "nothing: what an environment shows and takes is read from --env": "num_actions "
    "actions_count observation_shape",
    "nothing: batches are always composed whole (--caching_threads)": "cache_sample_size",
}
