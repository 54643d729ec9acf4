"""A client of 2026 for tests: it sends single requests, and says what it can."""

from typing import Any

import pytest

from ekiden import Principal, ProtocolError, Server
from ekiden.engine import Engine, HostStream
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION


class Caller:
    """Sends requests with these capabilities; each is a round of its own."""

    def __init__(
        self, server: Server, *, who: Principal | str | None = None, session: str = "one", **capabilities: Any
    ) -> None:
        self._engine = Engine(server)
        self._capabilities = capabilities
        self._who = who
        self._session = session

    async def call(
        self, tool: str, state: str | None = None, answers: dict[str, Any] | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if state is not None:
            params["requestState"] = state
        if answers is not None:
            params["inputResponses"] = answers
        return await self.send("tools/call", **params)

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        meta = {
            PROTOCOL_VERSION: "2026-07-28",
            CLIENT_CAPABILITIES: self._capabilities,
            CLIENT_INFO: {"name": "tester", "version": "1"},
        }
        request = self._engine.request(
            method, {**params, "_meta": meta}, session=self._session, principal=self._who
        )
        outcome = await self._engine.answer(request, HostStream(request, _nothing))
        return self._engine.result(request, outcome)

    async def fails(self, method: str, **params: Any) -> ProtocolError:
        with pytest.raises(ProtocolError) as raised:
            await self.send(method, **params)
        return raised.value


async def _nothing(*_: Any) -> None:
    """Notifications are not of interest here."""


def text(result: dict[str, Any]) -> str:
    words: str = result["content"][0]["text"]
    return words
