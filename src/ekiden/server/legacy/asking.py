"""Questions to one client of 2025.

A client of 2025-11-25 may declare that a question can be a task of its own (`tasks.requests`). Then it says
at once that it has taken the question, and its answer is fetched later: it survives a connection that is
lost meanwhile, and a person may take time.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ekiden.errors import CannotAsk
from ekiden.rounds.asks import ELICIT, SAMPLE, declares
from ekiden.server.legacy.requests import ClientRequests
from ekiden.signals import Unsayable
from ekiden.transports.server.legacy.port import Line
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.legacy import Legacy

__all__ = ["Asking"]

_AS_TASK: Final[dict[str, JsonObject]] = {
    ELICIT: {"tasks": {"requests": {"elicitation": {"create": {}}}}},
    SAMPLE: {"tasks": {"requests": {"sampling": {"createMessage": {}}}}},
}
"""What a client declares that can answer a question as a task."""
_CANCELS: Final[JsonObject] = {"tasks": {"cancel": {}}}
_OPEN: Final = ("working", "input_required")
_HANDSHAKE_SECONDS: Final = 10.0
"""How long a question waits for the client to say that it is initialized."""
_POLL_SECONDS: Final = 1.0
"""How often a task of a client is looked at that names no interval of its own."""
_SHORTEST_POLL: Final = 0.05
_LONGEST_POLL: Final = 30.0


class Asking:
    """Asks the client of a session, and waits for its answers."""

    def __init__(
        self, requests: ClientRequests, dialect: Legacy, capabilities: Mapping[str, Any], seconds: float
    ) -> None:
        self.client_is_ready = asyncio.Event()
        """Set when the client has said that it is initialized."""
        self._requests = requests
        self._dialect = dialect
        self._capabilities = capabilities
        self._seconds = seconds

    async def ask(
        self, line: Line, method: str, params: Mapping[str, Any] | None, elicitation_id: str, *, kept: bool
    ) -> Any:
        """The client's answer. Raises `CannotAsk` if there is none in time."""
        await self._can_ask(line, kept)
        try:
            spelled = self._dialect.question(method, params, elicitation_id)
        except Unsayable as problem:
            version = self._dialect.version
            raise CannotAsk(f"This cannot be asked of a client of {version}: {problem}") from None
        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(line, method, spelled)
        except TimeoutError:
            raise CannotAsk(f"The client did not answer {method} within {self._seconds:g} seconds") from None

    async def _can_ask(self, line: Line, kept: bool) -> None:
        if not kept:
            version = self._dialect.version
            raise CannotAsk(
                "This needs an answer from the client, but this server keeps no sessions for clients of "
                f"{version}: use a client of {versions.MODERN}, or have the server keep sessions"
            )
        if not line.can_stream:
            raise CannotAsk("This needs an answer from the client: send `Accept: text/event-stream`")
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await self.client_is_ready.wait()
        except TimeoutError:
            raise CannotAsk(
                "The client cannot be asked before it has sent notifications/initialized"
            ) from None

    async def _answer(self, line: Line, method: str, params: JsonObject) -> Any:
        """Ask, as a task of the client if it can have one."""
        needed = _AS_TASK.get(method) if self._dialect.version == versions.LEGACY[0] else None
        if needed is None or not declares(self._capabilities, needed):
            return await self._request(line, method, params)
        wanted = {**params, "task": {"ttl": int(self._seconds * 1000)}}
        answer = await self._request(line, method, wanted)
        if is_object(answer) and is_object(task := answer.get("task")):
            return await self._follow(line, method, task)
        return answer

    async def _request(self, line: Line, method: str, params: JsonObject) -> Any:
        return await self._requests.send(line, method, params, self._seconds)

    # A task of the client

    async def _follow(self, line: Line, method: str, task: JsonObject) -> Any:
        """The result of a task of the client, which is looked at until it has ended."""
        task_id = task.get("taskId")
        if type(task_id) is not str:
            raise CannotAsk(f"The client answered {method} with a task that has no taskId")
        try:
            while task.get("status") in _OPEN:
                if task["status"] == "input_required":
                    break  # `tasks/result` waits for the end, and lets the client ask meanwhile.
                await asyncio.sleep(_pause(task.get("pollInterval")))
                task = await self._look(line, task_id)
            if task.get("status") == "cancelled":
                raise CannotAsk(f"The client cancelled {method}")
            return await self._request(line, "tasks/result", {"taskId": task_id})
        except asyncio.CancelledError:
            if declares(self._capabilities, _CANCELS):
                self._requests.send_later(line, "tasks/cancel", {"taskId": task_id})
            raise

    async def _look(self, line: Line, task_id: str) -> JsonObject:
        task = await self._request(line, "tasks/get", {"taskId": task_id})
        if not is_object(task):
            raise CannotAsk("The client's answer to tasks/get is not a task")
        return task


def _pause(wished: object) -> float:
    """How long to wait before a task is looked at again."""
    seconds = wished / 1000 if isinstance(wished, int | float) else _POLL_SECONDS
    return min(_LONGEST_POLL, max(_SHORTEST_POLL, seconds))
