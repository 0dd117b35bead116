"""Run cells as Ray tasks, on this machine or on a cluster.

A task starts the same process as the local pool and gets the cell as a JSON string, so
the results are the same. Where the results folder is not there (another machine, no
shared disk) the cell works in a temporary one and its files travel back. If a node dies
Ray runs its cells again elsewhere: from their checkpoint on a shared disk, else anew.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ecop.api import stop_requests
from ecop.bench.run import Event, Job
from ecop.bench.work import STOPPED, Child, Outcome
from ecop.files import write
from ecop.simulators.on_ray import connected, need_ray

RETRIES = 5  # of a cell whose node or worker died


def run_task(text: str) -> tuple[int, str, dict[str, bytes]]:
    """Run one cell; return exit code, last words and files of the results folder."""
    job = json.loads(text)
    folder = Path(job["folder"])
    with tempfile.TemporaryDirectory(prefix="ecop-cell-") as scratch:
        if not (folder / "runs" / job["token"]).is_file():
            folder = Path(scratch)
        child = Child(job["cell"], folder, clip=job["clip"])
        try:
            outcome = child.wait(lambda *_: None)
        finally:
            child.kill()
        there = [name for name in names(job["name"]) if (folder / name).is_file()]
        found = {name: (folder / name).read_bytes() for name in there}
    return outcome.code, outcome.error, found


def runner(address: str | None) -> Any:
    """A function like `run_local` that hands the jobs to Ray.

    address: of a cluster; None: RAY_ADDRESS, else one is started on this machine
    """
    need_ray()

    def run(jobs: Sequence[Job], folder: Path, workers: int) -> Iterator[Event]:
        with connected(address, workers) as ray:
            yield from _run(ray, jobs, folder)

    return run


def _run(ray: Any, jobs: Sequence[Job], folder: Path) -> Iterator[Event]:
    # Nodes that see this file work in the very same folder.
    token = folder / "runs" / f"{uuid.uuid4().hex}.token"
    token.touch()
    task = ray.remote(run_task).options(num_cpus=1, max_retries=RETRIES)
    place = {"folder": str(folder.resolve()), "token": token.name}
    waiting = {task.remote(json.dumps({**job._asdict(), **place})): job for job in jobs}
    try:
        yield from _follow(ray, waiting, folder)
    finally:
        token.unlink(missing_ok=True)


def _follow(ray: Any, waiting: dict[Any, Job], folder: Path) -> Iterator[Event]:
    """One event for every task that ends."""
    with stop_requests() as stopping:
        while waiting:
            if stopping.is_set():
                for reference in waiting:
                    ray.cancel(reference, force=True)
                for job in waiting.values():
                    yield Event("end", job, 0.0, Outcome(STOPPED))
                return
            ready, _ = ray.wait(list(waiting), timeout=0.5)
            for reference in ready:
                job = waiting.pop(reference)
                yield Event("end", job, 1.0, _collect(ray, reference, folder, job))


def _collect(ray: Any, reference: Any, folder: Path, job: Job) -> Outcome:
    """Write what came back, if it is not there already."""
    try:
        code, error, files = ray.get(reference)
    except ray.exceptions.RayError as failure:
        return Outcome(-1, f"Ray gave the cell up: {failure}")
    for name in names(job.name):
        data = files.get(name)
        target = folder / name
        if data and (not target.exists() or target.read_bytes() != data):
            target.parent.mkdir(parents=True, exist_ok=True)
            write(target, data)
    return Outcome(code, error)


def names(cell: str) -> list[str]:
    """Files of a cell in the results folder, whoever runs it."""
    return [f"cells/{cell}.json", f"failed/{cell}.json", f"clips/{cell}.gif"]
