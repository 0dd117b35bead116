"""The report as one HTML file: data as JSON inside it, drawn by a script of ours.

Nothing is loaded from elsewhere: style, script, data and clips are in the file. All
text from results is escaped, in the markup as in the JSON.
"""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageSequence

import ecop
from ecop.bench.cells import seed_of
from ecop.bench.results import Results
from ecop.bench.suites import BATCH, EVERYONE, REFERENCE
from ecop.report import paper
from ecop.report.tables import SECTIONS, Arm, Entry, Table, versions

POINTS = 150  # of a curve that are drawn
CLIP_WIDTH = 260  # pixels
CLIPS_BYTES = 6_000_000  # of all clips together
HERE = Path(__file__).parent

escape = html.escape


def page(
    found: Results, shown: list[Arm], tables: Sequence[Table], notes: Sequence[str]
) -> str:
    """The whole file."""
    sections = [*map(table_section, tables)]
    sections[1:1] = [EXPLORER]
    sections += [clips_section(found, shown), setup_section(found, shown)]
    body = "\n".join([header(found, shown, notes), *sections])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ecop benchmark</title>
<link rel="icon" href="data:,">
<style>
{(HERE / "page.css").read_text()}
</style>
</head>
<body>
<a class="skip" href="#content">To the results</a>
<main id="content">
{body}
</main>
<script type="application/json" id="data">{embed(data(shown))}</script>
<script>
{(HERE / "page.js").read_text()}
</script>
</body>
</html>
"""


def embed(value: Any) -> str:
    """JSON that no text in it can end: every < is written as an escape."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "").replace("\u2029", "")


# The data of the charts


def data(shown: Sequence[Arm]) -> dict[str, Any]:
    """What the script draws."""
    drawn = [arm for arm in shown if arm.documents]
    return {
        "sections": SECTIONS,
        "order": [paper.NAMES[name] for name in EVERYONE],
        "reference": paper.NAMES[REFERENCE],
        "arms": [arm_data(arm) for arm in drawn],
    }


def arm_data(arm: Arm) -> dict[str, Any]:
    """One arm: its curves and evaluations."""
    return {
        "section": arm.section,
        "task": arm.task,
        "name": arm.name,
        "label": arm.label,
        "costs": arm.documents[0]["costs"],
        "limits": [None if math.isinf(limit) else limit for limit in arm.limits],
        "runs": [
            {
                "seed": seed_of(document["cell"]),
                **curves(document),
                "mean": [arm.reward[i], *arm.costs[i]],
                "strong": arm.strong[i].tolist(),
                "above": arm.above[i].tolist(),
            }
            for i, document in enumerate(arm.documents)
        ],
    }


def curves(document: dict[str, Any]) -> dict[str, Any]:
    """Episodes [K], and reward with each cost [1 + C, K], means over blocks."""
    curve = document["curve"]
    count = len(curve["iteration"])
    blocks = np.array_split(np.arange(count), min(POINTS, count))
    rows = np.column_stack([curve["reward"], np.reshape(curve["costs"], (count, -1))])
    means = np.stack([rows[block].mean(axis=0) for block in blocks], axis=1)
    per = document["cell"]["train"]["episodes"]
    return {
        "x": [per * curve["iteration"][block[-1]] for block in blocks],
        "y": [[float(f"{v:.5g}") for v in line] for line in means],
    }


# Sections


def header(found: Results, shown: Sequence[Arm], notes: Sequence[str]) -> str:
    """Title, what there is, and what to know first."""
    done = sum(len(arm.documents) for arm in shown)
    planned = sum(len(arm.planned) for arm in shown)
    tasks = dict.fromkeys(arm.task for arm in shown if arm.documents)
    algorithms = dict.fromkeys(arm.name for arm in shown if arm.documents)
    facts = [
        (f"{len(found.cells)}", "finished runs"),
        (f"{len(tasks)}", "tasks"),
        (f"{len(algorithms)}", "algorithms"),
        (f"{len(found.failed)}", "failed runs"),
        (f"{planned - done}", "places still empty"),
    ]
    tiles = "".join(
        f"<li><strong>{escape(number)}</strong> {escape(word)}</li>"
        for number, word in facts
    )
    return f"""<header>
<div class="bar"><h1>ecop benchmark</h1>
<button type="button" id="theme" title="Switch between light and dark">Dark</button>
</div>
<p class="lead">Constrained reinforcement learning with a finite horizon: our results
beside those printed in the e-COP paper (NeurIPS 2024). The paper's environments are not
public, so its returns are no target; the ordering and the tracking of limits are.</p>
<ul class="tiles">{tiles}</ul>
{notes_block(found, notes)}
<noscript><p class="note">The charts need JavaScript; the tables do not.</p></noscript>
</header>"""


def notes_block(found: Results, notes: Sequence[str]) -> str:
    """What is missing, failed, damaged or mixed."""
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    traces = "".join(
        f"<details><summary>{escape(f['error'].split(chr(10))[0])}</summary>"
        f"<pre>{escape(str(f.get('traceback', '')))}</pre></details>"
        for f in found.failed.values()
    )
    return (
        f'<section class="notes" aria-labelledby="notes"><h2 id="notes">What to know '
        f"first</h2><ul>{items}</ul>{traces}</section>"
    )


def table_section(table: Table) -> str:
    """A table; the long one is folded."""
    head = "".join(
        f'<th scope="col"{LEFT if i < table.words else ""}>{escape(word)}</th>'
        for i, word in enumerate(table.head)
    )
    rows = "".join(table_row(row, table.words) for row in table.rows)
    legend = ""
    if any(e.mark or e.paper for row in table.rows for e in row):
        legend = (
            '<p class="legend"><span class="key best">best</span> '
            '<span class="key near">near best</span> '
            '<span class="key above">above the limit</span> '
            '<span class="key paper">small: the paper</span></p>'
        )
    grid = (
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}"><table class="{escape(table.name)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    if table.name == "statistics":
        grid = f"<details><summary>All {len(table.rows)} rows</summary>{grid}</details>"
    return (
        f'<section id="{escape(table.name)}"><h2>{escape(table.title)}</h2>'
        f"{legend}{grid}{note}</section>"
    )


def table_row(row: Sequence[Entry], words: int) -> str:
    """A row; a new task starts a block."""
    start = ' class="start"' if row[0].text else ""
    first = f'<th scope="row">{escape(row[0].text)}</th>'
    texts = [f"<td{LEFT}>{escape(entry.text)}</td>" for entry in row[1:words]]
    return f"<tr{start}>{first}{''.join([*texts, *map(table_cell, row[words:])])}</tr>"


ARROW = {"above": ' <span aria-hidden="true">↑</span>'}


LEFT = ' class="left"'
MARKS = {"best": "best", "near": "near best", "above": "above the limit"}


def table_cell(entry: Entry) -> str:
    """An entry with the paper's below it; marks are said, not only coloured."""
    theirs = f'<small title="the paper">{escape(entry.paper)}</small>'
    word = MARKS.get(entry.mark, "")
    said = f'<span class="unseen"> ({word})</span>' if word else ""
    none = '<span class="none">not run</span>' if entry.paper else ""
    text = escape(entry.text) or none
    mark = f' class="{entry.mark}"' if entry.mark else ""
    text += ARROW.get(entry.mark, "") + said
    return f"<td{mark}>{text}{theirs if entry.paper else ''}</td>"


EXPLORER = """<section id="explorer"><h2>Learning curves, violations, reward against \
cost</h2>
<form class="controls" aria-label="What the charts show">
<label>experiment <select id="section"></select></label>
<label>task <select id="task"></select></label>
<label>curves <select id="mode"><option value="mean">mean ± 1 std over runs</option>
<option value="runs">every run</option></select></label>
<fieldset><legend>algorithms</legend><div id="arms"></div>
<span class="both"><button type="button" id="all">all</button>
<button type="button" id="none">none</button></span></fieldset>
<fieldset><legend>seeds</legend><div id="seeds"></div></fieldset>
</form>
<h3>Learning curves</h3>
<p class="note">Episodic reward and cost of the training batches by episodes seen; the
dashed line is the limit. Move over a chart, or focus it and use the arrow keys, to read
values.</p>
<div class="charts" id="curves"></div>
<h3>Reward against cost</h3>
<p class="note">Fresh episodes of the last policies: a small mark per run, a large one
for the mean. The shaded side is within the limit. Here and below PPO, which sees no
cost, is drawn only if it is chosen alone.</p>
<div class="charts" id="scatter"></div>
<h3>Violations during training</h3>
<p class="note">Strong violation is the mean positive part of cost minus limit over all
iterations: slack does not cancel excess. A small mark per run, a large one for the
mean.</p>
<div class="charts" id="violations"></div>
</section>"""


def clips_section(found: Results, shown: Sequence[Arm]) -> str:
    """One clip per task and algorithm, as long as there is room."""
    left, skipped = CLIPS_BYTES, 0
    figures: dict[str, list[str]] = {}
    for arm in shown:
        if arm.section not in ("table1", "navigation"):
            continue
        for document in arm.documents:
            file = found.folder / "clips" / f"{document['id']}.gif"
            clip = shrunk(file) if file.exists() else None
            if clip is None:
                continue
            if len(clip) > left:
                skipped += 1
                break
            left -= len(clip)
            figures.setdefault(arm.task, []).append(figure(arm, document, clip))
            break
    if not figures:
        return ""
    parts = "".join(
        f"<details{' open' if i == 0 else ''}><summary>{escape(task)}</summary>"
        f'<div class="clips">{"".join(items)}</div></details>'
        for i, (task, items) in enumerate(figures.items())
    )
    note = f"<p>{skipped} clips were left out to keep the file small.</p>"
    return (
        '<section id="clips"><h2>Clips of the policies</h2><p class="note">One fresh '
        "episode of the first run of each algorithm; a red trace is a step with a cost."
        f"</p>{parts}{note if skipped else ''}</section>"
    )


def figure(arm: Arm, document: dict[str, Any], clip: bytes) -> str:
    """A clip with its caption."""
    coded = base64.b64encode(clip).decode()
    caption = f"{arm.label}, seed {seed_of(document['cell'])}"
    words = f"An episode of {arm.task} by {caption}"
    return (
        f'<figure><img alt="{escape(words)}" width="{CLIP_WIDTH}" '
        f'src="data:image/gif;base64,{coded}"><figcaption>{escape(caption)}'
        "</figcaption></figure>"
    )


def shrunk(file: Path) -> bytes | None:
    """A small copy of a GIF; None if it cannot be read."""
    try:
        with Image.open(file) as clip:
            step = 2 if getattr(clip, "n_frames", 1) > 60 else 1
            frames = [
                frame.convert("RGB") for frame in list(ImageSequence.Iterator(clip))
            ][::step]
            size = CLIP_WIDTH, round(CLIP_WIDTH * clip.height / clip.width)
    except (OSError, ValueError):
        return None
    small = [f.resize(size, Image.Resampling.LANCZOS).quantize(32) for f in frames]
    buffer = io.BytesIO()
    small[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=small[1:],
        duration=50 * step,
        loop=0,
    )
    return buffer.getvalue()


def setup_section(found: Results, shown: Sequence[Arm]) -> str:
    """Versions, configs, and the commands that make every cell again."""
    makers = "".join(
        f"<li>{count} runs: {escape(maker)}</li>"
        for maker, count in versions(found).items()
    )
    commands = "".join(
        f"<li><code>{escape(plan.get('command', ''))} --out RESULTS</code></li>"
        for plan in found.plans
    )
    groups = "".join(arm_setup(arm) for arm in shown if arm.documents)
    return f"""<section id="setup"><h2>Config, versions, and how to reproduce</h2>
<p>All algorithms get the same number of episodes: one iteration of the budget is
{BATCH} episodes, however many an algorithm takes at a time. This page was made by ecop
{escape(ecop.__version__)}. The runs were made by</p><ul>{makers}</ul>
<p>with these commands, which skip what is finished:</p><ul>{commands}</ul>
<p>One run alone, compared number by number with its file:
<code>ecop bench repeat RESULTS/cells/ID.json</code>. The same software on the same kind
of processor gives the same bits.</p>
<details><summary>Exact config and cells of every group</summary>{groups}</details>
</section>"""


def arm_setup(arm: Arm) -> str:
    """The config of an arm and the names of its cells."""
    cell = arm.documents[0]["cell"]
    train = {k: v for k, v in cell["train"].items() if k != "first_seed"}
    config = json.dumps(cell | {"train": train}, indent=1)
    lines = "".join(
        f"<li>seed {seed_of(d['cell'])}: <code>ecop bench repeat "
        f"RESULTS/cells/{escape(d['id'])}.json</code> ({d['seconds']:.0f} s)</li>"
        for d in arm.documents
    )
    title = f"{arm.section}: {arm.task}, {arm.label}"
    return (
        f"<details><summary>{escape(title)}</summary><ul>{lines}</ul>"
        f"<pre>{escape(config)}</pre></details>"
    )
