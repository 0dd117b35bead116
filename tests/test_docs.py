"""The README's Python is run as it stands, only shorter."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def shorter(found):
    return found[0].replace("100", "10")


@pytest.mark.parametrize("file", ["README.md", "docs/your_environment.md"])
def test_snippets_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        short = re.sub(r"seeds=\d+", "seeds=2", block)
        short = re.sub(r"iterations=\d+", "iterations=2, episodes=2", short)
        short = re.sub(r"horizon=100|range\(100\)", shorter, short)
        exec(compile(short, file, "exec"), names)


def test_commands_in_the_readme_exist():
    from ecop.cli import COMMANDS

    text = (ROOT / "README.md").read_text()
    printed = set(re.findall(r"^ *ecop (\w+)", text, re.MULTILINE))
    assert "train" in printed
    assert printed <= set(COMMANDS)
