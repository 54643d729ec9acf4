"""Tasks among real processes that are killed, frozen and cut off: what may never happen must not."""
