"""The report as one HTML file: data as JSON inside it, drawn by a script of ours.

Nothing is loaded from elsewhere: style, script, data and clips are in the file. The
template escapes all text from results, in the markup as in the JSON.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image, ImageSequence

import ecop
from ecop.bench.cells import seed_of
from ecop.bench.results import Results
from ecop.bench.suites import EVERYONE, REFERENCE
from ecop.report import fair, paper
from ecop.report import statistics as st
from ecop.report.arms import SECTIONS, Arm, versions
from ecop.report.tables import Table, cost_words

POINTS = 150  # of a curve that are drawn
CLIP_WIDTH = 260  # pixels
CLIP_PIXELS = 4_000_000  # of a frame that is read
CLIPS_BYTES = 6_000_000  # of all clips together
HERE = Path(__file__).parent
MARKS = {"best": "best", "near": "near best", "above": "above the limit"}


def page(
    found: Results, shown: list[Arm], tables: Sequence[Table], notes: Sequence[str]
) -> str:
    """The whole file."""
    pages = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    clips, left_out, above = clips_of(found, shown)
    done = [arm for arm in shown if arm.documents]
    families = families_of(done)
    style, script = ((HERE / f"page.{kind}").read_text() for kind in ("css", "js"))
    return pages.get_template("page.html").render(
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
        data=data(done, families),
        families=families,
        rule=f"{fair.RULE} {fair.EPISODES}",
        facts=facts(found, shown),
        notes=notes,
        failed=found.failed.values(),
        tables=tables,
        marks=MARKS,
        clips=clips,
        clips_left_out=left_out,
        clips_above=above,
        clip_width=CLIP_WIDTH,
        version=ecop.__version__,
        makers=versions(found),
        plans=found.plans,
        own=all(plan["suite"] == "runs" for plan in found.plans),
        seed_of=seed_of,
        setups=[(arm, config(arm)) for arm in done],
    )


def policy(style: str, script: str) -> str:
    """What a browser may do: run our script, use our style, show pictures inside."""
    sums = [hashlib.sha256(f"\n{text}\n".encode()).digest() for text in (style, script)]
    ours, run = (f"'sha256-{base64.b64encode(sum_).decode()}'" for sum_ in sums)
    return (
        f"default-src 'none'; style-src {ours}; script-src {run}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def facts(found: Results, shown: Sequence[Arm]) -> dict[str, int]:
    """What there is, in numbers."""
    done = [arm for arm in shown if arm.documents]
    return {
        "finished runs": len(found.cells),
        "tasks": len({arm.task for arm in done}),
        "algorithms": len({arm.name for arm in done}),
        "failed runs": len(found.failed),
        "places still empty": sum(
            len(arm.planned) - len(arm.documents) for arm in shown
        ),
    }


def config(arm: Arm) -> str:
    """The config of an arm's runs, whatever their seed."""
    cell = arm.documents[0]["cell"]
    train = {k: v for k, v in cell["train"].items() if k != "first_seed"}
    return json.dumps(cell | {"train": train}, indent=1)


def families_of(done: Sequence[Arm]) -> list[dict[str, Any]]:
    """The verdicts, and what the first figure shows, by family of tasks."""
    found = []
    for family, (title, _) in fair.FAMILIES.items():
        blocks = fair.family_blocks(family, done)
        if not blocks:
            continue
        ours = fair.ours_of(family, blocks)
        standings = fair.standings(blocks, ours)
        sentences = [fair.verdict(block, ours) for block in blocks]
        found.append(
            {
                "title": title,
                "verdict": fair.overall(title, standings, len(blocks), ours),
                "tasks": [] if blocks[0].case else sentences,
                "cases": sentences if blocks[0].case else [],
                "rows": [
                    {"name": x.name, "blocks": x.blocks, **ends(x.last)}
                    for x in standings
                ],
                "count": len(blocks),
            }
        )
    return found


def ends(x: st.Estimate) -> dict[str, float | None]:
    """An estimate for the script; ends that are not known are null."""
    low, high = (v if math.isfinite(v) else None for v in (x.low, x.high))
    return {"value": x.value, "low": low, "high": high}


# The data of the charts


def data(shown: Sequence[Arm], families: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the script draws."""
    return {
        "sections": SECTIONS,
        "order": [*(paper.NAMES[name] for name in EVERYONE), "e-COP (paper)"],
        "families": [
            {name: family[name] for name in ("title", "rows", "count")}
            for family in families
        ],
        "reference": paper.NAMES[REFERENCE],
        "arms": [arm_data(arm) for arm in shown],
    }


def arm_data(arm: Arm) -> dict[str, Any]:
    """One arm: its curves and evaluations."""
    x, y = arm.curves(POINTS)
    return {
        "section": arm.section,
        "task": arm.task,
        "name": fair.competitor(arm),
        "label": arm.label,
        "costs": arm.documents[0]["costs"],
        "limits": [None if math.isinf(limit) else limit for limit in arm.limits],
        "x": [round(steps) for steps in x],
        "runs": [
            {
                "seed": seed_of(document["cell"]),
                "y": [[float(f"{v:.5g}") for v in line] for line in y[i]],
                "mean": [arm.reward[i], *arm.costs[i]],
                "excess": arm.excess[i].tolist(),
            }
            for i, document in enumerate(arm.documents)
        ],
    }


# Clips


def clips_of(
    found: Results, shown: Sequence[Arm]
) -> tuple[dict[str, list[tuple[str, str]]], int, int]:
    """By task, caption and GIF of each arm that has one of a run within its limits.

    Then how many had no room, and how many are of runs above a limit.
    """
    left, skipped, above = CLIPS_BYTES, 0, 0
    clips: dict[str, list[tuple[str, str]]] = {}
    for arm in shown:
        if arm.section not in ("table1", "navigation"):
            continue
        within = st.feasible(arm.costs, arm.limits) if arm.documents else []
        for i, document in enumerate(arm.documents):
            file = found.folder / "clips" / f"{document['id']}.gif"
            if file.exists() and not within[i]:
                above += 1
                continue
            clip = shrunk(file) if file.exists() else None
            if clip is None:
                continue
            if len(clip) > left:
                skipped += 1
                break
            left -= len(clip)
            words = cost_words(document["costs"], arm.costs[i], arm.limits.tolist())
            caption = f"{arm.label}, seed {seed_of(document['cell'])}; {words}"
            coded = base64.b64encode(clip).decode()
            clips.setdefault(arm.task, []).append((caption, coded))
            break
    return clips, skipped, above


def shrunk(file: Path) -> bytes | None:
    """A small copy of a GIF; None if it cannot be read."""
    try:
        with warnings.catch_warnings(), Image.open(file) as clip:
            warnings.simplefilter("ignore")
            if clip.width * clip.height > CLIP_PIXELS or file.is_symlink():
                return None
            step = 2 if getattr(clip, "n_frames", 1) > 60 else 1
            frames = [
                frame.convert("RGB") for frame in list(ImageSequence.Iterator(clip))
            ][::step]
            size = CLIP_WIDTH, round(CLIP_WIDTH * clip.height / clip.width)
    except Exception:  # a damaged picture is whatever its reader makes of it
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
