"""Tasks of a point robot in the plane, in pure JAX."""
