"""Which integrator for the robots? Each against RK4 with a step 20 times finer.

    python benchmarks/integrators.py

For each: control steps per second, the torso's median distance from the fine run after
0.1, 0.25, 0.5 and 1 s, and the means of its height, its highest point and its speed,
over 64 robots under smooth random controls. Contacts make the motion chaotic: the
second row, RK4 with twice the finest step, shows how far two good runs part.
"""

from __future__ import annotations

import time

import numpy as np

from ecop.envs import ant, humanoid, physics

ROBOTS = 64
MARKS = (0.1, 0.25, 0.5, 1.0)  # s


def run(robot: str, integrator: int, timestep: float, interval: float, controls, start):
    model = physics.load(robot, timestep, physics.PhysicsOptions())
    model.opt.integrator = integrator
    robots = physics.Physics(model, interval, physics.PhysicsOptions())
    robots.start(*start)
    path, speed = [], []
    begin = time.perf_counter()
    for control in controls:
        robots.step(control)
        path.append(robots.position[:, :3].copy())
        speed.append(np.abs(robots.velocity[:, :2]).mean())
    spent = time.perf_counter() - begin
    return np.stack(path, axis=1), float(np.mean(speed)), spent


def smooth_controls(rng: np.random.Generator, model, steps: int):
    noise = np.zeros((ROBOTS, model.nu))
    for _ in range(steps):
        noise = 0.8 * noise + 0.6 * rng.standard_normal(noise.shape)
        yield np.clip(noise / 2, -1, 1) * model.actuator_ctrlrange[:, 1]


def study(robot: str, interval: float, noise: float, timesteps: dict[str, list[float]]):
    rng = np.random.default_rng(1)
    model = physics.load(robot, 0.001, physics.PhysicsOptions(integrator="rk4"))
    start = (
        model.qpos0 + rng.uniform(-noise, noise, (ROBOTS, model.nq)),
        noise * rng.standard_normal((ROBOTS, model.nv)),
    )
    controls = list(smooth_controls(rng, model, round(MARKS[-1] / interval)))
    own = model.opt.timestep
    mujoco = physics.library()
    rk4, euler = mujoco.mjtIntegrator.mjINT_RK4, mujoco.mjtIntegrator.mjINT_EULER
    fine, *_ = run(robot, rk4, own / 20, interval, controls, start)
    rows = [("RK4", rk4, own / 20), ("RK4", rk4, own / 10)]
    rows += [("RK4", rk4, step) for step in timesteps["RK4"]]
    rows += [("Euler", euler, step) for step in timesteps["Euler"]]
    print(f"{robot}: integrator, step | control steps/s | mm | height, top, speed")
    for name, integrator, step in rows:
        path, speed, spent = run(robot, integrator, step, interval, controls, start)
        gap = np.median(np.linalg.norm(path - fine, axis=2), axis=0)
        marks = " ".join(f"{1e3 * gap[round(m / interval) - 1]:7.2f}" for m in MARKS)
        height, top = path[..., 2].mean(), path[..., 2].max(axis=1).mean()
        pace = ROBOTS * len(controls) / spent
        print(
            f"{name:5} {1e3 * step:5.2f} ms | {pace:8,.0f} | {marks} "
            f"| {height:.3f} {top:.3f} {speed:.3f}"
        )


if __name__ == "__main__":
    study("ant", ant.INTERVAL, 0.1, {"RK4": [0.01], "Euler": [0.01, 0.005, 0.0025]})
    study(
        "humanoid", humanoid.INTERVAL, 0.01, {"RK4": [0.003], "Euler": [0.005, 0.003]}
    )
