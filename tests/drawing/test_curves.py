"""Pictures that matplotlib draws."""

import subprocess
import sys

DRAW = """
import sys
import matplotlib
matplotlib.use("svg")
import ecop.exact.plots, ecop.report.figures
import ecop.api
from ecop.drawing.curves import Series, draw_curves
lines = [{"seed": 0, "iteration": i, "reward": i, "costs": [i], "limits": [1.0]}
         for i in (1, 2)]
draw_curves([Series("", lines, ("heat",))], "title").savefig(sys.argv[1])
assert matplotlib.get_backend() == "svg"
assert "matplotlib.pyplot" not in sys.modules
"""


def test_the_users_backend_is_left_alone(tmp_path):
    file = tmp_path / "curves.png"
    command = [sys.executable, "-c", DRAW, str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG")
