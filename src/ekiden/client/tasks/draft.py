"""Handles for tasks of servers of the draft 2026-06-XX.

`tasks/get` says how a task is doing. If it waits for input, or has ended, `tasks/result` has its questions,
or its result, and `tasks/input_response` answers the questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ekiden.client.results import read_questions
from ekiden.client.sessions.session import ClientRequest
from ekiden.client.tasks.handle import TaskClient, TaskSnapshot, poll_seconds
from ekiden.client.tasks.legacy import HandshakeTaskHandle, read_legacy_snapshot
from ekiden.errors import ServerError
from ekiden.wire.json import JsonObject
from ekiden.wire.tasks import DRAFT_METHOD, RELATED

__all__ = ["DraftTaskHandle"]

_QUESTIONS_SECONDS: Final = 5.0
"""How long `tasks/result` may take for a task that waits for input. If another client has answered it
meanwhile, the request would wait for the end of the task."""


class DraftTaskHandle(HandshakeTaskHandle):
    """One task of a server of the draft."""

    def __init__(self, client: TaskClient, task_id: str, tool: str | None = None) -> None:
        super().__init__(client, task_id, tool)
        self._state: str | None = None
        """The `requestState` that came with the questions, and goes back with the answers."""

    async def status(self) -> TaskSnapshot:
        """The task as it is now, with its questions or its result."""
        snapshot = read_legacy_snapshot(await self._send("tasks/get"))
        if snapshot.status not in ("working", "cancelled"):
            await self._complete(snapshot)
        self._asked = snapshot.input_requests
        return snapshot

    async def _complete(self, snapshot: TaskSnapshot) -> None:
        """Add what only `tasks/result` tells."""
        try:
            async with asyncio.timeout(None if snapshot.ended else _QUESTIONS_SECONDS):
                result = await self._send("tasks/result")
        except TimeoutError:
            snapshot.status = "working"
        except ServerError as error:
            if snapshot.status != "failed":
                raise
            snapshot.error = {"code": error.code, "message": str(error), "data": error.data}
        else:
            if result.get("resultType") == "input_required":
                most = self._client.limits.state_bytes
                snapshot.input_requests, self._state = read_questions(result, most, "task")
                return
            snapshot.result = result
            if not snapshot.ended:  # It has ended between the two requests.
                snapshot.status = "failed" if result.get("isError") else "completed"

    async def _send_answers(self, responses: Mapping[str, Any]) -> None:
        self._answered.update(responses)
        params: JsonObject = {"inputResponses": dict(responses), "_meta": {RELATED: {"taskId": self.id}}}
        if self._state is not None:
            params["requestState"] = self._state
        await self._client.request(ClientRequest(DRAFT_METHOD, params, self.id))

    def _watch(self) -> _Clock:
        return _Clock()


class _Clock:
    """Waits until it is time for `tasks/get`: the draft has no subscriptions."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    async def next(self, snapshot: TaskSnapshot) -> None:
        await asyncio.sleep(poll_seconds(snapshot))
