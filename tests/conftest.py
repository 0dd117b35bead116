"""Strict numerics for every test: no silent promotion of types or ranks."""

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory, monkeypatch):
    """Compiled programs of the tests stay out of the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
