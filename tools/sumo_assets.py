"""Write the road networks and the traffic of Grid and Bottleneck.

    pip install eclipse-sumo && python tools/sumo_assets.py

Only this script needs SUMO's netconvert; the files it writes are part of the package.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from pathlib import Path

import ecop
from ecop.envs import bottleneck, grid

ASSETS = Path(ecop.__file__).parent / "envs" / "sumo" / "assets"


def convert(name: str, nodes: list[str], edges: list[str], links: list[str]) -> None:
    """Make a network of plain XML elements; leave dates and paths out of it."""
    with tempfile.TemporaryDirectory() as folder:
        options = []
        for option, root, elements in (
            ("node-files", "nodes", nodes),
            ("edge-files", "edges", edges),
            ("connection-files", "connections", links),
        ):
            file = Path(folder) / f"{root}.xml"
            file.write_text(f"<{root}>{''.join(elements)}</{root}>")
            options += [f"--{option}", str(file)]
        file = Path(folder) / "net.xml"
        subprocess.run(
            [
                *("netconvert", *options, "--output-file", str(file)),
                *("--no-turnarounds", "--offset.disable-normalization"),
                *("--default.junctions.radius", "4"),
            ],
            check=True,
        )
        text = re.sub(r"<!--.*?-->\s*", "", file.read_text(), flags=re.DOTALL)
    (ASSETS / f"{name}.net.xml").write_text(text)


def grid_network() -> None:
    """Four lights, eight streets of three edges each, straight on only."""
    side = grid.INNER
    nodes = [
        f'<node id="{i}{j}" x="{i * side}" y="{j * side}" type="traffic_light"/>'
        for i in range(2)
        for j in range(2)
    ]
    edges, links = [], []
    lengths = (grid.ENTRY, grid.INNER, grid.EXIT)
    for heading, (dx, dy) in grid.HEADINGS.items():
        for row in range(2):
            across = row * side
            along = [-grid.ENTRY, 0, side, side + grid.EXIT]
            ends = []
            for k, s in enumerate(along):
                s = s if dx + dy > 0 else side - s
                x, y = (s, across) if dx else (across, s)
                if k in (0, 3):
                    ends.append(f"{heading}{row}{'in' if k == 0 else 'out'}")
                    nodes.append(f'<node id="{ends[-1]}" x="{x}" y="{y}"/>')
                else:
                    ends.append(f"{x // side}{y // side}")
            names = grid.street(heading, row)
            for k, name in enumerate(names):
                edges.append(
                    f'<edge id="{name}" from="{ends[k]}" to="{ends[k + 1]}" '
                    f'numLanes="1" speed="{grid.LIMIT_SPEED}" length="{lengths[k]}"/>'
                )
            for a, b in itertools.pairwise(names):
                links.append(f'<connection from="{a}" to="{b}"/>')
    convert("grid", nodes, edges, links)


def bottleneck_network() -> None:
    """Five edges in a row, 4, 4, 4, 2, 1 lanes; lanes merge like a zip."""
    nodes, edges, links, x = ['<node id="n0" x="0" y="0"/>'], [], [], 0
    lanes = bottleneck.LANES
    for i, length in enumerate(bottleneck.LENGTHS):
        x += length
        last = i + 1 == len(lanes)
        merge = not last and lanes[i + 1] < lanes[i]
        kind = "zipper" if merge else "priority"
        nodes.append(f'<node id="n{i + 1}" x="{x}" y="0" type="{kind}"/>')
        edges.append(
            f'<edge id="e{i}" from="n{i}" to="n{i + 1}" numLanes="{lanes[i]}" '
            f'speed="{bottleneck.LIMIT_SPEED}" length="{length}" spreadType="center"/>'
        )
        for lane in range(0 if last else lanes[i]):
            target = lane * lanes[i + 1] // lanes[i]
            links.append(
                f'<connection from="e{i}" to="e{i + 1}" fromLane="{lane}" '
                f'toLane="{target}"/>'
            )
    convert("bottleneck", nodes, edges, links)


def main() -> None:
    """Write all files."""
    grid_network()
    bottleneck_network()
    for name, text in (("grid", grid.traffic()), ("bottleneck", bottleneck.traffic())):
        (ASSETS / f"{name}.rou.xml").write_text(text)


if __name__ == "__main__":
    main()
