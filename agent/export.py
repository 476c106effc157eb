"""Makes a model folder (agent/stored/model_file.py) of a run or of one of its checkpoints.

    python -m ritornello.agent.export --load_model_url=results/<run> --output=models/pong

--format=onnx or torch makes a network that acts without this program (agent/deployed/).

The training facts come from the checkpoint and from the run folder that it lies in; a score is
among them if the checkpoint was tested before (--op_mode=test). `--card` writes a card for people
beside them (agent/testing/model_card.py), `--push` sends all to a model hub (agent/stored/hub.py).
"""

from __future__ import annotations

from ritornello.core.run_layout import FILMS, FLAGS
from ritornello.core.stop_signals import INTERRUPTED, Answer, StopSignals

if __name__ == "__main__":
    STOP = StopSignals()
    STOP.install()  # before what takes long is imported

import argparse
import glob
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.agent.run.messages import next_command
from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.checkpoint_folder import run_of
from ritornello.agent.stored.hub import Repository, push
from ritornello.agent.stored.model_file import FACTS, FLAGS_OF_THE_MACHINE, WEIGHTS, save_model
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing.model_card import CARD, FILM, check_is_free, model_card, read_test
from ritornello.agent.testing.score_table import Report, report_stem, test_facts
from ritornello.core.atomic_file import atomic_path, write_text
from ritornello.core.command_line import (
    add_switch,
    counted,
    printable,
    reader_may_leave,
    tell,
    with_home,
)
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.project import main_command
from ritornello.core.saved_state import expect, item, items, number, whole, within
from ritornello.flags.earlier import modern
from ritornello.flags.names import named_values
from ritornello.metrics.run_files import is_regular
from ritornello.metrics.text import same_decimals

# Flags that say where things are, and what one session does; a card is for other machines.
PLACES = ("results_dir", "run_name", "load_model_url", "flags_file", "live", "console", "sink")


def export(checkpoint: Checkpoint, output: Path) -> dict[str, Any]:
    """Write the model folder `output` of a checkpoint, or write it anew; return the facts.

    Raises:
      ConfigError: if the folder cannot be written.
    """
    facts = training_facts(checkpoint)
    save_model(output, checkpoint.state["learner"]["model"], checkpoint.state["flags"], facts)
    return facts


def training_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what is known about a checkpoint, as JSON types; None for what is not known.

    `mean_return` is the mean of the raw returns of the last `mean_return_games` whole games in
    training, of which there is none over several games; `test` is about whole games played with
    exactly these weights.

    Raises:
      StateError: if a count or a return in the checkpoint is none.
    """
    run, session, tested = run_of(checkpoint.path), _session(checkpoint, -1), _tests_of(checkpoint)
    with within("tally"):
        tally = checkpoint.state["tally"]
        training_s, played = number(tally, "wall_s"), item(tally, "games", dict)
        with within("games"):
            games, window = whole(played, "count"), items(played, "window", float, default=[])
            expect(bool(np.isfinite(window).all()), "finite returns", "window")
    return {
        "env_spec": checkpoint.state["env_spec"],
        "agent_steps": checkpoint.agent_steps,
        "updates": checkpoint.updates,
        "games": games,
        "training_s": round(training_s, 1),
        "mean_return": sum(window) / len(window) if window else None,
        "mean_return_games": len(window),
        "test": test_facts(next(iter(tested.values()))) if tested else None,
        "run": run.resolve().name if run else None,
        "checkpoint": checkpoint.path.name,
        "commit": session.get("source", {}).get("commit"),
        "versions": session.get("versions"),
    }


def write_card(
    checkpoint: Checkpoint, output: Path, facts: Mapping[str, Any], repository: str
) -> list[str]:
    """Write the card of an exported model, and its film; return the names of the files.

    `facts` is the result of `export`. `repository` is `<owner>/<name>` on the hub, perhaps with
    `@<revision>`; "" if the model will not be there.

    Raises:
      ConfigError: if the folder cannot be written.
    """
    tested = _tests_of(checkpoint)
    film, film_of = _film(checkpoint.home, tested)
    flags = {k: v for k, v in checkpoint.state["flags"].items() if k not in FLAGS_OF_THE_MACHINE}
    text = model_card(
        output.resolve().name,
        facts,
        flags,
        tested=[report for reports in tested.values() for report in reports],
        command=_command(checkpoint),
        film_of=film_of,
        repository=repository,
    )
    try:
        write_text(output / CARD, text)
        (output / FILM).unlink(missing_ok=True)  # of an earlier export
        if film is not None:
            with atomic_path(output / FILM) as temporary:
                shutil.copyfile(film, temporary)
    except OSError as error:
        raise ConfigError(f"Cannot write the card into {output}: {error}.") from error
    return [CARD, FILM] if film is not None else [CARD]


def summary_lines(facts: dict[str, Any], output: Path, flags: Mapping[str, Any]) -> list[str]:
    """Return the lines that the terminal shows after an export of a model with these flags."""
    spec, test = facts["env_spec"], facts["test"]
    size_mb = (output / WEIGHTS).stat().st_size / 1e6
    lines = [
        f"{output}: {spec['env_id']}, {facts['agent_steps']:,} agent steps, {facts['updates']:,} "
        f"updates, weights of {size_mb:.1f} MB"
    ]
    if facts["mean_return"] is not None:
        lines.append(
            f"  in training: mean return of the last {facts['mean_return_games']} games "
            + same_decimals([facts["mean_return"]], 2)[0]
        )
    if test is None:
        # A test of some of its games is none of the agent.
        untested = f"not tested yet in {spec['env_id']}"
        lines.append(f"  {untested}: {main_command()} --test=<the run>, then export again")
    else:
        # The report of an agent of several games has a mean for each of them, and none over all.
        mean = "" if test["mean"] is None else f", mean {same_decimals([test['mean']], 2)[0]}"
        lines.append(f"  tested: {counted(test['episodes'], 'game')}, {test['policy']}{mean}")
    return [*lines, f"play: {next_command('test', output, flags)}"]


def main(argv: Sequence[str], show: Callable[[str], None] = tell) -> None:
    """Run the command; a mistake is a message and exit status 2, an interrupt one line and 130."""
    parser = argparse.ArgumentParser(
        prog="python -m ritornello.agent.export",
        description="Make a small folder of a trained agent that can be shipped and played, and "
        "be what a new run starts from.",
    )
    parser.add_argument(
        "--load_model_url",
        required=True,
        help="run folder (its latest checkpoint is taken) or checkpoint file",
    )
    parser.add_argument(
        "--output",
        required=True,
        help="the folder, e.g. models/pong; made, or written anew",
    )
    parser.add_argument(
        "--format",
        choices=("weights", "onnx", "torch"),
        default="weights",
        help="weights (default): a model folder; others: a network that acts without this program",
    )
    add_switch(parser, "--card", f"also write {CARD}: score, film, flags, command")
    parser.add_argument(
        "--push",
        type=Repository.parse,
        metavar="OWNER/NAME",
        help="also send the model, and the card, to the Hugging Face Hub (extra hub)",
    )
    add_switch(parser, "--private", "with --push: a new repository is visible to its owner only")
    add_switch(parser, "--trust_env_module", "as of main.py; for onnx and torch")
    try:
        options = parser.parse_args(with_home(argv))
        if not options.output.strip():
            raise ConfigError("--output names no folder: give one, e.g. --output=models/pong.")
        output = Path(options.output)
        if options.format != "weights":
            return _deploy(options, show)
        target: Repository | None = options.push
        if options.card or target:
            check_is_free(output)
        checkpoint = load(options.load_model_url)
        facts = export(checkpoint, output)
        names = [WEIGHTS, FLAGS, FACTS]
        if options.card or target:
            names += write_card(checkpoint, output, facts, str(target) if target else "")
        with reader_may_leave():
            for line in summary_lines(facts, output, modern(checkpoint.state["flags"])):
                show(line)
        if target:
            where = push(output, names, target, private=options.private)
            with reader_may_leave():
                show(f"pushed: {where}")
    except (PlatformError, OSError) as error:
        parser.exit(2, f"error: {printable(str(error))}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED, "interrupted: the same command writes the model anew\n")


def _deploy(options: argparse.Namespace, show: Callable[[str], None]) -> None:
    """Write a network that acts without this program, and show what was written."""
    from ritornello.agent.deployed.formats import deploy

    if options.card or options.push:
        raise ConfigError("--card and --push are of model folders: expected --format=weights.")
    url, kind, trust = options.load_model_url, options.format, options.trust_env_module
    lines = deploy(url, kind, Path(options.output), trust=trust)
    with reader_may_leave():
        show("\n".join(lines))


def _tests_of(checkpoint: Checkpoint) -> dict[Path, list[Report]]:
    """Return tests of exactly these weights in the agent's own games; sampled actions first.

    Of several with the same kind of actions it is the one of the most games.
    """
    env_id = checkpoint.state["env_spec"]["env_id"]
    found = {}
    for policy in ("sampled", "greedy"):
        stem = report_stem(checkpoint.path.stem, [env_id], policy)
        files = sorted(checkpoint.home.glob(f"{glob.escape(stem)}*.json"))
        # A resumed run can reach the same update again with other weights.
        tests = {
            file: reports
            for file in files
            if (reports := read_test(file))
            and reports[0].agent_steps == checkpoint.agent_steps
            and all(report.episodes >= report.asked for report in reports)
        }
        if tests:
            most = max(tests, key=lambda file: sum(report.episodes for report in tests[file]))
            found[most] = tests[most]
    return found


def _film(folder: Path, tested: Iterable[Path]) -> tuple[Path | None, str]:
    """Return a film of the agent and what it shows: a test of these weights, or the newest one."""
    for report in tested:
        if is_regular(report.with_suffix(".mp4")):
            return report.with_suffix(".mp4"), "A game of the test"
    for path in sorted((folder / FILMS).glob("[!.]*.mp4"), reverse=True):
        if is_regular(path):
            return path, "A game of an evaluation during the training"
    return None, ""


def _command(checkpoint: Checkpoint) -> list[str]:
    """Return the arguments of the first session of a run, without places on this machine."""
    try:
        values = named_values([str(word) for word in _session(checkpoint, 0)["command_line"][1:]])
    except (ValueError, LookupError, PlatformError):
        return []
    return [f"--{name}={value}" for name, value in values.items() if name not in PLACES]


def _session(checkpoint: Checkpoint, number: int) -> dict[str, Any]:
    """Return the entry in run.json about a session of the run; {} if there is none."""
    try:
        return RunFolder(checkpoint.home).sessions()[number]
    except (OSError, ValueError, IndexError):
        return {}


if __name__ == "__main__":
    with STOP.answered_by(Answer.RAISE):
        main(sys.argv[1:])
