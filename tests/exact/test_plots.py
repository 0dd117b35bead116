"""The frontier as a picture."""

import numpy as np
from matplotlib.image import imread

from ecop.exact import PROBLEMS, frontier
from ecop.exact.plots import draw_frontier


def test_frontier_is_drawn_with_extra_points(tmp_path):
    line = frontier(PROBLEMS["FactoredRing"](), [0.0, 3.0, 6.0])
    plain, marked = tmp_path / "plain.png", tmp_path / "marked.png"
    draw_frontier(line, plain, title="FactoredRing", cost_name="moves")
    points = (np.array([1.0, 3.0]), np.array([0.5, 1.8]), "e-COP")
    draw_frontier(line, marked, title="FactoredRing", points=[points])
    without, with_points = imread(plain), imread(marked)
    assert without.shape == with_points.shape
    assert without.std() > 0.05
    # Only the points and their legend entry are coloured in the upper part.
    upper = slice(0, without.shape[0] // 2)
    assert (without[upper, :, 0] == without[upper, :, 2]).all()
    assert (with_points[upper, :, 0] != with_points[upper, :, 2]).any()


def test_infeasible_limits_are_shaded(tmp_path):
    line = frontier(PROBLEMS["Box"](), [0.0, 0.02, 0.1])
    draw_frontier(line, tmp_path / "box.png")
    picture = imread(tmp_path / "box.png")
    grey = np.isclose(picture[..., :3], 1 - 0.2 * (1 - 128 / 255), atol=0.01)
    # A fifth of each of the two plots, which fill most of the picture.
    assert 0.1 < grey.all(axis=-1).mean() < 0.2
