"""Constrained reinforcement learning with a finite horizon."""

__version__ = "0.1.0"
