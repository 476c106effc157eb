"""What benchmarks print: JSON that every reader takes, of flags that the program takes."""

import ast
import contextlib
import json
import signal
import sys

import pytest

from benchmarks import bench_end_to_end, bench_evaluation
from benchmarks.bench_evaluation import Window
from tests.house import ROOT

BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.name)
def test_no_benchmark_writes_what_is_no_json(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.dumps", "json.dump"):
            said = {each.arg: ast.unparse(each.value) for each in node.keywords}
            assert said.get("allow_nan") == "False", f"{path.name}:{node.lineno}"


def test_one_pair_of_windows_has_no_error(monkeypatch, capsys):
    class Process:
        def send_signal(self, number):
            assert number == signal.SIGCONT

    @contextlib.contextmanager
    def training(flags, results):
        (bench_evaluation.Path(results) / "run").mkdir()
        yield None

    monkeypatch.setattr(bench_evaluation, "WARM_UP_S", 0)
    monkeypatch.setattr(bench_evaluation, "training", training)
    monkeypatch.setattr(bench_evaluation, "evaluator_of", lambda run: Process())
    windows = Window(99.0, 0.1), Window(100.0, 0.0)
    monkeypatch.setattr(bench_evaluation, "compare", lambda *_: windows)
    monkeypatch.setattr(sys, "argv", ["bench_evaluation.py", "--pairs=1"])
    bench_evaluation.main()
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["ratio"], summary["standard_error"]) == (0.99, None)


@pytest.mark.parametrize("wrong", ["--model=resnt", "--no_such_flag=1"])
def test_a_wrong_flag_is_refused_before_anything_is_measured(monkeypatch, wrong):
    def run_config(config, options):
        raise AssertionError("measured")

    monkeypatch.setattr(bench_end_to_end, "run_config", run_config)
    monkeypatch.setattr(sys, "argv", ["bench_end_to_end.py", "--", wrong])
    with pytest.raises(SystemExit, match=f"error: .*{wrong.split('=')[0]}"):
        bench_end_to_end.main()
    said = bench_end_to_end.flag_values(
        "queue", bench_end_to_end.argparse.Namespace(env="CartPole-v1", flags=["--model=mlp"])
    )
    assert bench_end_to_end.arguments_of(said)[:3] == [
        "--env=CartPole-v1", "--seed=1", "--model=mlp",
    ]  # fmt: skip
