"""A connection to Postgres: how it is set up, how long it may take, and what its errors mean.

Nothing waits for ever: the server ends a statement, a wait for a lock and an idle transaction by itself, and
where nothing comes back at all, as from a host that is lost, the socket is cut. Whatever goes wrong is
`StoreUnavailable`, and may be tried again, except what the database will never take: that is `StoreRefused`.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Generator
from typing import Any, Final

import psycopg

from ekiden.errors import StoreRefused, StoreUnavailable

__all__ = ["away", "connect", "cut_after", "prepare_session"]

_STATEMENT_PART: Final = 0.8
"""The part of the time that a caller waits after which the server ends a statement by itself."""

_REFUSED: Final = (
    psycopg.DataError,  # A value that no column takes: a NUL in a text, a number out of range.
    psycopg.errors.ProgramLimitExceeded,  # A value that is too large for the database or for an index.
    UnicodeError,
)
"""What would fail again, however often it is tried."""


def _settings(seconds: float) -> str:
    limit = max(1, round(seconds * _STATEMENT_PART * 1000))
    return (
        f"SET statement_timeout = {limit}; SET lock_timeout = {limit};"
        f" SET idle_in_transaction_session_timeout = {limit};"
        # Every statement looks rows up by an index; a plan that was made for an empty table is kept for long.
        " SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off"
    )


async def prepare_session(connection: psycopg.AsyncConnection[Any], seconds: float) -> None:
    """Limit what a connection may take. A statement is a transaction of its own, unless one was begun."""
    await connection.set_autocommit(True)
    with cut_after(connection, seconds):
        await connection.execute(_settings(seconds).encode())


async def connect(url: str, seconds: float) -> psycopg.AsyncConnection[Any]:
    """A new connection, within so many seconds; `TimeoutError` is an `OSError`: the database is away."""
    async with asyncio.timeout(seconds):
        connection = await psycopg.AsyncConnection[Any].connect(url, autocommit=True)
    try:
        await prepare_session(connection, seconds)  # Its time is limited, too, and not by a cancellation.
    except BaseException:
        await connection.close()
        raise
    return connection


@contextlib.contextmanager
def cut_after(connection: psycopg.AsyncConnection[Any], seconds: float) -> Generator[None, None, None]:
    """Cut the connection's socket if the block takes longer. A cancellation would wait for the other side."""
    timer = asyncio.get_running_loop().call_later(seconds, _cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: psycopg.AsyncConnection[Any]) -> None:
    if not connection.closed:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as other:
            other.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def away() -> Generator[None, None, None]:
    """Say of what goes wrong with the database that it is away, unless it would go wrong again."""
    try:
        yield
    except _REFUSED as error:
        raise StoreRefused(f"the database cannot keep this: {error}") from error
    except (psycopg.Error, OSError) as error:
        why = str(error) or type(error).__name__
        raise StoreUnavailable(f"the database cannot be reached: {why}") from error
