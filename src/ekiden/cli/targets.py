"""Clients for the TARGET of a command: a URL, a Python file, or a command that serves stdio."""

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from ekiden.cli.arguments import named_headers, variables
from ekiden.cli.keys import provide_key
from ekiden.cli.loading import load_server, split_spec
from ekiden.cli.terminal.screen import say, show_log
from ekiden.errors import EkidenError, UsageError

if TYPE_CHECKING:
    import httpx2

    from ekiden.cli.terminal.asking import Responder
    from ekiden.client.client import Client
    from ekiden.server.server import Server

__all__ = ["TargetOptions", "http_client", "open_client"]

_PATIENT_SECONDS: Final = 3.0
"""How long a server may take to answer before the user is told what is waited for."""


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which server to talk to, and how."""

    target: str
    headers: Sequence[str] = ()
    env: Sequence[str] = ()
    """`NAME=VALUE`, or `NAME` alone for the value that it has here."""
    era: str = "auto"
    timeout: float | None = None
    """Seconds for everything after the server's file was loaded."""
    fate: str = "the request was cancelled"
    """What the user is told of it after a timeout or an interrupt."""
    keeps_tasks: bool = False
    """Whether tasks must outlive this process."""


@asynccontextmanager
async def open_client(
    connection: TargetOptions, responder: "Responder | None" = None, **options: Any
) -> "AsyncGenerator[Client]":
    """A client of the target. A server in a file runs in this process, and prints to stderr."""
    from ekiden.client.client import Client

    show_log()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        target = _resolve(connection.target)
        stack.enter_context(_timeout_told(connection))
        await stack.enter_async_context(asyncio.timeout(connection.timeout))
        if not isinstance(target, str | Path | list):
            if connection.keeps_tasks and not target.shares_tasks:
                raise UsageError(
                    f"{connection.target} runs in this process, and its tasks would end with it: set "
                    "EKIDEN_STORE, or call a server that is running"
                )
            await stack.enter_async_context(target.running())
        if responder is not None:
            options |= {
                "elicit": responder.elicit,
                "elicit_url": responder.elicit,
                "sample": responder.sample,
                "roots": responder.roots,
            }
        if connection.headers:
            options["http_client"] = await stack.enter_async_context(
                http_client(named_headers(connection.headers))
            )
        client = Client(
            target,
            mode=cast("Literal['auto', 'modern', 'legacy']", connection.era),
            name="ekiden-cli",
            env=variables(connection.env),
            **options,
        )
        with _wait_told(connection.target):
            await stack.enter_async_context(client)
        yield client


@contextmanager
def _wait_told(target: str) -> Generator[None]:
    """Say what is waited for, if it takes long."""
    waiting = f"waiting for {target} to answer"
    if not _is_url(target):
        waiting += "; what is started for the first time may have to be downloaded"
    timer = asyncio.get_running_loop().call_later(_PATIENT_SECONDS, say, waiting)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _timeout_told(connection: TargetOptions) -> Generator[None]:
    try:
        yield
    except TimeoutError:
        if (seconds := connection.timeout) is None:
            raise
        raise EkidenError(f"there was no result within {seconds:g} seconds; {connection.fate}") from None


def _is_url(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def _resolve(target: str) -> "str | Path | list[str] | Server":
    if _is_url(target):
        return target
    path, name = split_spec(target)
    if path.suffix == ".py" and (path.is_file() or len(shlex.split(target)) == 1):
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        # A file of another SDK is run as a program: importing it could start to serve our own stdin.
        if name is None and "ekiden" not in path.read_text(errors="replace"):
            return path
        provide_key()
        return load_server(target)
    try:
        return shlex.split(target)
    except ValueError as error:
        raise UsageError(f"the command {target!r} cannot be read: {error}") from None


def http_client(headers: Mapping[str, str]) -> "httpx2.AsyncClient":
    """An HTTP client that sends these headers with every request."""
    import httpx2

    # A tool may take long: only --timeout limits it.
    return httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30.0, read=None))
