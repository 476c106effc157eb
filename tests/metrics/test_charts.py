from pathlib import Path

import numpy as np
import pytest

from ritornello.metrics.charts import OVERVIEW, draw_run, run_figures
from ritornello.metrics.record import METRICS, Record
from ritornello.metrics.run_files import read_evaluations
from ritornello.metrics.sinks import JsonLinesSink
from tests.metrics.builders import write_run


def test_ctrl_c_while_charts_are_drawn_leaves_those_of_before(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", range(1, 121))
    whole = draw_run(folder)[0].read_bytes()

    def interrupted(figure, file, **options):
        Path(file).write_bytes(b"\x89PNG")
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draw_run(folder)
    assert {path.name for path in (folder / "charts").iterdir()} == {"returns.png", "overview.png"}
    assert (folder / "charts" / "returns.png").read_bytes() == whole


def test_a_run_is_drawn_from_its_files(tmp_path):
    folder = write_run(tmp_path / "run", range(1, 121))
    (folder / "flags.json").write_text('{"env": "PongNoFrameskip-v4", "avg_buff_size": 3}')
    axes = dict(run_figures(folder))["returns"].axes[0]
    assert axes.lines[0].get_label() == "mean of 3"
    assert axes.lines[0].get_ydata()[-1] == 119.0  # of 118, 119 and 120
    drawn = draw_run(folder)
    assert [path.name for path in drawn] == ["returns.png", "overview.png"]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "ended_at_once").mkdir()
    assert draw_run(tmp_path / "ended_at_once") == []
    assert {metric for chart in OVERVIEW for metric in chart.metrics} <= METRICS.keys()


def make_run_of_two_games(folder, records):
    folder.mkdir()
    (folder / "flags.json").write_text('{"env": "PongNoFrameskip-v4,ALE/Carnival-v5"}', "utf-8")
    sink = JsonLinesSink(folder / "metrics.jsonl")
    for n in range(1, records + 1):
        values = {"popart/mu_0": 0.1 * n, "popart/sigma_0": 1.0, "popart/mu_1": 90.0 * n}
        values |= {"popart/sigma_1": 500.0, "episode/return_mean_0": n - 21.0, "loss/total": 1.0}
        if n > records // 2:  # the other game takes longer
            values |= {"episode/return_mean_1": 20.0 * n, "episode/return_best_1": 3000.0}
        sink.write(Record(agent_steps=10 * n, values=values))
    sink.close()
    return folder


def test_several_games_get_a_panel_each_for_returns_and_for_popart(tmp_path):
    figures = dict(run_figures(make_run_of_two_games(tmp_path / "run", 30)))
    assert list(figures) == ["returns", "overview", "popart"]
    for name in ("returns", "popart"):
        assert [a.get_title(loc="left") for a in figures[name].axes] == ["Pong", "Carnival"]
    # The band of PopArt is one sigma around mu of its game.
    axes = figures["popart"].axes[1]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 90.0 * np.arange(1, 31))
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    at_the_end = edges[edges[:, 0] == 300.0, 1]
    assert (at_the_end.min(), at_the_end.max()) == (2700.0 - 500.0, 2700.0 + 500.0)


def test_evaluations_are_drawn_for_each_game_and_damaged_rows_are_passed_over(tmp_path):
    rows = [
        "time,agent_steps,updates,game,policy,games,mean,standard_error,min,max,mean_length,film",
        "1,100,1,A-v0,sampled,5,1.5,0.5,1,2,9,",
        '1,100,1,"m:B,v0",sampled,1,2.5,,1,2,9,',
        "1,100,1,A-v0,greedy,5,nan,0.5,1,2,9,",
        "1,many,1,A-v0,greedy,5,1,0.5,1,2,9,",
        "1,200",
        "1,200,2,A-v0,greedy,5,3.5,0.5,1,2,9,films/a.mp4",
        "1,300,2,A-v0,gr",
    ]
    (tmp_path / "evaluations.csv").write_text("\n".join(rows))
    found = read_evaluations(tmp_path)
    assert [(row.game, row.policy, row.mean, row.standard_error) for row in found] == [
        ("A-v0", "sampled", 1.5, 0.5),
        ("m:B,v0", "sampled", 2.5, 0.0),
        ("A-v0", "greedy", 3.5, 0.5),
    ]
    figure = dict(run_figures(tmp_path))["evaluations"]
    assert len(figure.axes) == 2
    lines = [container.lines[0] for container in figure.axes[0].containers]
    assert [line.get_xdata().tolist() for line in lines] == [[100.0], [200.0]]
