"""Strict numerics and quick compilation for every test; a share of the slow ones."""

import atexit
import os
import shutil
import tempfile
import zlib
from datetime import UTC, datetime

import jax
import pytest

from ecop.training import TrainConfig

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Tests compile much and compute little: without optimisation, fusion emitters and
# threads the compiler takes a ninth of its time (0.3 s for 2.7 s, e-COP's update). JAX
# reads this at its first use; processes that tests start inherit it.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)
# One folder of compiled programs for all processes of a run, and not the user's.
PROGRAMS = "JAX_COMPILATION_CACHE_DIR"
if PROGRAMS not in os.environ:
    os.environ[PROGRAMS] = tempfile.mkdtemp(prefix="ecop-tests-")
    atexit.register(shutil.rmtree, os.environ[PROGRAMS], ignore_errors=True)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

SHARES = 3  # of the slow tests; a day has one of them


def pytest_addoption(parser):
    parser.addoption(
        "--slow-share",
        choices=["all", "none", "today", *map(str, range(SHARES))],
        default="all",
        help=f"slow tests to run; today's share is one of {SHARES}",
    )
    parser.addoption(
        "--attack", action="store_true", help="all attacks, not a sample of each"
    )


def pytest_configure(config):
    # Settled once, so that all processes of a run over midnight have the same share.
    if config.option.slow_share == "today":
        config.option.slow_share = str(datetime.now(UTC).toordinal() % SHARES)


def pytest_collection_modifyitems(config, items):
    share = config.option.slow_share
    if share == "all":
        return

    def due(item):
        return str(zlib.crc32(item.nodeid.encode()) % SHARES) == share

    away = [x for x in items if x.get_closest_marker("slow") and not due(x)]
    config.hook.pytest_deselected(items=away)
    items[:] = [x for x in items if x not in away]


def pytest_terminal_summary(terminalreporter, config):
    ends = [
        x for kind in ("passed", "failed") for x in terminalreporter.getreports(kind)
    ]
    count = sum("slow" in end.keywords for end in ends)
    share = config.option.slow_share
    terminalreporter.write_line(f"slow tests, share {share}: {count} ran")


@pytest.fixture
def tiny_budget(monkeypatch):
    """Every training is over in seconds, whatever the command says."""
    most = {"seeds": 2, "iterations": 2, "episodes": 2, "critic_epochs": 1}
    check = TrainConfig.__post_init__

    def shrink(config):
        check(config)
        for name, value in most.items():
            given = getattr(config, name) or value  # 0 is automatic
            object.__setattr__(config, name, min(value, given))

    monkeypatch.setattr(TrainConfig, "__post_init__", shrink)
