"""What a client can be pointed at: a URL, a command, a file, or a server in this process."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard
from urllib.parse import urlsplit

import msgspec

from ekiden.errors import UsageError
from ekiden.transports.client.arriving import Arriving
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.http import HttpClient
from ekiden.transports.client.http_port import HttpPort
from ekiden.transports.client.http_sse import HttpSseLink
from ekiden.transports.client.link import Link
from ekiden.transports.client.over_httpx import HttpxClient
from ekiden.transports.client.process import ProcessLink
from ekiden.transports.client.streamable import StreamableLink
from ekiden.transports.server.memory import MemoryChannel
from ekiden.transports.server.memory import connect as connect_memory
from ekiden.transports.server.port import Endpoint
from ekiden.wire.jsonrpc import MOST_VALUES

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "ClientLimits",
    "LinkOptions",
    "Target",
    "connect",
    "connect_sse",
    "is_command",
    "is_in_process",
    "is_url",
    "origin_of",
]


class HasEndpoint(Protocol):
    """A server object: anything with an `endpoint`."""

    @property
    def endpoint(self) -> Endpoint:
        """The server as transports see it."""
        ...


Target: TypeAlias = str | Path | Sequence[str] | HasEndpoint


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client accepts from a server; beyond a limit the call fails."""

    message_bytes: int = 32 * 1024 * 1024
    """The size of one message, be it a body, an event or a line. Images are part of it, as base64."""
    stream_bytes: int = 256 * 1024 * 1024
    """The size of one request's whole stream: progress, log, keep-alive comments and response.
    Subscriptions are not limited."""
    arriving_bytes: int = 1024 * 1024 * 1024
    """The size of all messages of one server, over HTTP, that have come in part: it may keep any number of
    calls waiting for the rest. Those of less than 64 KiB are not counted."""
    values: int = MOST_VALUES
    """Values in one message: numbers, texts, lists, objects, counted as in `HttpLimits.values`. A list may
    have four times as many, over all its pages. Messages of more than 4 KiB that come together, from any
    servers, are decoded a few at a time. Those that are passed on, as by a gateway, count until then: 256 MiB
    of memory in one process, each value as 128 bytes, and a quarter more for servers that hold almost none.
    One more waits for up to 30 seconds, then its call fails."""
    state_bytes: int = 4 * 1024 * 1024
    """The size of `requestState`, which is sent back in every round. Ekiden's servers stay below 64 KiB."""
    task_questions: int = 1000
    """The number of questions that one task may ask, over all its rounds; more raise `TooManyRounds`."""
    pages: int = 1000
    """The number of pages of one list."""
    list_items: int = 100_000
    """The number of items of one list, over all its pages."""
    list_bytes: int = 64 * 1024 * 1024
    """The size of one list, over all its pages."""
    stuck_seconds: float = 60.0
    """How long a task may repeat an answered question, or exceed its `ttl`, before it counts as stuck."""


class MemoryLink(ChannelLink):
    """A link to a server in this process."""

    def __init__(self, channel: MemoryChannel, end: AsyncExitStack, most_values: int) -> None:
        super().__init__(channel.send, most_values=most_values)
        self._channel = channel
        self._end = end
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            await self.hear(await self._channel.receive_bytes())

    async def close(self, *, hurry: bool = False) -> None:
        """Disconnect; the server stops with its last client."""
        await super().close(hurry=hurry)
        self._reading.cancel()
        await self._end.aclose()


class LinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a target; what a kind of target does not have is not looked at."""

    limits: ClientLimits
    auth: httpx2.Auth | None = None
    http_client: httpx2.AsyncClient | None = None
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Sent with every HTTP request, unless there is an `auth` or an `http_client`."""
    arriving: Arriving | None = None
    """Counts what comes in part, together with what comes over other links to the same server."""


async def connect(target: Target, options: LinkOptions) -> Link:
    """A link to the target."""
    limit, values = options.limits.message_bytes, options.limits.values
    if is_in_process(target):
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(connect_memory(target.endpoint))
            return MemoryLink(channel, stack.pop_all(), values)
    if is_url(target):
        arriving = options.arriving or Arriving(options.limits.arriving_bytes)
        http = _http(target, options, arriving)
        most = {"message_limit": limit, "stream_limit": options.limits.stream_bytes}
        return StreamableLink(http, **most, arriving=arriving, most_values=values)
    return await ProcessLink.start(
        command_for(target), env=options.env, cwd=options.cwd, limit=limit, most_values=values
    )


async def connect_sse(target: str, options: LinkOptions) -> Link | None:
    """A link over HTTP+SSE, the transport of 2024-11-05; None if the server does not offer that."""
    limits = options.limits
    return await HttpSseLink.open(
        target, lambda url: _http(url, options), limits.message_bytes, limits.values
    )


def _http(url: str, options: LinkOptions, arriving: Arriving | None = None) -> HttpPort:
    limit = options.limits.message_bytes
    if options.auth is not None or options.http_client is not None:
        client = options.http_client
        return HttpxClient(url, limit=limit, auth=options.auth, client=client, arriving=arriving)
    return HttpClient(url, limit=limit, headers=options.headers, arriving=arriving)


def is_in_process(target: object) -> TypeGuard[HasEndpoint]:
    """Whether a target is a server in this process."""
    return getattr(target, "endpoint", None) is not None


def is_command(target: object) -> bool:
    """Whether a target is a server that the client starts."""
    return not is_url(target) and not is_in_process(target)


def is_url(target: object) -> TypeGuard[str]:
    """Whether a target is reached over HTTP."""
    return isinstance(target, str) and target.startswith(("http://", "https://"))


def command_for(target: Target) -> list[str]:
    """The command that starts a server on stdio."""
    if isinstance(target, Path):
        return [sys.executable, str(target)]
    command: list[str] = []
    if isinstance(target, str):
        command = shlex.split(target)
    elif isinstance(target, Sequence):
        command = [str(part) for part in target]
    if not command:
        raise UsageError("a client needs a URL, a command, a file or a server")
    return command


def origin_of(target: object) -> str | None:
    """The address by which an era is remembered; with its path, as one host may have several servers."""
    if not is_url(target):
        return None
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
