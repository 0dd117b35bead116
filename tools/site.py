"""The site: README and docs as they are, what they link to, and the API reference.

A hook of mkdocs (mkdocs.yml), so `make docs` is all there is to run. A link of a page
is read from where the page is in the repository, and led to where its target is in the
site.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {  # of the repository's first folder
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "LICENSE": "LICENSE",
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
ARGUMENT = re.compile(r"^(\w+): (.*)$")
REFERENCE = {  # title -> module: names
    "Train": {"ecop": "train resume load Run TrainConfig frontier make"},
    "Environments": {
        "ecop": "from_gymnasium check_cmdp make_gymnasium make_gymnasium_vec "
        "to_safety_gymnasium Spec",
        "ecop.interop.costs": "NamedCosts VectorReward CostFunction",
    },
    "What a run returns": {
        "ecop.evaluate": "Evaluation",
        "ecop.certify": "Certificate",
        "ecop.player": "Player",
    },
    "Errors": {"ecop": "UserError Diverged Faulted Stopped"},
    "Exact ground truth": {"ecop.exact": "tabular_cmdp TabularCMDP solve frontier"},
    "Algorithms": {
        "ecop": "ECOP PPO PPOLagrangian CPPOPID FOCOPS P3O IPO APPO PDO "
        "TRPOLagrangian CPO PCPO"
    },
}


def place(file: Path) -> str:
    """Where a file of the repository is in the site."""
    if file.is_relative_to(ROOT / "docs"):
        return str(file.relative_to(ROOT / "docs"))
    path = str(file.relative_to(ROOT))
    return PAGES.get(path, path)


def source(path: str) -> Path:
    """Where a page of the site is in the repository."""
    names = {there: here for here, there in PAGES.items()}
    return ROOT / names[path] if path in names else ROOT / "docs" / path


def led(page: str, text: str) -> tuple[str, set[Path]]:
    """A page's text with its links led to the site's, and the files they lead to."""
    found: set[Path] = set()

    def lead(link: re.Match[str]) -> str:
        before, target, anchor, after = link.groups(default="")
        file = (source(page).parent / target).resolve()
        if re.match(r"\w+:", target) or not file.is_file():
            return link[0]
        found.add(file)
        there = os.path.relpath(place(file), os.path.dirname(page) or ".")
        return before + there + anchor + after

    parts = FENCE.split(text)
    return "".join(
        x if x.startswith("```") else LINK.sub(lead, x) for x in parts
    ), found


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the first folder, the reference, and files that pages name."""
    for here, there in PAGES.items():
        files.append(File.generated(config, there, abs_src_path=str(ROOT / here)))
    files.append(File.generated(config, "api.md", content=reference()))
    for page in list(files.documentation_pages()):
        if page.src_uri == "api.md":
            continue
        for file in led(page.src_uri, source(page.src_uri).read_text())[1]:
            if files.get_file_from_path(place(file)) is None:
                files.append(
                    File.generated(config, place(file), abs_src_path=str(file))
                )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead the links of a page; the first one has no list of pages beside it."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri == "api.md":
        return markdown
    return led(page.file.src_uri, markdown)[0]


def reference() -> str:
    """The API reference, from signatures and docstrings."""
    parts = ["# API reference\n\nFrom the docstrings of the library.\n"]
    for title, things in REFERENCE.items():
        parts.append(f"## {title}\n")
        for module, names in things.items():
            home = importlib.import_module(module)
            parts += [entry(f"{module}.{x}", getattr(home, x)) for x in names.split()]
    return "\n".join(parts)


def entry(name: str, thing: Any) -> str:
    """One name: signature, docstring, public methods and properties."""
    parts = [f"### {name.removeprefix('ecop.')} {{ #{name} }}\n", call(name, thing)]
    parts.append(prose(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for member, value in vars(thing).items():
            got = value.fget if isinstance(value, property) else value
            if member.startswith("_") or not inspect.isfunction(got):
                continue
            what = f".{member}" if got is not value else f".{call_text(member, got)}"
            about = prose(inspect.getdoc(got) or "").replace("\n", "\n    ")
            parts.append(
                f'??? note "{what.replace(chr(34), chr(39))}"\n\n    {about}\n'
            )
    return "\n".join(parts)


def call(name: str, thing: Any) -> str:
    """A block with the signature, one argument a line where it is long."""
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return ""
    if inspect.isclass(thing) and not dataclasses.is_dataclass(thing):
        return ""
    return f"```python\n{call_text(name, thing)}\n```\n"


def call_text(name: str, thing: Any) -> str:
    """A name with its arguments, without the types of this library's innards."""
    words = []
    parameters = list(inspect.signature(thing).parameters.values())
    for k, p in enumerate(parameters):
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and all(
            q.kind is not p.KEYWORD_ONLY for q in parameters[:k]
        ):
            words.append("*")
        star = {p.VAR_KEYWORD: "**", p.VAR_POSITIONAL: "*"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"={shown(p.default)}"
        words.append(f"{star}{p.name}{default}")
    line = f"{name}({', '.join(words)})"
    if len(line) <= 76 or not name.startswith("ecop."):
        return line
    return f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def shown(value: Any) -> str:
    """A default as one would type it."""
    plain = isinstance(value, int | float | str | bool | tuple | list | None)
    return repr(value) if plain else "..."


def prose(text: str) -> str:
    """A docstring as Markdown: lines `name: what` become a list."""
    lines: list[str] = []
    inside = False
    for line in text.split("\n"):
        found = ARGUMENT.match(line.strip())
        if found and found[1] != "Attributes" and not line.startswith("|"):
            lines += [] if inside else [""]
            lines.append(f"- `{found[1]}`: {found[2]}")
            inside = True
        elif inside and line.startswith("    "):
            lines.append("    " + line.strip())
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines) + "\n"
