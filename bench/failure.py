"""The one way in which the benchmark refuses to give figures."""


class BenchFailure(Exception):
    """Something is missing or answered wrongly, so a figure would mean nothing; the text says what."""
