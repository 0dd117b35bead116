"""Faults for real: training on a Ray cluster of four nodes while things break.

    python benchmarks/faults.py [--minutes 10] [--faults nodes driver hang ...]

For each kind of fault a cluster of a head and four nodes of two CPUs is started on this
machine, `ecop train` runs on it and something breaks every few seconds; then training
is stopped, and as many iterations are done in one quiet process. Checkpoints and
metrics must be the same to the bit; the exit code is 1 if they are not.

    nodes       a random node is killed, all at once; another one joins
    actors      the process of a random actor is killed with -9
    partition   a random raylet is stopped (SIGSTOP) until Ray gives its node up, then
                goes on; another one joins
    driver      `ecop train` is killed with -9 after 1 to 45 iterations and resumed
                with another number of actors
    hang, raise, die    a simulator hangs in a step, raises, kills its process
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ray.cluster_utils import Cluster

from ecop import runs

HERE = Path(__file__).parent
NODES, CPUS = 4, 2
ECOP = [sys.executable, "-m", "ecop.cli"]
TRAIN = ["--seeds", "2", "--episodes", "20"]
FOREVER = 1_000_000  # iterations
# A cluster on one machine needs no patience: a node is given up after 3 s of silence.
QUICK = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 4,
}


class Scene(NamedTuple):
    """Where it happens."""

    cluster: Any
    nodes: list[Any]
    folder: Path
    rng: random.Random


def start(folder: Path, rng: random.Random) -> Scene:
    os.environ |= {"FAULTY_SLEEP": "0.002", "FAULTY_FOLDER": str(folder)}
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(HERE), *known]))
    head = {"num_cpus": 0, "object_store_memory": 10**8, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    scene = Scene(cluster, [], folder, rng)
    for _ in range(NODES):
        join(scene)
    return scene


def join(scene: Scene) -> None:
    node = scene.cluster.add_node(
        wait=False, num_cpus=CPUS, object_store_memory=10**8, include_dashboard=False
    )
    scene.nodes.append(node)


def raylet(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


# Faults: each returns the seconds until the next one


def kill_node(scene: Scene) -> float:
    node = scene.nodes.pop(scene.rng.randrange(len(scene.nodes)))
    scene.cluster.remove_node(node, allow_graceful=False)
    join(scene)
    return scene.rng.uniform(2.0, 5.0)


def kill_actor(scene: Scene) -> float:
    found = [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if b"ray::Relay" in readable(entry / "cmdline")
        and str(raylets(entry)) in {str(raylet(node)) for node in scene.nodes}
    ]
    if found:
        os.kill(scene.rng.choice(found), signal.SIGKILL)
    return scene.rng.uniform(1.0, 3.0)


def raylets(entry: Path) -> int:
    """The parent of a process."""
    words = readable(entry / "stat").decode(errors="replace").rpartition(")")[2].split()
    return int(words[1]) if words else 0


def readable(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def pause_node(scene: Scene) -> float:
    node = scene.nodes.pop(scene.rng.randrange(len(scene.nodes)))
    os.kill(raylet(node), signal.SIGSTOP)
    time.sleep(8.0)
    os.kill(raylet(node), signal.SIGCONT)
    time.sleep(2.0)
    scene.cluster.remove_node(node, allow_graceful=False)
    join(scene)
    return scene.rng.uniform(2.0, 4.0)


def ask(fault: str) -> Callable[[Scene], float]:
    def leave_word(scene: Scene) -> float:
        (scene.folder / fault).touch()
        return scene.rng.uniform(1.0, 4.0) + (4.0 if fault == "hang" else 0.0)

    return leave_word


FAULTS: dict[str, Callable[[Scene], float] | None] = {
    "nodes": kill_node,
    "actors": kill_actor,
    "partition": pause_node,
    "driver": None,
    "hang": ask("hang"),
    "raise": ask("raise"),
    "die": ask("die"),
}


# Training and comparing


def driver(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen([*ECOP, *words], cwd=HERE, stdout=file, stderr=file)


def suffer(fault: str, minutes: float, folder: Path, rng: random.Random) -> dict:
    """Train under a fault; say what happened."""
    scene = start(folder, rng)
    out, log = folder / "run", folder / "log.txt"
    ray_options = ["--on", "ray", "--address", scene.cluster.address]
    words = ["train", "faulty:walk", *TRAIN, "--iterations", str(FOREVER)]
    process = driver([*words, "--out", str(out), *ray_options], log)
    starts = 1
    count, end, breaks = 0, time.monotonic() + 60.0 * minutes, FAULTS[fault]
    try:
        wait_for(log, process, starts)
        while time.monotonic() < end:
            if process.poll() is not None:
                break
            if breaks is not None:
                time.sleep(breaks(scene))
            else:
                wait_for_lines(out, process, 2 * rng.randint(1, 45))
                process.kill()
                process.wait()
                again = ["resume", str(out), "--trust", "--actors"]
                again += [str(rng.randint(1, NODES * CPUS)), *ray_options]
                process = driver(again, log)
                starts += 1
                wait_for(log, process, starts)
            count += 1
        for word in ("hang", "raise", "die"):
            (folder / word).unlink(missing_ok=True)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=180)
    finally:
        process.kill()
        process.wait()
        scene.cluster.shutdown()
    text = log.read_text(errors="replace")
    mended = text.count("A fresh worker takes its place")
    return {"faults": count, "mended": mended, "code": code, "out": out, "log": text}


def wait_for(log: Path, process: subprocess.Popen[bytes], starts: int) -> None:
    """Wait until training has begun as often as it was started."""
    deadline = time.monotonic() + 180.0
    while log.read_text(errors="replace").count("Compiling") < starts:
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError(f"Training did not begin: {log.read_text()}")
        time.sleep(0.1)


def wait_for_lines(out: Path, process: subprocess.Popen[bytes], more: int) -> None:
    """Wait until metrics have grown: about two checkpoints, at most."""
    file = out / "metrics.jsonl"
    before = len(file.read_bytes().splitlines()) if file.exists() else 0
    while process.poll() is None:
        if file.exists() and len(file.read_bytes().splitlines()) >= before + more:
            return
        time.sleep(0.05)


def numbers(out: Path) -> tuple[bytes, list[dict[str, Any]]]:
    """The bits of the last checkpoint, and metrics without times."""
    last = runs.checkpoints(out)[-1]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    for line in lines:
        for name in (*runs.TIMES, "crc32"):
            line.pop(name, None)
    return (last / "state.safetensors").read_bytes(), lines


def quiet(out: Path, iterations: int) -> None:
    surroundings = os.environ | {"FAULTY_SLEEP": "0", "FAULTY_FOLDER": ""}
    words = ["train", "faulty:walk", *TRAIN, "--iterations", str(iterations)]
    command = [*ECOP, *words, "--out", str(out)]
    subprocess.run(
        command, cwd=HERE, env=surroundings, check=True, stdout=subprocess.DEVNULL
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, failed = random.Random(arguments.seed), 0
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    print("| fault | times | workers replaced | iterations | bits |")
    print("|---|---|---|---|---|", flush=True)
    for fault in arguments.faults:
        with tempfile.TemporaryDirectory(prefix="ecop-faults-") as scratch:
            folder = Path(scratch)
            found = suffer(fault, arguments.minutes, folder, rng)
            if found["code"] not in (0, 130):
                print(found["log"][-3000:], file=sys.stderr)
                print(f"| {fault} | {found['faults']} | exit {found['code']} | | |")
                failed += 1
                continue
            done = int(runs.checkpoints(found["out"])[-1].name)
            quiet(folder / "quiet", done)
            same = numbers(found["out"]) == numbers(folder / "quiet")
            failed += not same
            print(
                f"| {fault} | {found['faults']} | {found['mended']} | {done} | "
                f"{'equal' if same else 'DIFFERENT'} |",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
