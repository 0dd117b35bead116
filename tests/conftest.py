"""Strict numerics for every test: no silent promotion of types or ranks."""

import jax
import pytest

from ecop.training import TrainConfig

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory, monkeypatch):
    """Compiled programs of the tests stay out of the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


@pytest.fixture
def tiny_budget(monkeypatch):
    """Every training is over in seconds, whatever the command says."""
    most = {"seeds": 2, "iterations": 2, "episodes": 2, "critic_steps": 2}
    check = TrainConfig.__post_init__

    def shrink(config):
        check(config)
        for name, value in most.items():
            object.__setattr__(config, name, min(value, getattr(config, name)))

    monkeypatch.setattr(TrainConfig, "__post_init__", shrink)
