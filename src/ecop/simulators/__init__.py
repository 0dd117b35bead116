"""Simulators in other processes: whole episodes, faults mended once, no orphans."""
