"""A worker pool, a metric, a sink and an analysis of one's own."""

from contextlib import closing
from functools import partial

import pytest

from ritornello.agent.run.reporting import Reporting
from ritornello.agent.run.run import Run, make_experience
from ritornello.agent.run.tally import Tally
from ritornello.agent.run.trainer import Trainer
from ritornello.analysis.__main__ import main as analyse
from ritornello.core.errors import ConfigError
from ritornello.flags.parsing import parse
from ritornello.flags.parts import SINKS
from ritornello.metrics.output_thread import BackgroundSink, OutputThread
from ritornello.metrics.record import UndeclaredMetricError, check_declared, declare
from ritornello.metrics.run_files import read_records
from ritornello.metrics.sinks import JsonLinesSink, Sink
from tests.agent.runs import make_blueprint
from tests.deadlines import HANGS_S
from tests.extensions import own_outputs
from tests.extensions.own_pool import TurnsPool
from tests.extensions.runs import new_folder

SHORT = f"{own_outputs.__name__}:short"


def test_a_run_takes_its_unrolls_from_a_pool_of_ones_own(tmp_path):
    folder, pools = new_folder(tmp_path), []

    def pool(*arguments):
        pools.append(TurnsPool(*arguments))
        return pools[0]

    own = partial(make_experience, make_pool=pool)
    blueprint = make_blueprint(environment_max_steps=400)
    with closing(JsonLinesSink(folder.metrics_file)) as sink:
        summary = Trainer(Run(blueprint, folder, experience=own), sink).run()
    assert summary.updates > 0
    assert pools[0].given * 15 >= 400 > 0  # 3 environments, 5 steps each
    assert pools[0].bodies == [], "stopped"
    assert read_records(folder.path)[-1].values["workers/alive"] == 1


def test_a_metric_of_ones_own_is_declared_beside_what_records_it():
    record = Tally(1, 5).record({"mine/ratio_mean": 1.5})
    assert record.values["mine/ratio_mean"] == 1.5
    with pytest.raises(UndeclaredMetricError, match="declared already"):
        declare("mine/ratio_mean", "", "Another one.")
    assert check_declared("mine/ratio_mean").healthy == "near 1"


def test_a_sink_of_ones_own_gets_what_is_reported(tmp_path):
    folder = new_folder(tmp_path)
    asked = {"sink": SHORT, "basic_verbose": False, "tensorboard": False}
    blueprint = make_blueprint(reproducible=True, environment_max_steps=200, **asked)
    with closing(Reporting(folder, blueprint)) as reporting:
        Trainer(Run(blueprint, folder), reporting.open_sinks(), reporting.flush).run()
        reporting.close_sinks()
    lines = (folder.path / "short.txt").read_text("utf-8").splitlines()
    assert sum(line.startswith("game of ") for line in lines) > 10
    records = [line.split() for line in lines if not line.startswith("game")]
    assert [int(updates) for updates, _ in records] == list(range(1, len(records) + 1))


@SINKS.register("nothing")
def nothing(folder):
    return None


@SINKS.register("breaks")
def breaks(folder):
    return {}["host"]


@SINKS.register("fails")
class Fails(Sink):
    def __init__(self, folder):
        pass

    def write(self, record):
        return record.values["no/such"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", "cannot be made: AttributeError: 'NoneType'.*'write'"),
        ("breaks", "cannot be made: KeyError: 'host' .*test_pool_and_outputs.py, line"),
    ],
)
def test_what_is_no_sink_is_told_before_anything_starts(tmp_path, name, told):
    blueprint = make_blueprint(sink=f"{__name__}:{name}")
    reporting = Reporting(new_folder(tmp_path), blueprint)
    with closing(reporting), pytest.raises(ConfigError, match=told):
        reporting.open_sinks()


def test_where_a_sink_fails_is_in_the_log(caplog):
    caplog.set_level("DEBUG")
    thread = OutputThread("the sink mine", 10)
    sink = BackgroundSink(Fails(None), thread, gives_up=True)
    sink.write(Tally(1, 5).record({}))
    assert thread.flush(HANGS_S)
    thread.close(HANGS_S)
    assert "the sink mine cannot be written to (KeyError: 'no/such')" in caplog.text
    assert "test_pool_and_outputs.py" in caplog.text


def test_a_sink_is_of_one_command_and_its_module_is_typed():
    stored = {"sink": "stranger:sends", "env": "CartPole-v1"}
    assert parse(["--op_mode=test", "--load_model_url=x"], lambda *_: stored).sink == ""
    with pytest.raises(ConfigError, match="--sink=.*wandb.*or <module>:<name> for a sink"):
        parse(["--sink=nowhere"])
    with pytest.raises(ConfigError, match="sink is 'stranger:sends', from"):
        SINKS.find("stranger:sends")


def test_an_analysis_of_ones_own_is_a_module_with_main(tmp_path, capsys):
    folder = new_folder(tmp_path)
    folder.metrics_file.write_text("")
    assert analyse([own_outputs.__name__, str(folder.path)]) == 0
    assert capsys.readouterr().out == "0 records\n"
    assert analyse(["tests.extensions.own_network", "x"]) == 2
    assert "tests.extensions.own_network has no function main" in capsys.readouterr().err
    assert analyse(["nowhere.at_all"]) == 2
    assert "command is 'nowhere.at_all', but module" in capsys.readouterr().err
