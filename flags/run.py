"""The flags of the group `run`."""

from __future__ import annotations

from typing import Literal

from flags.group import FlagGroup, flag
from flags.kinds import Count, CountOrAuto, FaultPlan, Number, PathText, RunName, Text


class RunFlags(FlagGroup):
    """What is done in one invocation: train, resume or test; where, how long, how exactly."""

    op_mode: Literal["train", "train_w_load", "test"] = flag(
        "train",
        "train: a new run (from the weights at --load_model_url, if given); train_w_load: resume the run at --load_model_url; test: play whole games with it",
        of_this_command=True,
    )
    preset: Text | None = flag(
        None,
        "recipe, a named set of flags (--help=presets), or several separated by commas; what you say besides wins",
    )
    flags_file: PathText | None = flag(
        None,
        "YAML or JSON file of flags (lr: 0.001), or the flags.json of a run, whose flags are then used again; what is typed wins. A file says how to train: what is done, read or written where is typed",
        of_this_command=True,
    )
    load_model_url: PathText | None = flag(
        None,
        "run folder, checkpoint file or model folder (models/<name>) to resume or to test; with --op_mode=train a new run starts from its weights, in the same games or in others; a run folder means its latest checkpoint",
        of_this_command=True,
    )
    load_replay: bool = flag(
        True,
        "on resume, also restore the replay contents where they were saved (--save_replay)",
        of_this_command=True,
    )
    load_optimizer_save: bool = flag(
        True, "on resume, also restore the optimiser's state", of_this_command=True
    )
    new_run_folder: bool = flag(
        False,
        "on resume, write to a new run folder instead of going on in the old one",
        of_this_command=True,
    )
    results_dir: PathText = flag(
        "results", "folder in which run folders are made", of_this_command=True
    )
    run_name: RunName | None = flag(
        None,
        "name of the new run's folder in --results_dir, instead of <env>_<time>: letters, digits and . _ + -; _2, _3 ... is appended if there is one of that name already",
        of_this_command=True,
    )
    environment_max_steps: Count = flag(
        2_500_000,
        "stop after this many agent steps over all environments (1 step = --skipped_frames simulator frames; the default is 10 M frames of Atari)",
    )
    training_seconds: Number | None = flag(
        None,
        "also stop after this many seconds of wall-clock in this session",
        gt=0,
        of_this_command=True,
    )
    stop_at_mean_return: Number | None = flag(
        None,
        "also stop when the mean raw return of the last --avg_buff_size games reaches this; with several games: when episode/score_mean does, the mean over them, human-normalised (0 is random play, 1 is human) where known",
        of_this_command=True,
    )
    auto_restart: CountOrAuto = flag(
        0,
        "how often a small parent process resumes the newest good checkpoint after the learner was killed (out of memory, a crash), or failed later than the time before; on the command line only; 0: never",
        of_this_command=True,
    )
    seed: int | None = flag(
        None,
        "root seed of every random stream; drawn from the system when not given, and recorded",
        ge=0,
    )
    reproducible: bool = flag(
        False,
        "one process, no threads, deterministic operators: two runs with the same flags, or a run and its resume, are bit-identical",
    )
    debug: bool = flag(
        False,
        "more checks and a verbose log: every unroll is validated and torch's anomaly detection is on",
        of_this_command=True,
    )
    debug_faults: FaultPlan = flag(
        "",
        "for tests of the platform itself, with --debug=True: a plan of what is to go wrong where in this run, as JSON or as the name of a file of it (core/faults.py)",
        of_this_command=True,
        for_developers=True,
    )
    trust_env_module: bool = flag(
        False,
        "also import the module of an environment, network or algorithm named module:Id whose name comes from a file (checkpoint, flags.json, model.json, sequence) and was not typed as --env, --model or --algorithm: that runs any code in it, so give this only for files of your own; never taken from a file itself",
        of_this_command=True,
    )
