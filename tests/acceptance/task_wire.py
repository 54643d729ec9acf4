"""Tasks as their bytes on the wire: replicas over HTTP on one store, spoken to in JSON."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from ekiden import Request, Server, TaskLimits
from tests.acceptance.driving import EVERYTHING, KEY, PATIENCE, VERSION, told
from tests.serving import served

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {**EVERYTHING, "extensions": {EXTENSION: {}}}
MISSING = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}

QUICK = TaskLimits(lease_seconds=2, poll_seconds=0.05, sweep_seconds=0.05, message_seconds=0.01)
"""HttpLimits under which nobody has to wait long."""

TERMINAL = {"completed", "failed", "cancelled"}

Message = dict[str, Any]


def whoever_says_so(request: Request) -> str | None:
    """A principal for tests: the client's own word."""
    return (request.meta.client_info or {}).get("name")


class Wire:
    """A client that takes nothing for granted: each message is sent and read as it is."""

    def __init__(self, base: str, http: httpx2.AsyncClient, who: str = "ada") -> None:
        self.base = base
        self._http = http
        self._who = who
        self._ids = 0

    def of(self, who: str) -> "Wire":
        """The same replica for somebody else."""
        return Wire(self.base, self._http, who)

    def message(
        self, method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] = DECLARED
    ) -> Message:
        self._ids += 1
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": self._who, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": dict(capabilities),
            **params.get("_meta", {}),
        }
        return {
            "jsonrpc": "2.0",
            "id": self._ids,
            "method": method,
            "params": {**params, "_meta": meta},
        }

    async def post(self, message: Message, **headers: str | None) -> httpx2.Response:
        """Post a message with the headers that mirror it; a header that is None is left out."""
        return await self._http.post(
            self.base + "/mcp",
            content=json.dumps(message).encode(),
            headers=mirrored(message, **headers),
        )

    async def all(
        self, method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] = DECLARED
    ) -> list[Message]:
        """Every message that answers a request, the response last."""
        return told(await self.post(self.message(method, params, capabilities)))

    async def result(
        self, method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] = DECLARED
    ) -> Message:
        """The result of a request that must not fail, without the server's name in `_meta`."""
        *_, response = await self.all(method, params, capabilities)
        assert "result" in response, response
        result: Message = response["result"]
        assert set(result.pop("_meta")) == {"io.modelcontextprotocol/serverInfo"}
        return result

    async def error(
        self, method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] = DECLARED
    ) -> Message:
        """The error of a request that must fail."""
        *_, response = await self.all(method, params, capabilities)
        assert "error" in response, response
        error: Message = response["error"]
        return error

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:
        """The result of `tools/call`, of whatever type."""
        return await self.result("tools/call", {"name": name, "arguments": dict(arguments or {}), **more})

    async def start(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> str:
        """The id of the task that a call has become."""
        created = await self.call(name, arguments, **more)
        assert created["resultType"] == "task", created
        task_id: str = created["taskId"]
        return task_id

    async def get(self, task_id: str) -> Message:
        return await self.result("tasks/get", {"taskId": task_id})

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> None:
        ack = await self.result("tasks/update", {"taskId": task_id, "inputResponses": dict(responses)})
        assert ack == {"resultType": "complete"}

    async def cancel(self, task_id: str) -> None:
        assert await self.result("tasks/cancel", {"taskId": task_id}) == {"resultType": "complete"}

    async def until(self, task_id: str, wanted: str | Callable[[Message], bool]) -> Message:
        """Poll until the task is as wanted: a status, or a condition on the whole."""
        async with asyncio.timeout(PATIENCE):
            while True:
                task = await self.get(task_id)
                if task["status"] == wanted if isinstance(wanted, str) else wanted(task):
                    return task
                assert task["status"] not in TERMINAL, task
                await asyncio.sleep(0.01)

    async def asked(self, task_id: str, number: int = 1) -> Message:
        """What a task asks, once it asks so many things."""
        task = await self.until(task_id, lambda task: len(task.get("inputRequests", {})) == number)
        assert task["status"] == "input_required"
        requests: Message = task["inputRequests"]
        return requests

    @asynccontextmanager
    async def listening(self, *task_ids: str) -> AsyncGenerator["Listening", None]:
        """Subscribe to tasks; yields the messages of the stream as they come."""
        message = self.message("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}})
        async with self._http.stream(
            "POST", self.base + "/mcp", content=json.dumps(message).encode(), headers=mirrored(message)
        ) as response:
            assert response.status_code == 200, await response.aread()
            yield Listening(response)


class Listening:
    """The stream of one subscription."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()
        self.said: list[Message] = []

    async def next(self) -> Message:
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("data: "):
                    message: Message = json.loads(line.removeprefix("data: "))
                    self.said.append(message)
                    return message
        raise AssertionError("the stream has ended")

    async def until(self, status: str) -> Message:
        """The first notification that tells of this status, without `_meta`."""
        while True:
            message = await self.next()
            assert message["method"] == "notifications/tasks", message
            if message["params"]["status"] == status:
                return {name: value for name, value in message["params"].items() if name != "_meta"}


def mirrored(message: Message, **headers: str | None) -> dict[str, str]:
    """The HTTP headers for a message; for `tasks/*` the name is the task's id."""
    params = message["params"]
    named = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": message["method"],
        "mcp-name": params.get("taskId", params.get("name")),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return {name: value for name, value in named.items() if isinstance(value, str)}


def shape(task: Message) -> set[str]:
    """The names of the fields, but for the message that may or may not be there."""
    return set(task) - {"statusMessage"}


def key_for(requests: Message, message: str) -> str:
    """The key of the elicitation that says `message`."""
    (key,) = [key for key, request in requests.items() if request.get("params", {}).get("message") == message]
    return key


def words(task: Message) -> str:
    """The text of a completed task that is no error."""
    assert task["status"] == "completed", task
    assert not task["result"].get("isError"), task
    (block,) = task["result"]["content"]
    return str(block["text"])


def on(store: Path, register: Callable[[Server], None], **options: Any) -> Server:
    """One replica of a server whose tools `register` registers."""
    server = Server(
        "tasks",
        version="1",
        store=f"sqlite:///{store}",
        **{"keys": [KEY], "tasks": QUICK, "principal": whoever_says_so, **options},
    )
    register(server)
    return server


@asynccontextmanager
async def replicas(
    folder: Path, register: Callable[[Server], None], number: int = 2, **options: Any
) -> AsyncGenerator[list[Wire], None]:
    """Several servers over HTTP, each with a connection of its own to one SQLite file."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=PATIENCE, trust_env=False))
        yield [
            Wire(await stack.enter_async_context(served(on(folder / "tasks.db", register, **options))), http)
            for _ in range(number)
        ]


@asynccontextmanager
async def replica(
    folder: Path, register: Callable[[Server], None], **options: Any
) -> AsyncGenerator[Wire, None]:
    """One server alone."""
    async with replicas(folder, register, 1, **options) as (wire,):
        yield wire
