"""A client that follows a script: it makes all rounds of a call and records them."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, NamedTuple

import msgspec

from ekiden.errors import CallFailed, MissingCapability, UsageError
from ekiden.server.server import Server
from ekiden.testing.answers import Script, check_accepted, respond
from ekiden.testing.following import follow_task
from ekiden.transports.server.memory import MemoryChannel
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    LOG_LEVELS,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
)
from ekiden.wire.tasks import NEEDED

__all__ = ["LogMessage", "Progress", "Round", "ScriptedClient"]

EVERYTHING: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""The default capabilities of a scripted client: it can be asked for anything."""


class Progress(NamedTuple):
    """What `ctx.progress` told the client."""

    done: float
    total: float | None
    message: str | None


class LogMessage(NamedTuple):
    """What `ctx.log` told the client."""

    level: str
    data: Any
    logger: str | None


class Round(msgspec.Struct):
    """One round as the client saw it."""

    requests: dict[str, JsonObject]
    """The questions by key; empty in the last round."""
    state: str | None
    result: JsonObject
    notifications: list[JsonObject]


class ScriptedClient:
    """Calls a server in memory. If `server` is a function, it is called for the server of each round.

    With `progress=True` the server is asked to report progress, with `log=True` (or a level) to send its log:
    see `progress` and `log`. With `tasks=True` a call may become a task. It is followed to its end, and the
    script answers what it asks; that may take `task_seconds`.
    """

    def __init__(
        self,
        server: Server | Callable[[], Server],
        answers: Script | None = None,
        *,
        capabilities: Mapping[str, Any] = EVERYTHING,
        progress: bool = False,
        log: bool | str = False,
        tasks: bool = False,
        meta: Mapping[str, Any] | None = None,
        max_rounds: int = 100,
        task_seconds: float = 30.0,
    ) -> None:
        self._server = server
        self._answers: Script = {} if answers is None else answers
        self._meta = {
            PROTOCOL_VERSION: versions.MODERN,
            CLIENT_INFO: {"name": "scripted", "version": "1"},
            CLIENT_CAPABILITIES: _declared(capabilities, tasks=tasks),
            **({PROGRESS_TOKEN: "scripted"} if progress else {}),
            **({} if log is False else {LOG_LEVEL: _log_level(log)}),
            **(meta or {}),
        }
        self._tasks = tasks
        self._max_rounds = max_rounds
        self._task_seconds = task_seconds
        self._next_id = 0
        self.rounds: list[Round] = []
        """The rounds of the last call."""
        self.statuses: list[JsonObject] = []
        """The states of the task that the last call became, as `tasks/get` gave them; equal ones once."""

    @property
    def progress(self) -> list[Progress]:
        """The progress that the last call reported, over all its rounds. A task reports it in `statuses`."""
        told = self._notified("notifications/progress")
        return [Progress(params["progress"], params.get("total"), params.get("message")) for params in told]

    @property
    def log(self) -> list[LogMessage]:
        """The log messages that the last call sent, over all its rounds."""
        told = self._notified("notifications/message")
        return [LogMessage(params["level"], params["data"], params.get("logger")) for params in told]

    def _notified(self, method: str) -> list[JsonObject]:
        sent = [message for round_ in self.rounds for message in round_.notifications]
        return [message["params"] for message in sent if message["method"] == method]

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> JsonObject:
        """Call a tool through all its rounds; the final result."""
        return await self.call("tools/call", {"name": name, "arguments": dict(arguments or {})})

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> JsonObject:
        """Get a prompt through all its rounds."""
        return await self.call("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def read_resource(self, uri: str) -> JsonObject:
        """Read a resource through all its rounds."""
        return await self.call("resources/read", {"uri": uri})

    async def call(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        """Send a request through all its rounds, and follow the task that it may become; the final result."""
        self.rounds, self.statuses = [], []
        # A task runs in its server, which so has to run until the task has ended.
        runs = self._server.running() if self._tasks and isinstance(self._server, Server) else nullcontext()
        async with runs:
            result = await self._all_rounds(method, params)
            if result.get("resultType") != "task":
                return result
            task_id = str(result["taskId"])
            return await follow_task(
                task_id, self._send, self._answers, seconds=self._task_seconds, seen=self.statuses
            )

    async def _all_rounds(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        retry: JsonObject = {}
        asked: Mapping[str, JsonObject] = {}
        while len(self.rounds) < self._max_rounds:
            last = await self.round(method, {**params, **retry})
            if last.result.get("resultType") != "input_required":
                return last.result
            again = {key: request for key, request in last.requests.items() if request == asked.get(key)}
            before, retry, asked = retry, self.answer(last), last.requests
            for key, request in again.items():
                check_accepted(
                    self._answers, request, before["inputResponses"][key], retry["inputResponses"][key]
                )
        raise CallFailed(f"The call did not end within {self._max_rounds} rounds")

    def answer(self, asked: Round) -> JsonObject:
        """The parameters of the retry: the scripted answers, and the state if there was one."""
        retry: JsonObject = {}
        if asked.requests:
            retry["inputResponses"] = {
                key: respond(self._answers, key, request) for key, request in asked.requests.items()
            }
        if asked.state is not None:
            retry["requestState"] = asked.state
        return retry

    async def round(self, method: str, params: Mapping[str, Any]) -> Round:
        """Send one request and read its response; raises `CallFailed` if it is an error."""
        notifications: list[JsonObject] = []
        result = await self._send(method, params, notifications)
        seen = Round(result.get("inputRequests", {}), result.get("requestState"), result, notifications)
        self.rounds.append(seen)
        return seen

    async def _send(
        self, method: str, params: Mapping[str, Any], notifications: list[JsonObject] | None = None
    ) -> JsonObject:
        self._next_id += 1
        server = self._server if isinstance(self._server, Server) else self._server()
        async with _channel(server) as channel:
            message = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
            await channel.send({**message, "params": {**params, "_meta": self._meta}})
            while "method" in (reply := await channel.receive()):
                if notifications is not None:
                    notifications.append(reply)
        if is_object(error := reply.get("error")):
            raise CallFailed(_explained(error), code=error["code"], data=error.get("data"))
        result: JsonObject = reply["result"]
        return result


def _explained(error: JsonObject) -> str:
    """The message of an error; one that tasks would solve says how to have them."""
    text, data = str(error["message"]), error.get("data")
    lacks_tasks = is_object(data) and data.get("requiredCapabilities") == NEEDED
    if error["code"] == MissingCapability.default_code and lacks_tasks:
        return f"{text}. The tool must be a task: ScriptedClient(..., tasks=True) follows it"
    return text


def _declared(capabilities: Mapping[str, Any], *, tasks: bool) -> JsonObject:
    declared = dict(capabilities)
    if tasks:
        declared["extensions"] = {**declared.get("extensions", {}), **NEEDED["extensions"]}
    return declared


def _log_level(log: bool | str) -> str:
    if log is True:
        return "debug"
    if log not in LOG_LEVELS:
        raise UsageError(f"log={log!r} must be True, or one of {', '.join(LOG_LEVELS)}")
    return str(log)


@asynccontextmanager
async def _channel(server: Server) -> AsyncGenerator[MemoryChannel, None]:
    """A new channel for every round: only the token connects it with the next."""
    await server.endpoint.start()
    channel = MemoryChannel(server.endpoint)
    try:
        yield channel
    finally:
        await channel.close()
