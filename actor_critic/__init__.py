"""The platform as a library, for scripts and notebooks (docs/library.md).

    from actor_critic import evaluate, load_agent, read_run, train

    summary = train(env="CartPole-v1", environment_max_steps=100_000)
    table = read_run(summary.folder)        # metrics as columns
    agent = load_agent(summary.folder)      # acts on observations
    reports = evaluate(summary.folder, test_episode_count=20)

Arguments are the flags of main.py, under their names. Each function may be called any number of
times in one interpreter, and leaves signals, logging and PyTorch's settings as it found them.

| file | what is there |
|---|---|
| `training.py` | `train` |
| `evaluation.py` | `evaluate` |
| `playing.py` | `load_agent` and what it returns |
| `table.py` | `read_run` and what it returns |
| `command.py` | from Python values to the flags of a command line |
| `interpreter.py` | what a call may change in the interpreter, and how that is undone |
| `interrupts.py` | Ctrl-C in an interpreter that goes on |
"""

from actor_critic.evaluation import evaluate
from actor_critic.interrupts import Interrupted
from actor_critic.playing import Agent, Decision, load_agent
from actor_critic.table import RunTable, read_run
from actor_critic.training import Summary, train
from core.errors import CheckpointError, ConfigError, EnvironmentFault, PlatformError

__all__ = [
    "Agent",
    "CheckpointError",
    "ConfigError",
    "Decision",
    "EnvironmentFault",
    "Interrupted",
    "PlatformError",
    "RunTable",
    "Summary",
    "evaluate",
    "load_agent",
    "read_run",
    "train",
]
