"""Cases about what lies on a disk: checkpoints and run folders, made once and damaged in copies."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from unittest import mock

from ritornello.agent.run import training
from ritornello.agent.session import prepare
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_file import write_tree
from ritornello.agent.stored.checkpoint_tree import encode
from ritornello.core.errors import CheckpointError, ConfigError
from ritornello.main import main
from tests.fuzz.mutations import mutated_bytes, mutated_text, mutated_tree, nasty

Action = Callable[[], object]
RECORD = {
    **{"agent_steps": 40, "frames": 40, "updates": 2, "episodes": 1, "wall_s": 0.5},
    "values": {"episode/return_mean": 20.0, "episode/return_best": 30.0, "loss/total": 0.1},
}
QUIET = ("--basic_verbose=False", "--tensorboard=False", "--charts=False")
SMALL = (
    *("--env=CartPole-v1", "--reproducible=True", "--seed=1", "--r_f_steps=5", "--batch_size=2"),
    *("--envs_per_worker=2", "--feature_out_layer_size=8", "--learner_thread_count=1", *QUIET),
    '--replay_parameters=[{"type": "queue", "capacity": 2, "sample_ratio": 1}]',
)
FILES = (
    *("flags.json", "run.json", "metrics.jsonl", "Scores.txt", "summary.json"),
    "checkpoints/latest",
)


@functools.cache
def sound_run() -> Path:
    """Return the folder of a short run of CartPole, made for this process."""
    results = Path(tempfile.mkdtemp(prefix="fuzz_"))
    atexit.register(shutil.rmtree, results, ignore_errors=True)
    with _quietly():
        session = prepare(
            [*SMALL, f"--results_dir={results}", "--environment_max_steps=60", "--save_replay=True"]
        )
        assert session.run() == 0
    (run,) = results.iterdir()
    return run


def damaged_checkpoints(rng: Random, place: Path) -> Action:
    """Bytes of a checkpoint changed, of the model's file or of its replay's."""
    source = rng.choice(sorted((sound_run() / "checkpoints").glob("update_*")))
    shutil.copytree(source.parent, place / "checkpoints")
    damaged = place / "checkpoints" / source.name
    damaged.write_bytes(mutated_bytes(rng, source.read_bytes()))
    url = damaged if rng.random() < 0.3 else place

    def act() -> object:
        return load(url).load_replay()

    return act


def strange_checkpoints(rng: Random, place: Path) -> Action:
    """Sound files with another content: what is resumed, played, or started from."""
    sound = load(sound_run())
    state = encode(sound.state)
    path = place / "strange.pt"
    shutil.copy(sound.replay_path, place)  # without it the resume of a reproducible run is refused
    try:
        write_tree(path, mutated_tree(rng, state))
    except (CheckpointError, ValueError, OverflowError, RecursionError):  # no file can hold that
        write_tree(path, state)
    mode = rng.choice(("train", "train_w_load", "train_w_load", "test"))
    argv = [f"--op_mode={mode}", f"--load_model_url={path}", "--environment_max_steps=100"]

    def act() -> object:
        return prepare([*argv, f"--results_dir={place / 'results'}", *QUIET])

    return act


def strange_run_folders(rng: Random, place: Path) -> Action:
    """Journals, flags and the name of the latest checkpoint changed; then the run is resumed."""
    run = place / "run"
    shutil.copytree(sound_run(), run)
    for name in rng.sample(FILES, rng.choice((1, 1, 2))):
        _hurt(rng, run / name)
    argv = ["--op_mode=train_w_load", f"--load_model_url={run}", "--environment_max_steps=75"]

    def act() -> object:
        return _program([*argv, *QUIET])

    return act


def prepared_commands(rng: Random, place: Path) -> Action:
    """Whole command lines, up to the point at which something would be made."""
    from tests.fuzz.targets import command_line

    argv = [word for word in command_line(rng) if not word.startswith("--results")]
    if rng.random() < 0.8:
        argv.append("--env=CartPole-v1")

    def act() -> object:
        return prepare([*argv, f"--results_dir={place / 'results'}"])

    return act


def _hurt(rng: Random, path: Path) -> None:
    """Change one file of a run folder: a little, altogether, or into something that is no file."""
    kind = rng.randrange(6)
    data = path.read_bytes() if path.is_file() else b"{}"
    path.unlink(missing_ok=True)
    if kind == 0:
        return
    if kind == 1:
        path.mkdir()
    elif kind == 2:
        path.write_bytes(mutated_bytes(rng, data))
    elif kind == 3:
        path.write_text(mutated_text(rng, data.decode()), encoding="utf-8", errors="replace")
    elif kind == 4 and path.suffix in (".json", ".jsonl"):
        lines = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
        path.write_text("\n".join(_mutated_json(rng, line) for line in lines))
    else:
        path.write_text(str(nasty(rng))[:50_000], encoding="utf-8", errors="replace")


def _mutated_json(rng: Random, text: str) -> str:
    with contextlib.suppress(ValueError, RecursionError, TypeError):
        return json.dumps(mutated_tree(rng, json.loads(text)))
    return text


def _program(argv: list[str]) -> None:
    """Run main.py's `main` in this process; a failure must be one message, without a traceback."""
    with _quietly() as said:
        status = main(argv)
    text = said.getvalue()
    assert status in (0, 1, 2), status
    assert "Traceback" not in text, text[-2000:]
    if status == 1:
        assert "the run failed: " in text or "error: " in text, text[-2000:]
    if status == 2:  # of a run that began and failed, files are left
        raise ConfigError(" ".join(text.split())[:5000])


@contextlib.contextmanager
def _quietly() -> Iterator[io.StringIO]:
    """Keep what is printed, and torch's settings, which are for a whole process, as they are."""
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        mock.patch.object(training, "_set_up_torch", return_value=None),
    ):
        yield said
