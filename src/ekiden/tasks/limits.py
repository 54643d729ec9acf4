"""How long tasks live and how they are run."""

import msgspec

__all__ = ["TaskLimits"]


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long tasks live and how they are run."""

    ttl_seconds: float | None = 86_400.0
    """How long a task is kept from its creation on, unless its handler says otherwise; None is for ever."""
    keep_seconds: float = 3600.0
    """How long what is left of it can still be seen after that."""
    poll_seconds: float = 1.0
    """How often a client should look, unless the handler says otherwise. Looking is cheap here."""
    lease_seconds: float = 15.0
    """After this long without a sign of life, another worker takes a task over."""
    concurrency: int = 50
    """Tasks that one process runs at once. What waits for an answer or a timer runs nowhere."""
    attempts: int = 5
    """Workers that a task may lose in a row without any progress before it is given up. Once it has lost two,
    a worker runs no other such task beside it."""
    message_seconds: float = 1.0
    """Progress is written to the store at most this often."""
    sweep_seconds: float = 5.0
    """How often a worker looks by itself, in case a signal was lost."""
    per_principal: int | None = 1000
    """Tasks of one principal that have not ended; a further one is refused. None: any number."""
    bytes_per_principal: int | None = 64 * 1024 * 1024
    """Bytes of the rows of one principal's tasks: arguments, questions, results. Those of tasks that have
    ended count until they are forgotten; steps do not count. None: any number."""
    without_principal: int | None = 100_000
    """The same as `per_principal` for all clients together, if the server does not tell them apart. A quarter
    more is there for addresses that began few tasks in the last hour."""
    bytes_without_principal: int | None = 4 * 1024 * 1024 * 1024
    """The same as `bytes_per_principal` for all clients together, if the server does not tell them apart."""
    grace_seconds: float = 10.0
    """How long running steps may take to end when the process stops. Those that take longer are run again by
    another worker, when the lease has run out."""
