"""The examples on other people's packages, and the notebooks, run as they are."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
EXAMPLES = {  # script -> what it imports, what it writes
    "sepsis": ("icu_sepsis", "sepsis.png"),
    "water_reservoir": ("mo_gymnasium", "water_reservoir.png"),
    "highway": ("highway_env", "highway.gif"),
    "ev_charging": ("ev2gym", "ev_charging.png"),
    "sweep": ("optuna", None),
}
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_shows_the_script(name):
    folder = ROOT / "docs" / ("" if name == "sweep" else "examples")
    page = folder / ("sweeps.md" if name == "sweep" else f"{name}.md")
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    assert code == (ROOT / "examples" / f"{name}.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name, tmp_path):
    package, picture = EXAMPLES[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}: make test-examples")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "reward" in done.stdout
    if picture is not None:
        assert (tmp_path / picture).stat().st_size > 1000


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_was_executed(file):
    cells = [c for c in nbformat.read(file, 4).cells if c.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(out.output_type != "error" for cell in cells for out in cell.outputs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's messages
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file, tmp_path):
    book = nbformat.read(file, 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=600, resources=resources).execute()
    assert any(cell.get("outputs") for cell in book.cells)
