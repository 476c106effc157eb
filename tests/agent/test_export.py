import copy
import csv
import hashlib
import json
import math
import shlex
from dataclasses import replace

import pytest

from ritornello.agent.export import export, main, training_facts
from ritornello.agent.run.tally import Tally
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.checkpoint_writer import CheckpointWriter
from ritornello.agent.stored.model_file import load_model
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing.evaluator import evaluate, evaluate_all
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import StateError
from tests.agent.runs import COUNTING, make_blueprint, saved_state, silent

RETURNS = [1.0, 2.0, 6.0]
UPDATES, STEPS = 7, 140


@pytest.fixture
def blueprint():
    return make_blueprint(test_episode_count=4)


@pytest.fixture
def run(tmp_path, blueprint):
    """A run folder with one checkpoint, as the trainer leaves it."""
    folder = RunFolder.create(tmp_path / "results", "Counting")
    tally = Tally(action_repeat=1, window=2)
    tally.agent_steps, tally.updates = STEPS, UPDATES
    for value in RETURNS:
        tally.book_game(EpisodeEnd(0, value, 5, 5))
    state = saved_state(blueprint, tally=tally.state_dict())
    CheckpointWriter(folder.checkpoints).save(state, updates=UPDATES, agent_steps=STEPS)
    folder.write_run_info(["main.py"])
    return folder.path


def fingerprints(folder):
    with next(folder.glob("test_*.csv")).open() as file:
        return [row["fingerprint"] for row in csv.DictReader(file)]


def test_the_facts_are_those_of_the_run(run, tmp_path):
    facts = export(load(run), tmp_path / "models" / "counting")
    written = json.loads((tmp_path / "models" / "counting" / "model.json").read_text("utf-8"))
    assert written.items() >= json.loads(json.dumps(facts)).items()
    assert (written["agent_steps"], written["updates"], written["games"]) == (STEPS, UPDATES, 3)
    assert (written["mean_return"], written["mean_return_games"]) == (4.0, 2)  # the window's
    assert written["env_spec"]["env_id"] == "tests.fakes:tests/Counting-v0"
    assert len(written["env_spec"]["action_meanings"]) == 3
    assert (written["run"], written["checkpoint"]) == (run.name, "update_000000007.pt")
    assert written["versions"] == json.loads((run / "run.json").read_text("utf-8"))["versions"]
    assert written["test"] is None
    weights = (tmp_path / "models" / "counting" / "model.safetensors").read_bytes()
    assert written["sha256"] == hashlib.sha256(weights).hexdigest()
    assert str(tmp_path) not in json.dumps(written), "a path of this machine"


@pytest.mark.parametrize(
    ("name", "value"),
    [("wall_s", "7"), ("wall_s", math.nan), ("count", "7"), ("count", -7), ("games", None)]
    + [("window", [1.0, bad]) for bad in ("7", None, math.inf)],
)
def test_no_file_puts_anything_else_where_a_fact_is_a_number(run, name, value):
    checkpoint = load(run)
    tally = copy.deepcopy(checkpoint.state["tally"])
    (tally["games"] if name in ("count", "window") else tally)[name] = value
    with pytest.raises(StateError, match=rf"^state\['tally'\].*{name}.*expected"):
        training_facts(replace(checkpoint, state={**checkpoint.state, "tally": tally}))


def test_several_games_have_no_mean_return(run):
    checkpoint = load(run)
    tally = Tally(action_repeat=1, window=2, tasks=("CartPole-v1", "Acrobot-v1"))
    tally.book_game(EpisodeEnd(0, 2.0, 5, 5))
    facts = training_facts(
        replace(checkpoint, state={**checkpoint.state, "tally": tally.state_dict()})
    )
    assert (facts["games"], facts["mean_return"], facts["mean_return_games"]) == (1, None, 0)


def test_the_exported_agent_plays_the_very_games_of_the_checkpoint(run, tmp_path, blueprint):
    model = tmp_path / "counting"
    export(load(run), model)
    evaluate(blueprint, load(run), tmp_path / "a", show=silent)
    evaluate(blueprint, load_model(model), tmp_path / "b", show=silent)
    games = fingerprints(tmp_path / "a")
    assert len(set(games)) == 4
    assert fingerprints(tmp_path / "b") == games
    (written,) = (tmp_path / "b").glob("test_model_*_sampled.json")
    report = json.loads(written.read_text("utf-8"))
    assert report["agent_steps"] == STEPS


def test_models_of_one_name_share_neither_a_report_nor_rows(run, tmp_path, blueprint):
    for number, place in enumerate(("here", "there")):
        state = load(run).state
        for tensor in state["learner"]["model"].values():
            tensor.mul_(1 + number) if tensor.is_floating_point() else None
        export(replace(load(run), state=state), tmp_path / place / "counting")
        model, lines = load_model(tmp_path / place / "counting"), []
        output = model.output_folder(tmp_path / "out")
        evaluate(blueprint, model, output, show=silent)
        evaluate_all(blueprint, model, output, show=lines.append)
        assert lines[0].endswith("scores.csv yet: 1")
    assert len(list(output.glob("test_model_*_sampled.json"))) == 2
    assert len((output / "scores.csv").read_text().splitlines()) == 1 + 2 * 4


def report_of(run, blueprint):
    """Test the run; return the file of its report, and the report."""
    evaluate(blueprint, load(run), run, show=silent)
    (file,) = run.glob("test_update_000000007_*_sampled.json")
    return file, json.loads(file.read_text("utf-8"))


def test_a_score_is_shipped_if_these_very_weights_were_tested(run, tmp_path, blueprint):
    report_file, report = report_of(run, blueprint)
    test = export(load(run), tmp_path / "counting")["test"]
    assert test["episodes"] == 4
    assert test["mean"] == report["mean"]
    assert test["policy"] == "sampled"
    # Another policy's report lies beside it; the one of sampled actions goes first.
    other = report_file.with_name(report_file.name.replace("sampled", "greedy"))
    other.write_text(json.dumps({**report, "policy": "greedy", "mean": -1.0}))
    assert export(load(run), tmp_path / "counting")["test"]["policy"] == "sampled"
    report_file.unlink()
    assert export(load(run), tmp_path / "counting")["test"]["policy"] == "greedy"
    other.unlink()
    # The same update of a run that was resumed from before it: other weights.
    report_file.write_text(json.dumps({**report, "agent_steps": STEPS + 1}))
    assert export(load(run), tmp_path / "counting")["test"] is None


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_model_of_another_library_is_left_alone(run, tmp_path, capsys, name):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / name).write_text("theirs")
    with pytest.raises(SystemExit):
        main([f"--load_model_url={run}", f"--output={tmp_path / 'theirs'}"])
    assert f"has a {name} that is not of an export" in capsys.readouterr().err
    (file,) = (tmp_path / "theirs").iterdir()
    assert file.read_text() == "theirs"


def test_a_model_cannot_be_exported_again_and_the_message_says_that_it_is_one(run, tmp_path):
    export(load(run), tmp_path / "counting")
    for url in (tmp_path / "counting", "models/pong"):
        with pytest.raises(CheckpointError, match="is a model folder already: copy it"):
            load(url)


@pytest.mark.parametrize("kwargs", ["{}", '{"level": "a b"}'])
def test_the_command_that_plays_an_export_names_what_it_trusts(tmp_path, kwargs):
    state = saved_state(make_blueprint())
    state["flags"] |= {"env": COUNTING, "env_kwargs": kwargs}
    path = CheckpointWriter(tmp_path / "run").save(state, updates=1, agent_steps=1)
    lines = []
    main([f"--load_model_url={path}", f"--output={tmp_path / 'my model'}"], lines.append)
    words = shlex.split("\n".join(lines).partition("play: ")[2])
    assert {f"--test={tmp_path / 'my model'}", f"--env={COUNTING}"} <= set(words)
    assert (f"--env_kwargs={kwargs}" in words) == (kwargs != "{}")


def test_a_mistake_is_one_message_and_status_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([f"--load_model_url={tmp_path / 'nowhere'}", f"--output={tmp_path / 'counting'}"])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "nowhere does not exist" in error
    assert not (tmp_path / "counting").exists()


def test_a_folder_that_cannot_be_is_one_message(tmp_path, capsys):
    path = CheckpointWriter(tmp_path / "run").save(
        saved_state(make_blueprint()), updates=1, agent_steps=1
    )
    with pytest.raises(SystemExit) as exit_:
        main([f"--load_model_url={path}", f"--output={tmp_path / ('x' * 300)}"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    "change",
    [
        {"mean": "x"}, {"mean": float("inf"), "distinct_games": None}, {"policy": "\x1b[31mred\n"},
        {"episodes": None}, {"games": 5}, {"returns": []},
    ],
)  # fmt: skip
def test_a_damaged_report_is_no_test(run, tmp_path, blueprint, change):
    path, report = report_of(run, blueprint)
    path.write_text(json.dumps({**report, **change}))
    lines = []
    main([f"--load_model_url={run}", f"--output={tmp_path / 'counting'}", "--card"], lines.append)
    assert f"not tested yet in {blueprint.env_spec.env_id}: " in "\n".join(lines)
    assert "It was not tested" in (tmp_path / "counting" / "README.md").read_text("utf-8")
    assert load_model(tmp_path / "counting").state["tally"]["updates"] == UPDATES
