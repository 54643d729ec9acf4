"""Clients of both eras: they call, answer, follow tasks, check all answers, and try to see those of others.

What a client does when its connection breaks is what the documentation says: a client of 2026 repeats the
round, a client of 2025 begins the call anew, under another name.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult

from ekiden import (
    CallLost,
    Client,
    EkidenError,
    PendingCall,
    ServerError,
    TaskHandle,
    TransportError,
)
from ekiden.errors import HttpRefused

__all__ = ["Findings", "Soaker"]

T = TypeVar("T")

THINK_SECONDS = 4.0
"""How long a client waits between two calls, on average."""
CALL_SECONDS = 120.0
"""How long one call may take, with everything that goes wrong meanwhile."""
CONNECT_SECONDS = 30.0
COMING_SECONDS = 10.0
"""How long it takes until all clients have come."""
PAUSE_SECONDS = 0.1
SNOOPS = 0.05
"""The part of calls after which a client tries to see something of another."""
KEPT = 50
"""Tokens and tasks of others that can be tried."""


@dataclass
class Findings:
    """What all clients have seen."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls that came to their end, by kind."""
    seconds: list[tuple[float, float]] = field(default_factory=list)
    """When each request ended, and how long it took."""
    lost: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    reconnected: int = 0
    """How often a client had to connect again, and went on."""
    begun_anew: int = 0
    """Calls of clients of 2025 whose connection broke."""
    repeated: int = 0
    """Rounds that were repeated."""
    snooped: int = 0
    """Attempts to see something of another."""
    finished: set[str] = field(default_factory=set)
    """Calls whose result came."""
    with_steps: set[str] = field(default_factory=set)
    """Those of them that must have run steps."""
    tokens: list[tuple[str, PendingCall]] = field(default_factory=list)
    tasks: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Soaker:
    """One client. `is_disturbed` says whether something was done to the server not long ago."""

    name: str
    url: str
    is_old: bool
    findings: Findings
    chance: random.Random
    is_disturbed: Callable[[], bool]
    _numbers: Any = field(default_factory=itertools.count)

    async def soak(self, stop: asyncio.Event) -> None:
        """Call until it is over. A client whose connection fails connects again, as a user would."""
        await asyncio.sleep(self.chance.uniform(0, COMING_SECONDS))
        while not stop.is_set():
            try:
                await self._connected(stop)
            except EkidenError as error:
                if _is_gone(error) or not (isinstance(error, TransportError) or _is_passing(error)):
                    self.findings.lost.append(f"{self.name} was thrown out: {error!r}")
                self.findings.reconnected += 1
                await asyncio.sleep(PAUSE_SECONDS)

    async def _connected(self, stop: asyncio.Event) -> None:
        # Without certificates, which nobody needs here, and which take long to load for each client.
        # Nor with a limit of httpx's own for a silent server: how long a call may take is said below.
        patience = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        options: dict[str, Any] = {"verify": False, "trust_env": False, "timeout": patience}
        async with httpx2.AsyncClient(headers={"x-user": self.name}, **options) as http:
            mode: Any = "legacy" if self.is_old else "modern"
            async with Client(
                self.url, elicit=_answer, http_client=http, mode=mode, timeout=CALL_SECONDS
            ) as client:
                while not stop.is_set():
                    await self._call(client)
                    await asyncio.sleep(self.chance.uniform(0, 2 * THINK_SECONDS))

    async def _call(self, client: Client) -> None:
        tool = self.chance.choices(["echo", "ask", "work"], [5, 3, 2])[0]
        call = f"{self.name}-{next(self._numbers)}"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                found = await (self._old if self.is_old else self._modern)(client, tool, call)
        except TimeoutError:
            self.findings.lost.append(f"{tool} {call} did not end within {CALL_SECONDS:g} s")
            return
        except EkidenError as error:
            self.findings.lost.append(f"{tool} {call}: {error!r}")
            return
        if found is not None:
            self._check(tool, call, found)
            self.findings.calls[f"{tool} of {2025 if self.is_old else 2026}"] += 1
            self.findings.finished.add(call)
            if tool != "echo":
                self.findings.with_steps.add(call)
        if not self.is_old and self.chance.random() < SNOOPS:
            await self._snoop(client)

    def _check(self, tool: str, call: str, found: dict[str, Any]) -> None:
        wanted: dict[str, Any] = {"who": self.name, "call": call}
        if tool != "echo":
            wanted["answers"] = [f"{call}/1", f"{call}/2"]
            wanted["steps"] = [f"{call}:{tool}1", f"{call}:{tool}2"]
        if found != wanted:
            self.findings.foreign.append(f"{tool} {call} returned {found}")

    # A client of 2026: every round can be repeated, by whoever has the token

    async def _modern(self, client: Client, tool: str, call: str) -> dict[str, Any]:
        arguments = {"who": self.name, "call": call}
        ended = await self._insist(lambda: client.start_tool(tool, arguments))
        while isinstance(ended, PendingCall):
            pending = ended
            self.findings.tokens = [*self.findings.tokens[-KEPT:], (self.name, pending)]
            ended = await self._insist(lambda: client.resume(pending))  # noqa: B023  awaited in this round
        if isinstance(ended, TaskHandle):
            handle = ended
            self.findings.tasks = [*self.findings.tasks[-KEPT:], (self.name, handle.to_json())]
            ended = await self._insist(handle.wait)
        return _content(ended)

    async def _insist(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send until there is an answer. What may be tried again is: no connection, no store, no room."""
        while True:
            began = time.monotonic()
            try:
                found = await send()
            except CallLost:
                raise
            except (TransportError, ServerError) as error:
                if not (isinstance(error, TransportError) or _is_passing(error)):
                    raise
                self.findings.repeated += 1
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.findings.seconds.append((time.monotonic(), time.monotonic() - began))
                return found

    # A client of 2025: a call belongs to its connection, and to one process

    async def _old(self, client: Client, tool: str, call: str) -> dict[str, Any] | None:
        began = time.monotonic()
        try:
            ended = await client.call_tool(tool, {"who": self.name, "call": call})
        except (TransportError, ServerError) as error:
            if _is_gone(error):
                raise  # A session is in the store, and must not get lost.
            if not (self.is_disturbed() or _is_passing(error)):
                raise
            self.findings.begun_anew += 1
            return None
        if ended.is_error and self.is_disturbed():
            self.findings.begun_anew += 1
            return None
        self.findings.seconds.append((time.monotonic(), time.monotonic() - began))
        return _content(ended)

    # What belongs to others

    async def _snoop(self, client: Client) -> None:
        """Try to go on with somebody else's call, and to look at somebody else's task."""
        self.findings.snooped += 1
        for whose, pending in self.chance.sample(self.findings.tokens, min(1, len(self.findings.tokens))):
            if whose != self.name:
                await self._refused(client.resume(pending), f"a call of {whose}")
        for whose, task in self.chance.sample(self.findings.tasks, min(1, len(self.findings.tasks))):
            if whose != self.name:
                await self._refused(client.task(task).status(), f"a task of {whose}")

    async def _refused(self, look: Awaitable[Any], what: str) -> None:
        try:
            found = await look
        except EkidenError:
            return
        self.findings.foreign.append(f"{self.name} could use {what}: {found!r}")


async def _answer(params: ElicitRequestFormParams) -> ElicitResult:
    call, _, number = params.message.partition(" asks ")
    return ElicitResult(action="accept", content={"value": f"{call}/{number}"})


def _is_gone(error: EkidenError) -> bool:
    """Whether the server does not know the session any more."""
    return isinstance(error, HttpRefused) and error.status == 404


_PASSING = ("try again later", "repeat it", "store is not available", "send the request again")


def _is_passing(error: EkidenError) -> bool:
    """Whether a server has said that it may work later: its store is away, or a worker was lost."""
    return isinstance(error, ServerError) and any(words in str(error) for words in _PASSING)


def _content(ended: CallToolResult) -> dict[str, Any]:
    if ended.is_error or ended.structured_content is None:
        raise TransportError(f"the tool failed: {ended.content}")
    return ended.structured_content
