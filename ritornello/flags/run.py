"""The flags of what one command does: the groups `run` and `test`."""

from __future__ import annotations

from typing import Literal

from ritornello.core.plain_data import MAX_INT
from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count, Number, PathText, RunName, Text


class RunFlags(FlagGroup):
    """What is done in one invocation: train, resume or test; where, how long, how exactly."""

    op_mode: Literal["train", "train_w_load", "test"] = flag(
        "train",
        "train: start a new run (from the weights at --load_model_url, if given); train_w_load: resume the run at --load_model_url (a model folder holds no run, so that a new one begins from its weights); test: play whole games with its agent",
        of_this_command=True,
        effect="command",
    )
    preset: Text | None = flag(
        None,
        "recipe, which is a named set of flags (--help=presets), or several separated by commas. Flags that you pass explicitly override the preset",
        effect="command",
        main=True,
    )
    flags_file: PathText | None = flag(
        None,
        "YAML or JSON file with flags (lr: 0.001), or a run, whose flags.json is then used again. Flags that you type override the file. A file says only how to train; type the flags that say what to do and where to read or write",
        of_this_command=True,
        effect="command",
        main=True,
    )
    load_model_url: PathText | None = flag(
        None,
        "run folder, checkpoint file, model folder (models/<name>) or model on the hub (hf:<owner>/<name>) to resume or to test. A run folder means its latest checkpoint. With --op_mode=train a new run starts from the weights, in the same games or in others",
        of_this_command=True,
        effect="command",
        also="load",
    )
    load_replay: bool = flag(
        True,
        "on resume, also restore the contents of replay, if they were saved (--save_replay)",
        of_this_command=True,
        effect="command",
    )
    load_optimizer_save: bool = flag(
        True,
        "on resume, also restore the optimiser's state",
        of_this_command=True,
        effect="command",
    )
    new_run_folder: bool = flag(
        False,
        "on resume, write to a new run folder instead of the old one",
        of_this_command=True,
        effect="command",
    )
    results_dir: PathText = flag(
        "results", "folder for run folders", of_this_command=True, effect="command", main=True
    )
    run_name: RunName | None = flag(
        None,
        "name of the new run's folder in --results_dir, instead of <env>_<time>. It may have letters, digits and . _ + -. If there is a folder of that name already, _2, _3 ... is appended",
        of_this_command=True,
        effect="command",
        main=True,
    )
    environment_max_steps: Count = flag(
        2_500_000,
        "stop after this many agent steps, counted over all environments. One step has --skipped_frames simulator frames; the default is 10 M frames of Atari",
        effect="learning",
        main=True,
        also="max_steps",
    )
    training_seconds: Number | None = flag(
        None,
        "also stop after this many seconds of training in this session",
        gt=0,
        of_this_command=True,
        effect="command",
        main=True,
    )
    stop_at_mean_return: Number | None = flag(
        None,
        "also stop when the mean raw return of the last --avg_buff_size games reaches this number. With several games, episode/score_mean has to reach it: the mean over the games, human-normalised where known (0 is random play, 1 is human play)",
        of_this_command=True,
        effect="command",
    )
    seed: int | None = flag(
        None,
        "root seed of all random streams; none: drawn from the system and recorded",
        ge=0,
        lt=MAX_INT,
        effect="learning",
        main=True,
    )
    reproducible: bool = flag(
        False,
        "use one process, no threads and deterministic operators. Two runs with the same flags are then bit-identical, and so is a run that was resumed",
        effect="learning",
    )
    debug: bool = flag(
        False,
        "check more: validate every unroll and turn on the anomaly detection of torch",
        of_this_command=True,
        effect="machine",
    )
    trust_env_module: bool = flag(
        False,
        "also import the modules of parts (module:Id) that a file names (checkpoint, flags.json, model.json, sequence) and you did not type. This runs their code, so use it only for files of your own. The flag itself is never read from a file",
        of_this_command=True,
        effect="command",
    )


class TestModeFlags(FlagGroup, effect="command"):
    """What `--op_mode=test` plays and shows."""

    test_episode_count: Count = flag(
        100, "number of whole games to play in --op_mode=test", of_this_command=True
    )
    render: bool = flag(
        False,
        "in test mode, show the first game in a window, or record it as MP4 if there is no display",
        of_this_command=True,
    )
    greedy: bool = flag(
        False,
        "in test mode, take the most probable action instead of a sampled one",
        of_this_command=True,
    )
    test_all_checkpoints: bool = flag(
        False,
        "in test mode, play --test_episode_count games with every checkpoint of the run, oldest first, and write scores.csv (whole games) and scores_per_life.csv. The same command continues after an interruption",
        of_this_command=True,
    )
