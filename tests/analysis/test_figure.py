import numpy as np
import pytest

from ritornello.analysis.figure import learning_curves
from ritornello.metrics.charts import figure_text
from ritornello.metrics.curve import Curve


def curve(end, slope=0.01):
    steps = np.linspace(10.0, end, 20)
    return Curve(steps, steps / 100, slope * steps, None)


def lines_by_steps(groups):
    """Return (first x, last x, width) of each line of the panel over agent steps."""
    axes = learning_curves({"Pong": groups}).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
    return [(line.get_xdata()[0], line.get_xdata()[-1], line.get_linewidth()) for line in lines]


def test_every_run_is_drawn_to_its_own_end_however_early_another_one_ended():
    drawn = lines_by_steps({"a": [curve(400), curve(1200)]})
    thick = [(start, end) for start, end, width in drawn if width > 1]
    thin = [(start, end) for start, end, width in drawn if width < 1]
    assert thick == [(10, 400)], "over all seeds, where all are"
    assert thin == [(10, 400), (10, 1200)], "each seed, to its end"
    figure = learning_curves({"Pong": {"a": [curve(400), curve(1200)]}})
    assert figure.axes[0].get_xlim()[1] > 1200
    assert figure.axes[1].get_xlim()[1] > 1200 / 100 / 60


@pytest.mark.parametrize("label", ["_hidden", "$a^{", "a\x1b[31mb", "x" * 300])
def test_a_label_is_shown_as_it_is(label):
    figure = learning_curves({"Pong": {label: [curve(100), curve(200)]}})
    (text,) = figure.legends[0].get_texts()
    assert text.get_text() == f"{figure_text(label)} (2 seeds)"
    assert len(text.get_text()) < 80
    figure.canvas.draw()  # a formula would fail here
