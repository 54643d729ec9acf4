"""The official conformance suite: our fixtures for it, and the way to run it."""
