"""Cells as Ray tasks on a cluster of two nodes, one of them killed in the middle."""

import time
import warnings

import pytest

from ecop.bench import results, run

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

CELLS = {"tasks": ["FactoredRing"], "seeds": 1, "iterations": 45}
PARTS = ("cell", "curve", "evaluation", "exact")


def numbers(folder):
    found = results.read(folder)
    assert not found.problems
    return {k: {p: d[p] for p in PARTS} for k, d in found.cells.items()}


def run_all(folder, runner, workers=1):
    plan = run.make_plan("exact", folder, **CELLS)
    results.prepare(folder)
    results.write_plan(folder, plan.document)
    events = runner(plan.jobs, folder, workers)
    return [run.settle(event, folder) for event in events if event.kind == "end"]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray") / "local"
    assert run_all(folder, run.run_local) == ["done"] * 3
    return folder


def test_a_node_dies_and_the_results_are_those_of_the_local_run(local, tmp_path):
    from ray.cluster_utils import Cluster

    from ecop.bench.on_ray import runner

    folder = tmp_path / "cluster"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        doomed = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, include_dashboard=False, log_to_driver=False)
        try:
            cluster.wait_for_nodes()
            plan = run.make_plan("exact", folder, **CELLS)
            results.prepare(folder)
            results.write_plan(folder, plan.document)
            killed = False

            def watch():
                nonlocal killed
                if not killed and len(list(folder.glob("runs/*/metrics.jsonl"))) >= 2:
                    cluster.remove_node(doomed, allow_graceful=False)
                    killed = True

            from ecop.bench import on_ray

            before = ray.wait

            def wait(*args, **options):
                watch()
                return before(*args, **options)

            on_ray_wait = pytest.MonkeyPatch()
            on_ray_wait.setattr(ray, "wait", wait)
            ends = []
            for event in on_ray.runner(cluster.address)(plan.jobs, folder, 1):
                ends.append(run.settle(event, folder))
            on_ray_wait.undo()
            assert killed
            assert len(ray.nodes()) == 2
            assert sum(node["Alive"] for node in ray.nodes()) == 1
        finally:
            ray.shutdown()
            cluster.shutdown()
    assert runner is on_ray.runner
    assert ends == ["done"] * 3
    assert numbers(folder) == numbers(local)


def test_where_the_folder_is_not_shared_files_travel_back(local, tmp_path, monkeypatch):
    """A node without the results folder: the task works in a scratch folder."""
    from ecop.bench import on_ray

    plan = run.make_plan("exact", tmp_path / "new", **CELLS)
    job = plan.jobs[0]
    folder = tmp_path / "home"
    results.prepare(folder)
    import json

    text = json.dumps({**job._asdict(), "folder": "/nowhere/at/all", "plan": "x.json"})
    code, _, files = on_ray.run_task(text)
    assert code == 0

    class Store:
        class exceptions:
            RayError = RuntimeError

        @staticmethod
        def get(_):
            return code, "", files

    outcome = on_ray._collect(Store, None, folder)
    assert outcome.code == 0
    assert numbers(folder)[job.name] == numbers(local)[job.name]
    time.sleep(0)
