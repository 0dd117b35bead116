"""Attacks: a sample of each with the other tests, all of them with `make attack`."""

from collections import Counter

import pytest
from strangers import TINY, result

import ecop
from ecop.bench import results
from ecop.bench.cells import identity, make_cell
from ecop.bench.suites import SUITES

TRIES: Counter[str] = Counter()  # by name of the test
FAILED: Counter[str] = Counter()


@pytest.fixture
def tries(request):
    """How many tries: few, or with --attack many; for the table at the end."""

    def count(few, many):
        chosen = many if request.config.option.attack else few
        TRIES[request.node.originalname] += chosen
        return chosen

    return count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.failed:
        FAILED[item.originalname] += 1
    return outcome


def pytest_terminal_summary(terminalreporter, config):
    if config.option.attack:
        rows = [("test", "tries", "failed")]
        rows += [(name, count, FAILED[name]) for name, count in TRIES.items()]
        rows.append(("all", TRIES.total(), FAILED.total()))
        for name, count, failed in rows:
            terminalreporter.write_line(f"{name:45} {count:>7} {failed:>7}")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run of two seeds with two checkpoints."""
    path = tmp_path_factory.mktemp("attack") / "run"
    ecop.train("PointCircle", "pdo", out=path, seeds=2, iterations=22, **TINY)
    return path


@pytest.fixture(scope="session")
def bench_folder(tmp_path_factory):
    """A results folder of one cell, one plan and one failure."""
    folder = tmp_path_factory.mktemp("attack") / "bench"
    results.prepare(folder)
    suite = SUITES["frontier"]()
    cells = [make_cell(suite.groups[0], suite, "default", seed) for seed in range(2)]
    done, failed = map(identity, cells)
    results.write(folder, "cells", done, result(done, cells[0]))
    record = {"id": failed, "cell": cells[1], "error": "It broke", "traceback": ""}
    results.write(folder, "failed", failed, record)
    group = {"section": "exact", "task": "Inventory", "algorithm": "ecop"}
    limits = cells[0]["train"]["limits"]
    group |= {"variant": "limit", "limits": limits, "setting": "s", "cells": [done]}
    results.write_plan(folder, {"suite": "frontier", "groups": [group]})
    return folder
