"""Tasks of traffic on SUMO, one simulation per process."""
