"""What the SUMO tasks share: one simulation per process, files, the pool.

A simulation is started by `load` with the episode's seed, which repeats to the bit in
any process; SUMO's saved states do not. Imports no JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

from ecop.types import Spec, UserError
from ecop.workers import Simulator, SimulatorPool

TIMESTEP = 1.0  # s, of the simulation


def libsumo() -> Any:
    """The simulator, or one sentence that says how to get it."""
    try:
        return importlib.import_module("libsumo")
    except ModuleNotFoundError:
        raise UserError(
            "This task needs the traffic simulator SUMO, whose library is not "
            "installed: pip install 'ecop[sumo]'"
        ) from None
    except ImportError as error:
        raise UserError(
            f"SUMO's library is installed but cannot be loaded ({error}); on a slim "
            "Debian: apt install libgl1 libx11-6 libxext6 libxrender1 libatomic1"
        ) from None


class Simulation:
    """The simulation of this process, by the name of its files."""

    def __init__(self, name: str) -> None:
        self.sumo = libsumo()
        self._files = contextlib.ExitStack()
        folder = self._files.enter_context(as_file(files("ecop.envs") / "assets"))
        self.network = folder / f"{name}.net.xml"
        self.traffic = folder / f"{name}.rou.xml"

    def load(self, seed: int) -> None:
        """Start anew at time zero."""
        options = [
            *("--net-file", str(self.network), "--route-files", str(self.traffic)),
            *("--seed", str(seed % 2**31), "--step-length", str(TIMESTEP)),
            *("--time-to-teleport", "-1", "--no-step-log", "--no-warnings"),
        ]
        if self.sumo.isLoaded():
            self.sumo.load(options)
        else:
            self.sumo.start(["sumo", *options])

    def close(self) -> None:
        """End the simulation."""
        if self.sumo.isLoaded():
            self.sumo.close()
        self._files.close()


def pool(
    name: str,
    make: Callable[[], Simulator],
    spec: Spec,
    workers: int | None,
    timeout: float,
) -> SimulatorPool:
    """The task as a host environment; by default one worker per core."""
    libsumo()
    return SimulatorPool(
        make,
        spec,
        workers=(os.cpu_count() or 1) if workers is None else workers,
        timeout=timeout,
        per_process=1,
        recipe=(name, {"workers": workers, "timeout": timeout}),
    )


def routes(elements: list[str]) -> str:
    """A route file."""
    return "\n".join(["<routes>", *(f"    {x}" for x in elements), "</routes>", ""])
