"""The flags of what is shown, written and measured: the groups `output` and `evaluation`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count, CountOrAuto, Positive, SinkName, Text


class OutputFlags(FlagGroup, effect="output"):
    """What is written and shown, and how often."""

    save_model_period: Count = flag(1000, "updates between checkpoints")
    keep_checkpoints: Count = flag(
        3, "number of latest checkpoints to keep; the best one is kept as well"
    )
    save_model_every_nsteps: CountOrAuto = flag(
        0, "also keep one checkpoint permanently every so many agent steps; 0: none"
    )
    save_replay: bool = flag(
        False,
        "save the contents of the replay buffers with each checkpoint; their counters are always saved",
    )
    log_interval_s: Positive = flag(5.0, "seconds between records of all metrics")
    gradient_metrics: bool = flag(
        False,
        "measure the gradient of each layer in one update per --log_interval_s: its norm, the size of the step, and the share of zeros; also the gradient of the value loss beside that of the policy loss. python -m ritornello.analysis gradients draws them",
    )
    avg_buff_size: Count = flag(100, "games in the moving average of the return")
    console: Annotated[bool | Literal["messages"], Field(union_mode="left_to_right")] = flag(
        True,
        "what is written to the terminal; True: progress and messages; messages: only warnings and errors; False: nothing, not even why a run failed. train.log has all of it",
        of_this_command=True,
    )
    live: bool = flag(
        False,
        "also serve the live page of --results_dir for as long as the run lasts, and print its address (docs/live.md). It needs extra live",
        of_this_command=True,
    )
    sink: SinkName = flag(
        "",
        "outputs that also receive records: wandb, mlflow, trackio (docs/library.md), or <module>:<name> of your own (docs/your_own.md); several with commas",
        of_this_command=True,
    )
    tensorboard: bool = flag(True, "write TensorBoard event files")
    charts: bool = flag(True, "draw charts (PNG) at the end of the run")


class EvaluationFlags(FlagGroup, effect="output"):
    """Whole games that the agent plays while it is trained, to measure it; nothing is learned from them."""

    evaluate_every_steps: CountOrAuto = flag(
        0,
        "agent steps between evaluations, in which the newest weights play whole games; 0: none. A separate process plays them, with a twentieth of a busy machine. Of the evaluations that fall due meanwhile, only the last is played",
    )
    evaluation_games: Count = flag(
        5,
        "whole games that an evaluation plays of each game with sampled actions, and as many with the most probable ones",
        le=10_000,
    )
    evaluation_preset: Text | None = flag(
        None,
        "preset, e.g. sticky, from which evaluations take the rules on sticky actions, the start of a game, and its length. None: the rules of training. In both cases a lost life does not end the game, and the actions are those of the agent",
    )
    evaluation_films: CountOrAuto = flag(
        0,
        "film a game at every n-th evaluation, the first one included, into the folder films/ of the run; 0: none",
    )
