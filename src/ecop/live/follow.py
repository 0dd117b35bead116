"""The metrics of a run folder that grows: only what is new is read."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from ecop import files, runs

POINTS = 400  # of a curve that are shown
PARTS = {"costs_by_seed": "costs", "multipliers": "multipliers"}


class Follower:
    """Lines of metrics so far; a file that was cut or replaced is read anew."""

    def __init__(self, path: Path) -> None:
        self.file = path / "metrics.jsonl"
        self.place = (0, 0)  # file, bytes that were read
        self.lines: dict[int, dict[int, dict[str, Any]]] = {}  # iteration, seed

    def update(self) -> bool:
        """Read on; say whether there was anything new."""
        try:
            found = self.file.stat()
        except OSError:
            return False
        file, start = self.place
        if found.st_ino != file or found.st_size < start:
            start, self.lines = 0, {}
        if found.st_size == start:
            return False
        data = files.read_bytes(self.file, files.LINES_BYTES, start)
        data = data[: data.rfind(b"\n") + 1]  # the last line may be half written
        for line in filter(runs.whole, files.lines_in(data, runs.Line)):
            self.lines.setdefault(line["iteration"], {})[line["seed"]] = dict(line)
        self.place = found.st_ino, start + len(data)
        return bool(data)

    def curves(self) -> dict[str, Any]:
        """Reward, costs and multipliers of every seed over iterations."""
        seeds = sorted({seed for rows in self.lines.values() for seed in rows})
        whole = [k for k in sorted(self.lines) if len(self.lines[k]) == len(seeds)]
        if not whole:
            return {"x": []}
        count = len(self.lines[whole[-1]][seeds[0]]["costs"])
        whole = [
            k
            for k in whole
            if all(len(line["costs"]) == count for line in self.lines[k].values())
        ]
        size = -(-len(whole) // POINTS)
        blocks = [whole[i : i + size] for i in range(0, len(whole), size)]

        def curve(seed: int, name: str, entry: int | None = None) -> list[float]:
            def value(k: int) -> float:
                found = self.lines[k][seed][name]
                return found if entry is None else found[entry]

            return [float(f"{fmean(map(value, block)):.6g}") for block in blocks]

        last = self.lines[whole[-1]][seeds[0]]
        return {
            "seeds": seeds,
            "x": [block[-1] for block in blocks],
            "reward": [curve(seed, "reward") for seed in seeds],
            **{
                kind: [[curve(seed, name, i) for seed in seeds] for i in range(count)]
                for kind, name in PARTS.items()
            },
            "limits": last["limits"],
            "iteration": last["iteration"],
            "steps": last["env_steps"],
            "seconds": last["seconds"],
        }
