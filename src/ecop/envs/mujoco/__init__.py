"""Tasks of walking robots on MuJoCo's batched stepping."""
