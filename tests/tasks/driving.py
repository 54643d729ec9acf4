"""A client that looks after tasks, and the servers whose tasks they are."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ekiden import Server, TaskLimits
from ekiden.tasks.states import State
from ekiden.testing import Round
from tests.acceptance.driving import EVERYTHING, KEY, Client
from tests.simulation.virtual_time import clock

EXTENSION = "io.modelcontextprotocol/tasks"
WITH_TASKS: dict[str, Any] = {**EVERYTHING, "extensions": {EXTENSION: {}}}
REQUIRED = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}

PATIENCE = 30.0

QUICK = TaskLimits(lease_seconds=0.6, sweep_seconds=0.1, message_seconds=0.05, poll_seconds=0.01)
"""Everything that is waited for comes soon."""


def new_server(store: Any, name: str = "tasks", **options: Any) -> Server:
    """A server whose replicas share its key and its store."""
    return Server(name, **{"keys": [KEY], "store": store, "tasks": QUICK, "clock": clock, **options})


async def comes_to(store: Any, task_id: str, state: State) -> None:
    """Wait until the row of a task is in this state."""
    async with asyncio.timeout(PATIENCE):
        while (await store.tasks.load(task_id)).state != state:
            await asyncio.sleep(0.005)


class TaskClient(Client):
    """A client that declares tasks and drives them step by step."""

    def __init__(self, server: Any, answers: Any = None, **options: Any) -> None:
        super().__init__(server, answers, **{"capabilities": WITH_TASKS, **options})

    async def start(self, name: str = "tool", arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Call a tool that must become a task; its id."""
        result = (await self.ask(name, arguments, **more)).result
        assert result["resultType"] == "task", result
        return str(result["taskId"])

    async def get(self, task_id: str) -> dict[str, Any]:
        """The task as it is."""
        return (await self.round("tasks/get", {"taskId": task_id})).result

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> dict[str, Any]:
        """Answer questions of a task."""
        return (
            await self.round("tasks/update", {"taskId": task_id, "inputResponses": dict(responses)})
        ).result

    async def cancel(self, task_id: str) -> Round:
        """Cancel a task."""
        return await self.round("tasks/cancel", {"taskId": task_id})

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """The task when it has one of the statuses."""
        async with asyncio.timeout(PATIENCE):
            while (task := await self.get(task_id))["status"] not in statuses:
                assert task["status"] in ("working", "input_required"), task
                await asyncio.sleep(0.005)
        return task

    async def asked(self, task_id: str) -> dict[str, dict[str, Any]]:
        """The questions of a task, when it has some."""
        requests: dict[str, dict[str, Any]] = (await self.until(task_id, "input_required"))["inputRequests"]
        assert requests
        return requests

    async def asks(self, task_id: str, *keys: str) -> dict[str, dict[str, Any]]:
        """The questions of a task, once they are those with these keys and no others."""
        async with asyncio.timeout(10):
            while set(requests := (await self.get(task_id)).get("inputRequests", {})) != set(keys):
                await asyncio.sleep(0.005)
        return requests

    async def text(self, task_id: str) -> str:
        """The text that a task completes with."""
        task = await self.until(task_id, "completed")
        assert not task["result"].get("isError"), task
        (block,) = task["result"]["content"]
        return str(block["text"])


def accept(value: Any) -> dict[str, Any]:
    """An answer to a question for one value."""
    return {"action": "accept", "content": {"value": value}}


def key_of(requests: Mapping[str, Mapping[str, Any]], message: str) -> str:
    """The key of the question that says `message`."""
    (key,) = [key for key, request in requests.items() if request["params"]["message"] == message]
    return key
