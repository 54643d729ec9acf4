"""A client that follows a script: it makes all rounds of a call and records them."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from ekiden.errors import CallFailed
from ekiden.server.server import Server
from ekiden.testing.answers import Script, respond
from ekiden.transports.server.memory import MemoryChannel
from ekiden.wire import versions
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION

__all__ = ["Round", "ScriptedClient"]

EVERYTHING: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""The default capabilities of a scripted client: it can be asked for anything."""


class Round(msgspec.Struct):
    """One round as the client saw it."""

    requests: dict[str, JsonObject]
    """The questions by key; empty in the last round."""
    state: str | None
    result: JsonObject
    notifications: list[JsonObject]


class ScriptedClient:
    """Calls a server in memory. If `server` is a function, it is called for the server of each round."""

    def __init__(
        self,
        server: Server | Callable[[], Server],
        answers: Script | None = None,
        *,
        capabilities: Mapping[str, Any] = EVERYTHING,
        meta: Mapping[str, Any] | None = None,
        max_rounds: int = 100,
    ) -> None:
        self._server = server
        self._answers: Script = {} if answers is None else answers
        self._meta = {
            PROTOCOL_VERSION: versions.MODERN,
            CLIENT_INFO: {"name": "scripted", "version": "1"},
            CLIENT_CAPABILITIES: dict(capabilities),
            **(meta or {}),
        }
        self._max_rounds = max_rounds
        self._next_id = 0
        self.rounds: list[Round] = []
        """The rounds of the last call."""

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
        """Send a request through all its rounds; the final result."""
        self.rounds = []
        retry: JsonObject = {}
        while len(self.rounds) < self._max_rounds:
            last = await self.round(method, {**params, **retry})
            if last.result.get("resultType") != "input_required":
                return last.result
            retry = self.answer(last)
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
        self._next_id += 1
        server = self._server if isinstance(self._server, Server) else self._server()
        async with _channel(server) as channel:
            message = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
            await channel.send({**message, "params": {**params, "_meta": self._meta}})
            notifications: list[JsonObject] = []
            while "method" in (reply := await channel.receive()):
                notifications.append(reply)
        if is_object(error := reply.get("error")):
            raise CallFailed(error["message"], code=error["code"], data=error.get("data"))
        result = reply["result"]
        seen = Round(result.get("inputRequests", {}), result.get("requestState"), result, notifications)
        self.rounds.append(seen)
        return seen


@asynccontextmanager
async def _channel(server: Server) -> AsyncGenerator[MemoryChannel, None]:
    """A new channel for every round: only the token connects it with the next."""
    await server.endpoint.start()
    channel = MemoryChannel(server.endpoint)
    try:
        yield channel
    finally:
        await channel.close()
