"""The card of an exported agent says what was measured, and nothing that was not."""

import json
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import yaml

from ritornello.agent import export as program
from ritornello.agent.stored.checkpoint import load
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.agent.testing import model_card as model_card_file
from ritornello.agent.testing.evaluator import evaluate
from ritornello.agent.testing.model_card import CARD, FILM, interval, model_card, read_test
from ritornello.agent.testing.score_table import Game, Life, report_stem, summarise
from tests.agent.runs import silent
from tests.agent.test_export import blueprint, run  # noqa: F401  (fixtures)

FACTS = {
    "env_spec": {"env_id": "ALE/Pong-v5"},
    "agent_steps": 2_500_000,
    "updates": 1000,
    "mean_return": 19.5,
    "mean_return_games": 100,
    "games": 900,
    "versions": {"torch": "2.13.0"},
}


def report_of(env, *returns):
    games = [Game(n, value, 1, 4, f"{n}", (Life(value, 1),)) for n, value in enumerate(returns)]
    return summarise(games, env, "checkpoint", 1, greedy=True)


def header(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_texts_of_a_stranger_stay_texts():
    evil = "a\n---\nb\x1b[2J```\n</details><script>|![y](http://there)"
    facts = {**FACTS, "env_spec": {"env_id": evil}, "commit": evil, "versions": {evil: evil}}
    test = replace(report_of(evil, 1.0), policy=evil, rules=evil)
    card = model_card(
        evil, facts, {"env": evil, "algorithm": evil}, tested=[test], command=[evil], film_of="x"
    )
    assert "\x1b" not in card
    _, _, body = card.split("---\n", 2)
    shown = re.sub(r"(?ms)^```.*?^```", "", body)  # in a block everything is text
    assert not re.search(r"(?<!\\)<", shown)
    assert not re.search(r"(?<!\\)\[y\]", shown)
    assert len(re.findall(r"^---$", card, re.MULTILINE)) == 2
    assert len(re.findall(r"^```", card, re.MULTILINE)) == 4
    assert header(card)["tags"][-1] == evil


def test_commands_are_those_of_a_program_that_is_installed_or_not(monkeypatch):
    for program_name in ("python main.py", "ritornello"):
        monkeypatch.setattr(model_card_file, "PLAIN_MAIN", program_name)
        card = model_card("a", FACTS, {}, command=["--lr=0.5"])
        assert f"```\n{program_name} --test=<this folder>\n```" in card
        assert f"```\n{program_name} --lr=0.5\n```" in card


def test_an_export_with_a_card_has_the_test_of_these_weights(run, blueprint, tmp_path, capsys):  # noqa: F811
    output = tmp_path / "models" / "counting"
    checkpoint = load(str(run))
    (report,) = evaluate(blueprint, checkpoint, run, show=silent)
    stem = report_stem(checkpoint.path.stem, [blueprint.env_spec.env_id], "sampled")
    (run / f"{stem}.mp4").write_bytes(b"film")
    folder = RunFolder(run)
    folder.run_file.unlink()
    folder.write_run_info(["main.py", "--lr", "0.5", "--results_dir=/home/ann", "--debug=True"])
    program.main([f"--load_model_url={run}", f"--output={output}", "--card"])
    card = (output / CARD).read_text("utf-8")
    low, high = interval(read_test(run / f"{stem}.json")[0].returns)
    assert f"| {report.mean:.2f} | {low:.2f} to {high:.2f} |" in card
    assert "| 4 |" in card
    (result,) = header(card)["model-index"][0]["results"]
    assert result["metrics"][0]["value"].startswith(f"{report.mean:.2f} +/- ")
    assert result["metrics"][0]["verified"] is False
    assert "Atari rules do not apply" in card
    assert "python main.py --lr=0.5 --debug=True" in card
    assert "/home/ann" not in card
    assert (output / FILM).read_bytes() == b"film"
    assert "pushed" not in capsys.readouterr().out

    tested = json.loads((run / f"{stem}.json").read_text())
    for name, games, asked, mean in (
        ("seed7", 9, 9, 123.0),
        ("seed8", 99, 100, 456.0),
        ("seed9", 1, 1, 789.0),
    ):
        other = {**tested, "episodes": games, "asked": asked, "mean": mean}
        (run / f"{stem}_{name}.json").write_text(json.dumps(other))
    program.main([f"--load_model_url={run}", f"--output={output}", "--card"])
    assert "| 123.00 |" in (output / CARD).read_text("utf-8"), "the most games of a whole test"
    for path in run.glob(f"{stem}_seed*"):
        path.unlink()

    data = json.loads((run / f"{stem}.json").read_text())
    (run / f"{stem}.json").write_text(json.dumps({**data, "agent_steps": 1}))
    program.main([f"--load_model_url={run}", f"--output={output}", "--card"])
    assert "It was not tested" in (output / CARD).read_text("utf-8")
    assert not (output / FILM).exists()


@pytest.mark.parametrize("name", [CARD, FILM])
def test_a_page_or_a_film_of_somebody_else_is_not_replaced(run, tmp_path, name):  # noqa: F811
    (tmp_path / name).write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        program.main([f"--load_model_url={run}", f"--output={tmp_path}", "--card"])
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["results", name])
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("given", ["ann/x", "ann/x@v2"])
def test_a_push_sends_the_model_the_card_and_nothing_else(
    run,  # noqa: F811
    given,
    tmp_path,
    monkeypatch,
    capsys,
):
    sent = []

    def push(folder, names, repository, *, private):
        assert all((folder / name).is_file() for name in names)
        sent.append((names, repository.name, private))
        return "https://hub/ann/x"

    monkeypatch.setattr(program, "push", push)
    output = tmp_path / "models" / "counting"
    program.main([f"--load_model_url={run}", f"--output={output}", f"--push={given}", "--private"])
    names = ["model.safetensors", "flags.json", "model.json", CARD]
    assert sent == [(names, "ann/x", True)]
    assert f"--test=hf:{given}\n" in (output / CARD).read_text("utf-8")
    assert "pushed: https://hub/ann/x" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        program.main([f"--load_model_url={run}", f"--output={output}", "--push=../x"])


def test_the_interval_of_many_games_takes_little_memory():
    returns = np.random.default_rng(1).normal(size=1000).tolist()
    tracemalloc.start()
    low, high = interval(returns)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10e6
    assert high - low == pytest.approx(2 * 1.96 * np.std(returns) / 1000**0.5, rel=0.05)
