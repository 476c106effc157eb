"""Makes a model folder (agent/stored/model_file.py) of a run or of one of its checkpoints.

    python -m agent.export --load_model_url=results/<run> --output=models/pong

The training facts come from the checkpoint and from the run folder that it lies in; a score is
among them if the checkpoint was tested before (--op_mode=test). `--card` writes a card for people
beside them (agent/testing/model_card.py), `--push` sends all to a model hub (agent/stored/hub.py).
"""

from __future__ import annotations

from ritornello.core.run_layout import FLAGS
from ritornello.core.stop_signals import INTERRUPTED, Answer, StopSignals

if __name__ == "__main__":
    STOP = StopSignals()
    STOP.install()  # before what takes long is imported

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ritornello.agent.stored.checkpoint import Checkpoint, load
from ritornello.agent.stored.checkpoint_folder import run_of
from ritornello.agent.stored.hub import Repository, push
from ritornello.agent.stored.model_file import FACTS, WEIGHTS, save_model
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing.evaluation import FILMS
from ritornello.agent.testing.model_card import CARD, FILM, model_card, read_scores
from ritornello.agent.testing.score_table import TEST_FACTS, report_stem
from ritornello.core.atomic_file import atomic_path, write_text
from ritornello.core.command_line import add_switch, printable, reader_may_leave, tell, with_home
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.core.project import main_command
from ritornello.core.saved_state import StateError, expect, item, number, whole
from ritornello.flags.names import named_values
from ritornello.metrics.run_files import is_regular

# Flags that say where things are, and what one session does; a card is for other machines.
PLACES = ("results_dir", "run_name", "load_model_url", "flags_file", "live", "console", "sink")
Note = Callable[[str], None]


def _no_note(text: str) -> None:
    """Take a note that nobody reads."""


def export(url: str, output: Path, note: Note = _no_note) -> dict[str, Any]:
    """Write the model folder `output` of the checkpoint that `url` means; return the facts.

    Args:
      url: a run folder (its latest checkpoint), its checkpoints folder, or a checkpoint file.
      output: the model folder, made or written anew.
      note: is called with what was left out, and why.

    Raises:
      CheckpointError: if there is no sound checkpoint.
      ConfigError: if the folder cannot be written.
    """
    checkpoint = load(url)
    facts = training_facts(checkpoint, note)
    save_model(output, checkpoint.state["learner"]["model"], checkpoint.state["flags"], facts)
    return facts


def training_facts(checkpoint: Checkpoint, note: Note = _no_note) -> dict[str, Any]:
    """Return what is known about a checkpoint, as JSON types; None where it is not known.

    `mean_return` is of the raw returns of the last `mean_return_games` whole games in training,
    `test` is of whole games played with these very weights.
    """
    tally, path = checkpoint.state["tally"], checkpoint.path
    run = run_of(path)
    folder = run or path.parent
    session = _last_session(folder)
    report = _test_report(folder, path.stem, checkpoint.state["env_spec"]["env_id"], note)
    # A resumed run can reach the same update again with other weights.
    tested = report.get("agent_steps") == tally["agent_steps"]
    window = [float(value) for value in tally["games"]["window"]]
    return {
        "env_spec": checkpoint.state["env_spec"],
        "agent_steps": tally["agent_steps"],
        "updates": tally["updates"],
        "games": tally["games"]["count"],
        "training_s": round(tally["wall_s"], 1),
        "mean_return": sum(window) / len(window) if window else None,
        "mean_return_games": len(window),
        "test": {name: report.get(name) for name in TEST_FACTS} if tested else None,
        "run": run.resolve().name if run else None,
        "checkpoint": path.name,
        "commit": session.get("source", {}).get("commit"),
        "versions": session.get("versions"),
    }


def write_card(
    url: str,
    output: Path,
    facts: Mapping[str, Any],
    repository: str = "",
    note: Note = _no_note,
) -> list[str]:
    """Write the card of an exported model, and its film; return the names of what was written.

    Args:
      url: as for `export`.
      output: the model folder.
      facts: result of `export`.
      repository: `<owner>/<name>` on the hub, if it is to be there.
      note: is called with what was left out, and why.

    Raises:
      CheckpointError: if there is no sound checkpoint.
      ConfigError: if the folder cannot be written.
    """
    checkpoint = load(url)
    folder = run_of(checkpoint.path) or checkpoint.path.parent
    stem, env_id = checkpoint.path.stem, checkpoint.state["env_spec"]["env_id"]
    stems = [report_stem(stem, [env_id], policy) for policy in ("sampled", "greedy")]
    tested = [
        folder / f"{name}.json"
        for name in stems
        if _report(folder / f"{name}.json", note).get("agent_steps") == facts["agent_steps"]
    ]
    film, film_of = _film(folder, [path.with_suffix(".mp4") for path in tested], note)
    text = model_card(
        output.resolve().name,
        facts,
        _read_if_there(output / FLAGS, note),
        scores=[score for path in tested for score in read_scores(path)],
        command=_command(folder),
        film_of=film_of,
        repository=repository,
    )
    try:
        write_text(output / CARD, text)
        if film is not None:
            with atomic_path(output / FILM) as temporary:
                shutil.copyfile(film, temporary)
        elif (output / FILM).exists():
            (output / FILM).unlink()  # of an earlier export
    except OSError as error:
        raise ConfigError(f"Cannot write the card into {output}: {error}.") from error
    return [CARD, FILM] if film is not None else [CARD]


def summary_lines(facts: dict[str, Any], output: Path) -> list[str]:
    """Return what the terminal shows after an export."""
    spec, test = facts["env_spec"], facts["test"]
    size_mb = (output / WEIGHTS).stat().st_size / 1e6
    lines = [
        f"{output}: {spec['env_id']}, {facts['agent_steps']:,} agent steps, {facts['updates']:,} "
        f"updates, weights of {size_mb:.1f} MB"
    ]
    if facts["mean_return"] is not None:
        lines.append(
            f"  in training: mean return of the last {facts['mean_return_games']} games "
            f"{facts['mean_return']:.2f}"
        )
    if test is None:
        lines.append("  not tested yet: run --op_mode=test with it, then export again")
    else:
        # The report of an agent of several games has a mean for each of them, and none over all.
        mean = "" if test["mean"] is None else f", mean {test['mean']:.2f}"
        asked = test.get("asked") or 0
        of = f" of the {asked} asked for (short games are over first)"
        part = of if asked > test["episodes"] else ""
        lines.append(f"  tested: {test['episodes']} games{part}, {test['policy']}{mean}")
    place = shlex.quote(f"--load_model_url={output}")
    return [*lines, f"play: {main_command()} --op_mode=test {place}"]


def main(argv: Sequence[str], show: Callable[[str], None] = tell) -> None:
    """Run the command; a mistake is one message and exit status 2, an interrupt one line and 130.

    Args:
      argv: the command line without the program's name.
      show: is called with each line of what was made.
    """
    parser = argparse.ArgumentParser(
        prog="python -m agent.export",
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
        help="the model folder, e.g. models/pong; made, or written anew",
    )
    add_switch(parser, "--card", f"also write {CARD}: score, film, flags, command")
    parser.add_argument(
        "--push",
        type=Repository.parse,
        metavar="OWNER/NAME",
        help="also send the model, and the card, to the Hugging Face Hub (extra hub)",
    )
    add_switch(parser, "--private", "with --push: a new repository is visible to its owner only")
    try:
        options = parser.parse_args(with_home(argv))
        if not options.output.strip():
            raise ConfigError("--output names no folder: give one, e.g. --output=models/pong.")
        output, notes = Path(options.output), dict[str, None]()  # each is shown once, in order
        facts = export(options.load_model_url, output, notes.setdefault)
        names = [WEIGHTS, FLAGS, FACTS]
        target: Repository | None = options.push
        if options.card or target:
            name = target.name if target else ""
            names += write_card(options.load_model_url, output, facts, name, notes.setdefault)
        with reader_may_leave():
            for line in [*summary_lines(facts, output), *notes]:
                show(line)
        if target:
            where = push(output, names, target, private=options.private)
            with reader_may_leave():
                show(f"pushed: {where}")
    except PlatformError as error:
        parser.exit(2, f"error: {printable(str(error))}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED, "interrupted: the same command writes the model anew\n")


def _test_report(folder: Path, checkpoint: str, env_id: str, note: Note) -> dict[str, Any]:
    """Return the report of a test in the agent's own games, {} if there is none; sampled first."""
    for policy in ("sampled", "greedy"):
        report = _report(folder / f"{report_stem(checkpoint, [env_id], policy)}.json", note)
        if report:
            return report
    return _report(folder / f"test_{checkpoint}.json", note)  # as it was called before


def _report(path: Path, note: Note) -> dict[str, Any]:
    """Return the report of a test, {} if there is none or it is damaged: that is noted."""
    report = _read_if_there(path, note)
    try:
        if report:
            _check_report(report)
    except StateError as error:
        note(f"left out: {path} is no report of a test: {error}")
        return {}
    return report


def _check_report(report: Mapping[str, Any]) -> None:
    """Raise StateError unless it says what the report of a test says; older ones say less."""
    whole(report, "agent_steps")
    whole(report, "episodes", low=1)
    expect(item(report, "policy", str) in ("sampled", "greedy"), "sampled or greedy", "policy")
    for name in ("asked", "distinct_games"):
        whole(report, name, default=None)
    for name in ("mean", "median", "std", "min", "max", "human_normalised"):
        number(report, name, default=None)


def _film(folder: Path, tested: Sequence[Path], note: Note) -> tuple[Path | None, str]:
    """Return a film of the agent and whose it is: of a test of these weights, or the newest one."""
    for path in tested:
        if _is_film(path, note):
            return path, "A game of the test"
    for path in sorted((folder / FILMS).glob("[!.]*.mp4"), reverse=True):
        if _is_film(path, note):
            return path, "A game of an evaluation during the training"
    return None, ""


def _is_film(path: Path, note: Note) -> bool:
    """Whether a film can be shipped; an empty one, of a test that was killed, is noted."""
    if not is_regular(path):
        return False
    if path.stat().st_size == 0:
        note(f"left out: the film {path} is empty")
        return False
    return True


def _command(folder: Path) -> list[str]:
    """Return the arguments of the first session of a run, without places on this machine."""
    try:
        typed = [str(item) for item in RunFolder(folder).sessions()[0]["command_line"][1:]]
        values = named_values(typed)
    except (OSError, ValueError, LookupError, TypeError, PlatformError):
        return []
    return [f"--{name}={value}" for name, value in values.items() if name not in PLACES]


def _last_session(folder: Path) -> dict[str, Any]:
    """Return what run.json says of the session that made the newest weights, {} if nothing."""
    try:
        return RunFolder(folder).sessions()[-1]
    except (OSError, ValueError, IndexError):
        return {}


def _read_if_there(path: Path, note: Note) -> dict[str, Any]:
    """Return a JSON object, or an empty one: these files make a model no better to play."""
    try:
        if not path.exists():
            return {}
        data = parse_json(read_text(path, "the file"), str(path))
    except (ConfigError, OSError) as error:
        note(f"left out: {error}")
        return {}
    if not isinstance(data, dict):
        note(f"left out: {path} holds no JSON object")
        return {}
    return data


if __name__ == "__main__":
    with STOP.answered_by(Answer.RAISE):
        main(sys.argv[1:])
