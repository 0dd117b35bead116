"""Cells as Ray tasks on a cluster of two nodes, one of them killed in the middle."""

import json
from types import SimpleNamespace

import pytest
from tiny import numbers

from ecop.bench import on_ray, results, run

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def planned(folder):
    results.prepare(folder)
    return run.make_plan("tiny", folder, seeds=3).jobs


def ends(events, folder):
    return [run.settle(event, folder) for event in events if event.kind == "end"]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray") / "local"
    assert ends(run.run_local(planned(folder), folder, 1), folder) == ["done"] * 3
    return folder


def test_a_node_dies_and_the_results_are_those_of_the_local_run(
    local, tmp_path, monkeypatch
):
    folder = tmp_path / "cluster"
    jobs = planned(folder)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    doomed = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    wait, killed = ray.wait, []

    def wait_and_kill(*args, **options):
        """Kill the second node as soon as both are training."""
        if not killed and len(list(folder.glob("runs/*/metrics.jsonl"))) >= 2:
            cluster.remove_node(doomed, allow_graceful=False)
            killed.append(doomed)
        return wait(*args, **options)

    monkeypatch.setattr(ray, "wait", wait_and_kill)
    try:
        cluster.wait_for_nodes()
        became = ends(on_ray.runner(cluster.address)(jobs, folder, 1), folder)
        assert killed
        assert sorted(node["Alive"] for node in ray.nodes()) == [False, True]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert became == ["done"] * 3
    assert numbers(folder) == numbers(local)
    assert not list(folder.glob("runs/*.token"))


def test_files_travel_back_from_a_node_without_the_folder(local, tmp_path):
    folder = tmp_path / "home"
    job = planned(folder)[0]
    place = {"folder": str(tmp_path / "elsewhere"), "token": "none"}
    answer = on_ray.run_task(json.dumps({**job._asdict(), **place}))
    assert answer[0] == 0
    errors = SimpleNamespace(RayError=RuntimeError)
    fake = SimpleNamespace(get=lambda _: answer, exceptions=errors)
    assert on_ray._collect(fake, None, folder, job).code == 0
    assert numbers(folder)[job.name] == numbers(local)[job.name]
    assert not (tmp_path / "elsewhere").exists()
