"""Names on a command line: which flag each one means, and what to say of one that means none.

A flag may have another name, which `--help` shows first (`flags/group.py`: `also`), and every name
may be written in both spellings of English. `--resume=<run>` and `--test=<run>` say two flags;
`--resume_or_start=<run>` is the same command for the first job of a run and for all that follow.
"""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import american
from ritornello.core.plain_data import shown, shown_text
from ritornello.core.project import main_command
from ritornello.core.run_layout import CHECKPOINTS, MODEL_WEIGHTS
from ritornello.flags.earlier import is_earlier
from ritornello.flags.group import marks_of
from ritornello.flags.kinds import wrong_run_name
from ritornello.flags.options import Flags
from ritornello.flags.parts import REPLAY
from ritornello.flags.problems import listed

# --resume=<run>, --test=<run>: the value of --op_mode; the run is that of --load_model_url.
COMMANDS = {"resume": "train_w_load", "test": "test"}
RESUME_OR_START = "resume_or_start"
OVERRIDES = "multi_train_overrides"  # how multi_train.py hands over the flags of a sequence
REPLAY_EXAMPLE = "queue:4:0.5,standard:1000:0.5"
# Words that are commands elsewhere.
_WORDS = {
    "train": "no word: training is what main.py does",
    "resume": "--resume=<run folder>",
    **dict.fromkeys(("test", "eval", "evaluate", "play"), "--test=<run folder>"),
    "help": "--help",
}
# Flags of TorchBeast that mean here exactly what they mean there, in the same unit: these are taken.
ALIASES = {
    "total_steps": "environment_max_steps",
    "discounting": "gamma",
    "savedir": "results_dir",
    "xpid": "run_name",
    "num_episodes": "test_episode_count",
}
# What to write here for the commonest names of other programs, which mean nearly the same or take
# another kind of value. docs/migration.md has all flags of the systems before this one.
HINTS = {
    "--lr": "learning_rate",
    "multi_train.py in the place of main.py": "sequence tune",
    "--worker_count=<processes> and --envs_per_worker=<environments in each>": "num_actors n_envs "
    "num_envs num_workers n_workers num_servers num_env_runners num_rollout_workers",
    "--max_steps (agent steps; frames are --skipped_frames times as many)": "total_timesteps "
    "timesteps n_timesteps total_env_steps num_frames total_frames max_episodes",
    "--unroll_length": "n_steps num_steps rollout_length rollout_fragment_length",
    "--gamma": "discount",
    "--env": "game env_id env_name environment enviroment",
    "--algorithm=impala, impact, q_lambda, or one of your own; --preset=<name> for a recipe": "algo",
    "--flags_file=<run.yaml>": "config config_file",
    "--sink=wandb, mlflow or trackio (docs/library.md)": "wandb track use_wandb",
    "--run_name": "exp_name experiment",
    "--results_dir": "log_dir logdir output_dir train_dir",
    "--load=<run folder or checkpoint file>": "checkpoint load_checkpoint",
    "--entropy_loss_weight (losses are means here, unless --loss_reduction=sum)": "ent_coef "
    "entropy_coeff entropy_cost",
    "--value_loss_weight (losses are means here, unless --loss_reduction=sum)": "vf_coef "
    "vf_loss_coeff baseline_cost",
    "--gradient_clip_by_norm_threshold (inf for none)": "max_grad_norm grad_clip "
    "grad_norm_clipping",
    "--reward_clipping_method=abs_one_clamp or none": "reward_clipping",
    "--optimizer_decay, if it is RMSprop's": "alpha",
    "--popart_beta, if it is PopArt's": "beta",
    "--learner_thread_count": "num_threads num_learner_threads",
    "--inference=worker or server": "num_inference_threads",
    "--shared_queue_size, and the capacity of the queue in --replay": "num_buffers "
    "max_learner_queue_size",
    "--training_fill_in_factor": "learn_start",
    "--replay=queue:<unrolls>:<share of the batch>,standard:<unrolls>:<share>": "buffer_size "
    "replay_size replay_capacity replay_ratio",
    "--model": "network policy agent_type use_resnet",
    "--frame_scale_resolution=<height>,<width>": "frame_height frame_width observation_shape",
    "--preset=rgb_last or rgb_stack": "aaa_input_format",
    "--op_mode=train or test": "mode",
    "--load=<checkpoint file>, or --test_all_checkpoints=True": "intermediate_model_id",
    "--save_model_period=<a large number>": "disable_checkpoint",
    "--log_interval_s": "verbose_worker_out_int verbose_learner_out_int",
    "--avg_buff_size": "episodes_for_avg",
    "--console=messages": "suppress_logs",
    "nothing in its place": "cache_sample_size replay_writer_queue_size worker_verbose "
    "background_save multitask pipes_basename start_servers no_start_servers",
    """--algorithm_kwargs='{"<argument>": <value>}', if it is the algorithm's""": "policy_cost "
    "surrogate_clip ratio_bar target_period value_source trace "
    "trace_lambda epsilon_end epsilon_end_share",
    """--algorithm_kwargs='{"epsilon": <value>}' for random actions, or --optimizer_eps""": "epsilon",
    "--device=cuda or cpu, and --learner_count for several GPUs": "cuda gpu use_gpu num_gpus "
    "disable_cuda",
}


def _spellings() -> dict[str, str]:
    """Return each name that means a flag, in American spelling -> the flag."""
    names = {american(name): name for name in Flags.model_fields}
    for name, field in Flags.model_fields.items():
        if also := marks_of(field).also:
            names[american(also)] = name
    return {**names, **ALIASES}


_FLAGS = _spellings()
_HINTS = {name: hint for hint, names in HINTS.items() for name in names.split()}


def flag_of(name: str) -> str:
    """Return the name of the flag that a name means; the name itself if it means none."""
    plain = name.replace("-", "_")
    return _FLAGS.get(american(plain), plain)


def named_flags(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return flag -> value of a mapping in a file, of which each key is a name of a flag.

    `where` is the place of the mapping, for messages. Names that are no flags are kept.

    Raises:
      ConfigError: if two keys name one flag.
    """
    names: dict[str, str] = {}
    for name in values:
        other = names.setdefault(flag_of(name), name)
        if other != name:
            raise ConfigError(
                f"{where} gives {shown(other)} and {shown(name)}, which are one flag: delete one "
                "of the two."
            )
    return {flag: values[name] for flag, name in names.items()}


def topic_of(argv: Sequence[str]) -> str | None:
    """Return the topic of a command line's --help: "" or, for `--help=replay`, "replay".

    None if it asks for no help.
    """
    items = iter(argv)
    for item in items:
        name, equals, topic = item.partition("=")
        if name in ("--help", "-h"):
            following = next(items, "")
            return topic if equals or following.startswith("-") else following
    return None


def named_values(argv: Sequence[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Return flag -> text of a command line; accepts --a-b for --a_b, and `--name value`.

    If a flag is given twice, the last one counts, whatever its type. `others` are options of
    another program, which a name that is no flag may mean.

    Raises:
      ConfigError: with every name that is no flag, every flag that has no value or an empty one
        that it may not have, and every flag that contradicts a command.
    """
    values: dict[str, str] = {}
    problems = []
    commands: dict[str, tuple[str, dict[str, str]]] = {}  # name -> value, and what it decides
    items = list(argv)
    while items:
        item = items.pop(0)
        if not item.startswith("--"):
            hint = f": write {_WORDS[item]}" if item in _WORDS else ""
            problems.append(f"{shown(item)} is not an option; options look like --name=value{hint}")
            continue
        name, equals, value = item[2:].partition("=")
        name = flag_of(name)
        ours = {*Flags.model_fields, *COMMANDS, RESUME_OR_START, OVERRIDES}
        is_known = name in ours or is_earlier(name)
        if not equals and items and not items[0].startswith("--"):
            equals, value = "=", items.pop(0)
        if name == REPLAY and value.startswith("[") and items and not items[0].startswith("--"):
            raise ConfigError(
                f"the value of --{REPLAY} was cut at a blank by the shell: put the whole value in "
                f"single quotes, or write --replay={REPLAY_EXAMPLE}, which needs none"
            )
        if not is_known:
            problems.append(unknown_option(name, others))
        elif not equals or (not value and not _may_be_empty(name)):
            example = _example(name)
            hint = f", e.g. --{name}={example}" if example else " (--help=all explains it)"
            problems.append(f"--{name} needs a value{hint}")
        elif name in COMMANDS:
            commands[name] = value, {"op_mode": COMMANDS[name], "load_model_url": value}
        elif name == RESUME_OR_START:
            commands[name] = value, _resumed_or_started(Path(os.path.expanduser(value)))
        else:
            values[name] = value
    if len(commands) > 1:
        named = " and ".join(f"--{name}" for name in commands)
        problems.append(f"{named} cannot be done at once: give one of them")
    for name, (value, decided) in commands.items():
        problems += _contradictions(name, value, decided, values)
        values.update(decided)
    if problems:
        raise ConfigError(listed(problems))
    return values


def _contradictions(
    command: str, run: str, decided: Mapping[str, str], typed: Mapping[str, str]
) -> list[str]:
    """Return a line for each typed flag that a command decides otherwise, in any of its jobs.

    `--resume_or_start` may have weights to start from beside it.
    """
    if command == RESUME_OR_START:
        parent = os.path.expanduser(typed.get("results_dir", ""))
        is_there = Path(parent) == Path(os.path.expanduser(run)).parent
        wrong = {"op_mode", "run_name", "new_run_folder", *(() if is_there else ("results_dir",))}
        place = f"; it has the whole path of the run, such as {Path(parent) / Path(run).name}"
    else:
        wrong, place = {name for name in decided if typed.get(name) != decided[name]}, ""
    return [
        f"--{command}={shown_text(run)} and --{name}={shown_text(typed[name])} contradict each "
        f"other: leave one out{shown_text(place) if name == 'results_dir' else ''}"
        for name in sorted(wrong & typed.keys())
    ]


def _resumed_or_started(run: Path) -> dict[str, str]:
    """Return the flags that go on with a run if it has a checkpoint, and else start it.

    A job that ended before its first checkpoint leaves a folder without one, and the next start
    gets `<run>_2`: the first of them that has a checkpoint is the run.

    Raises:
      ConfigError: if a run has to be started, and none can have that name.
    """
    others = run.parent.glob(f"{glob.escape(run.name)}_[1-9]*")
    folders = {int(n): path for path in others if (n := path.name[len(run.name) + 1 :]).isdecimal()}
    for _, folder in sorted({**folders, 1: run}.items()):
        if any((folder / CHECKPOINTS).glob("*.pt")):
            return {"op_mode": "train_w_load", "load_model_url": str(folder)}
    where = f"--{RESUME_OR_START}={shown_text(str(run))}"
    if (run / MODEL_WEIGHTS).is_file():
        raise ConfigError(f"{where} is a model folder, expected a run's: --load starts from one")
    if problem := wrong_run_name(run.name):
        raise ConfigError(f"{where}: the last name {problem}")
    return {"op_mode": "train", "results_dir": str(run.parent), "run_name": run.name}


def unknown_option(name: str, others: Iterable[str] = ()) -> str:
    """Return the line about a name that is no flag: the flag to write instead, or similar ones."""
    if name.lower() in _HINTS:
        return f"--{name} is not an option here: write {_HINTS[name.lower()]}"
    if name in others:  # it would have been taken if it did not follow `--`
        return f"--{name} is no flag of a run: write it before the --"
    known = {*Flags.model_fields, *COMMANDS, RESUME_OR_START, *others}
    near = difflib.get_close_matches(name, sorted(known), 3)
    hint = f"; did you mean {' or '.join('--' + n for n in near)}?" if near else ""
    return f"unknown option --{shown_text(name)}{hint} ({main_command()} --help=all lists all)"


def _may_be_empty(name: str) -> bool:
    """Whether a flag may be given as empty: its default is, or it is one of earlier versions.

    Of other flags an empty value is a variable of the shell that is not set.
    """
    if name in Flags.model_fields:
        return Flags.model_fields[name].default in ("", ())
    return is_earlier(name)


def _example(name: str) -> str:
    """Return a value of a flag; "" where its default is none or empty and shows nothing."""
    if name in (*COMMANDS, RESUME_OR_START):
        return "results/<run>"
    if name == REPLAY:
        return REPLAY_EXAMPLE
    default = Flags.model_fields[name].default if name in Flags.model_fields else None
    if default is None or default == ():
        return ""
    return "True" if isinstance(default, bool) else str(default)
