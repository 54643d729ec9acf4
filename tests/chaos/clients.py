"""Those who start tasks, answer and cancel, and remember what was acknowledged."""

import asyncio
import itertools
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx2

from ekiden import StoreUnavailable
from tests.acceptance.driving import headers_for, request
from tests.chaos.fleet import Fleet
from tests.tasks.driving import WITH_TASKS, accept

__all__ = ["Clients", "Started"]

_TOOLS = ("short", "short", "long", "long", "sleeps", "asks", "expires")
_LOOK_SECONDS = 0.2
_REPLY_SECONDS = 4.0
_PAUSE_SECONDS = 0.1
_LOOK_AT_ONCE = 8
_NEWEST = 200
_CANCELLED_PART = 0.1


@dataclass
class Started:
    """A task that was acknowledged."""

    task_id: str
    tool: str
    call: str
    started: float
    answer: str | None = None
    """What was answered, once that was acknowledged."""
    is_cancelled: bool = False
    """Whether a cancellation may have reached it, acknowledged or not."""
    row: Any = None
    """The row as it was seen last."""

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, clean-up and all."""
        return self.row is not None and self.row.state in ("completed", "failed", "cancelled")


@dataclass
class Clients:
    """Keep so many tasks open, of all kinds; a poisoned one now and then."""

    fleet: Fleet
    store: Any
    chance: random.Random
    most_open: int
    poison_seconds: float
    most_poison: int
    started: dict[str, Started] = field(default_factory=dict)
    unanswered: int = 0
    """Calls that nobody replied to: the task may be there all the same."""
    found: int = 0
    """Tasks that were there although nobody replied."""
    is_feeding: bool = True
    _calls: Any = field(default_factory=lambda: itertools.count(1))
    _poisoned_at: float = field(default_factory=time.monotonic)

    def open(self) -> list[Started]:
        """The tasks that have not come to their end."""
        return [task for task in self.started.values() if not task.is_over]

    async def feed(self) -> None:
        """Start tasks as long as that is wanted."""
        async with httpx2.AsyncClient(timeout=_REPLY_SECONDS, trust_env=False) as client:
            while self.is_feeding:
                if len(self.open()) < self.most_open:
                    await self._start(client, self._next_tool())
                await asyncio.sleep(_PAUSE_SECONDS)

    def _next_tool(self) -> str:
        poisoned = sum(task.tool == "poison" for task in self.started.values())
        if time.monotonic() - self._poisoned_at < self.poison_seconds or poisoned >= self.most_poison:
            return self.chance.choice(_TOOLS)
        return "poison"

    async def _start(self, client: httpx2.AsyncClient, tool: str) -> None:
        call = f"call{next(self._calls)}"
        reply = await self._send(client, "tools/call", name=tool, arguments={"call": call})
        if reply is None or "taskId" not in reply:
            self.unanswered += 1
            return
        task_id = reply["taskId"]
        if tool == "poison":
            self._poisoned_at = time.monotonic()
        self.started[task_id] = Started(task_id, tool, call, time.monotonic())

    async def look(self) -> None:
        """Look at all open tasks, again and again; answer what they ask, and cancel some."""
        async with httpx2.AsyncClient(timeout=_REPLY_SECONDS, trust_env=False) as client:
            while True:
                room = asyncio.Semaphore(_LOOK_AT_ONCE)
                await self._find_unacknowledged()
                await asyncio.gather(*(self._look_at(client, task, room) for task in self.open()))
                await asyncio.sleep(_LOOK_SECONDS)

    async def _find_unacknowledged(self) -> None:
        """A task whose acknowledgement was lost is one like any other, and may ask, too."""
        try:
            newest = await self.store.tasks.listing(limit=_NEWEST)
        except StoreUnavailable:
            return
        for row in newest:
            if row.id not in self.started and time.time() - row.created > 2 * _REPLY_SECONDS:
                self.found += 1
                self.started[row.id] = Started(row.id, row.tool, row.arguments["call"], time.monotonic())

    async def _look_at(self, client: httpx2.AsyncClient, task: Started, room: asyncio.Semaphore) -> None:
        async with room:
            try:
                row = await self.store.tasks.load(task.task_id)
            except StoreUnavailable:
                return
            if row is None:
                return  # It is lost; the judge will see.
            task.row = row
            may_be_cancelled = task.tool in ("sleeps", "asks") and not row.final and not task.is_cancelled
            if may_be_cancelled and self.chance.random() < _CANCELLED_PART * _LOOK_SECONDS:
                task.is_cancelled = True
                await self._send(client, "tasks/cancel", taskId=task.task_id)
            elif questions := row.open_questions():
                (key,) = questions
                answer = f"answer to {task.call}"
                responses = {key: accept(answer)}
                if await self._send(client, "tasks/update", taskId=task.task_id, inputResponses=responses):
                    task.answer = answer

    async def _send(self, client: httpx2.AsyncClient, method: str, **params: Any) -> dict[str, Any] | None:
        """The result of a request; None if it was refused, or if nobody replied."""
        message = request(method, params, next(self._calls), WITH_TASKS)
        name = params.get("taskId") or params.get("name") or ""
        headers = {**headers_for(message), "mcp-name": name}
        url = self.chance.choice(self.fleet.urls)
        try:
            reply = await client.post(url, content=json.dumps(message).encode(), headers=headers)
            result: dict[str, Any] | None = reply.json().get("result")
        except (httpx2.TransportError, ValueError):
            return None
        return result
