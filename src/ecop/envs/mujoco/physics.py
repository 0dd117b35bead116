"""MuJoCo for whole batches: one call per control step, on MuJoCo's own threads.

`mujoco.batch.Batch` steps B simulations of one model in a pool of C threads and gives
live NumPy views of their states; a simulation has the same bits at any thread count and
in any company. No JAX here.

An episode that has failed stands still. One whose simulation MuJoCo warns of (a number
that is not finite or huge, too many contacts) fails there: MuJoCo has put it back to
its start, the step counts nothing, and `unstable` has one more.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ecop.errors import UserError
from ecop.simulators.cores import cores
from ecop.types import HostStep

log = logging.getLogger("ecop.physics")

FORCES = "cfrc_ext"  # MuJoCo's name of the contact forces on the bodies


@dataclass(frozen=True)
class ThreadOptions:
    """Where the robots are simulated."""

    threads: int = 0
    """threads that step the robots; 0: one per core; no result depends on it"""

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise UserError(f"threads must be zero or more, not {self.threads}.")


@dataclass(frozen=True)
class PhysicsOptions(ThreadOptions):
    """How the robots are simulated, and where."""

    integrator: Literal["euler", "rk4"] = "euler"
    """"euler" (fast), or "rk4" with the time step of the model's file, as Gymnasium"""


def library() -> Any:
    """MuJoCo; refuse, with the command to type, if it or the models are not there."""
    for name in ("mujoco", "mujoco.batch", "gymnasium"):
        try:
            found = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            raise UserError(
                f"This task needs '{name}', which is not installed: "
                "pip install 'ecop[mujoco]'"
            )
    return importlib.import_module("mujoco")


def read(file: str) -> Any:
    """Gymnasium's model of this file."""
    mujoco = library()
    gymnasium = importlib.util.find_spec("gymnasium")
    assert gymnasium is not None
    assert gymnasium.origin is not None
    folder = Path(gymnasium.origin).parent / "envs" / "mujoco" / "assets"
    with Quiet(mujoco):
        return mujoco.MjModel.from_xml_path(str(folder / file))


def load(robot: str, euler_step: float, options: PhysicsOptions) -> Any:
    """Gymnasium's model of a robot, with the chosen integrator."""
    mujoco, model = library(), read(f"{robot}.xml")
    if options.integrator == "euler":
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        model.opt.timestep = euler_step
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


class Quiet:
    """Keeps MuJoCo's warnings off the screen and out of its file; we count them."""

    def __init__(self, mujoco: Any) -> None:
        self._now = mujoco.MjLogConfig.get
        self._silent = self._now()
        self._silent.logto_console = self._silent.logto_file = False

    def __enter__(self) -> None:
        self._before = self._now()
        self._silent.set()

    def __exit__(self, *error: object) -> None:
        self._before.set()


class Physics:
    """B simulations of one model.

    Attributes:
        model: MuJoCo's
        position, velocity: live views [B, nq], [B, nv] of the states
        state: both in one, [B, nq + nv]
        derived: live views [B, ...] of the fields asked for, by MuJoCo's name; after a
            step they are one substep late, as all that MuJoCo derives from the state
        alive: [B] bool
        unstable: simulations that MuJoCo warned of, over all episodes

    """

    def __init__(
        self,
        model: Any,
        interval: float,
        options: ThreadOptions,
        *,
        derived: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.interval = interval
        self.substeps = round(interval / model.opt.timestep)
        self.threads = options.threads or cores()
        self.unstable = 0
        self._mujoco = library()
        self._quiet = Quiet(self._mujoco)
        self._one = self._mujoco.MjData(model)
        self._derived = tuple(derived)
        self._batch: Any = None

    @property
    def centre(self) -> np.ndarray:
        """The centres of mass [B, 3], a live view, if asked for."""
        return self.derived["subtree_com"][:, 1]

    def shape(self, field: str) -> tuple[int, ...]:
        """The shape of a derived field in one simulation."""
        return getattr(self._one, field).shape

    def start(
        self, position: Sequence[np.ndarray], velocity: Sequence[np.ndarray]
    ) -> None:
        """Begin B episodes in these states, [nq] and [nv] each."""
        self._place(position, velocity)
        for row in self.position:
            self._mujoco.mj_normalizeQuat(self.model, row)
        if self._derived:
            self._batch.forward(stage=self._mujoco.mjtStage.mjSTAGE_POS)

    def start_as_gymnasium(
        self, position: Sequence[np.ndarray], velocity: Sequence[np.ndarray]
    ) -> None:
        """The same, without normalising, and with the forces of the first state."""
        self._place(position, velocity)
        self._batch.forward()

    def step(self, control: np.ndarray) -> None:
        """Hold these controls [B, nu] for one control interval."""
        self._control[:] = control
        with self._quiet:
            self._batch.step(self._ids, self.substeps)
        if FORCES in self._derived:
            self._feel()
        # The sum first: it is all that a step costs where nothing broke.
        total = self._warnings.sum()
        self._broke = total != self._total
        if self._broke:
            self._total = total
            warned = self._warnings.sum(axis=1)
            self._stable = warned == self._warned
            self._warned = warned
            if not self.unstable:
                log.warning(
                    "MuJoCo found a simulation unstable; such episodes end there and "
                    "are counted as failed."
                )
            self.unstable += int((~self._stable).sum())

    def outcome(
        self,
        observation: np.ndarray,
        reward: np.ndarray,
        costs: np.ndarray,
        fallen: np.ndarray,
    ) -> HostStep:
        """What the step gave [B, ...]; nothing for a simulation that broke in it."""
        if self._broke:
            fallen = fallen | ~self._stable
            reward = np.where(self._stable, reward, 0.0)
            costs = np.where(self._stable[:, None], costs, 0.0)
        if fallen.any():
            self.alive = self.alive & ~fallen
            self._ids = np.flatnonzero(self.alive)
        return HostStep(observation, reward, costs, ~self.alive)

    def close(self) -> None:
        """Let go of the simulations and their threads."""
        self._batch = None

    def _place(
        self, position: Sequence[np.ndarray], velocity: Sequence[np.ndarray]
    ) -> None:
        from mujoco.batch import Batch

        count = len(position)
        if self._batch is None or self._batch.nsim != count:
            forces = FORCES in self._derived
            self._batch = Batch(self.model, count, self.threads, persistent=forces)
            self.position = self._batch.bind("qpos")
            self.velocity = self._batch.bind("qvel")
            # MuJoCo has them in a row, after the time.
            self.state = self._batch.state[:, 1 : 1 + self.model.nq + self.model.nv]
            self.derived = {f: self._batch.bind(f) for f in self._derived}
            self._control = self._batch.bind("ctrl")
            self._warnings = self._batch.warning[:, :, 1]
            self._contacts = self._batch.bind("ncon")
        if FORCES in self._derived:
            self.derived[FORCES] = np.zeros((count, *self.shape(FORCES)))
        self._batch.reset(stage=self._mujoco.mjtStage.mjSTAGE_NONE)
        self.position[:] = position
        self.velocity[:] = velocity
        self._warned = self._warnings.sum(axis=1)
        self._total = self._warned.sum()
        self._broke = False
        self.alive = np.ones(count, bool)
        self._ids: np.ndarray | None = None  # of those alive; None: all

    def _feel(self) -> None:
        """Forces of the last contacts, which MuJoCo computes on demand."""
        model, one, forces = self.model, self._one, self.derived[FORCES]
        fetch, derive = self._batch.get_data, self._mujoco.mj_rnePostConstraint
        felt = one.cfrc_ext
        forces[:] = 0.0
        for i in np.flatnonzero(self._contacts).tolist():
            fetch(i, one)
            derive(model, one)
            forces[i] = felt
