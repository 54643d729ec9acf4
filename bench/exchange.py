"""One MCP request over plain HTTP, and its answer: what is sent, and how it is checked.

The headers mirror the body, as protocol version 2026-07-28 wants it.
"""

import http.client
import json
from dataclasses import dataclass, field
from typing import Any, Final

from bench.failure import BenchFailure

PATH: Final = "/mcp"
VERSION: Final = "2026-07-28"
_TIMEOUT: Final = 10.0
_META: Final = "io.modelcontextprotocol/"
_UVICORNS_OWN: Final = frozenset({"date", "server", "connection"})


@dataclass(frozen=True)
class Sender:
    """A client program: what it says of itself, and what it declares beside what a call needs."""

    name: str
    version: str
    capabilities: dict[str, Any] = field(default_factory=dict)


BENCH: Final = Sender("bench", "1")
SENDERS: Final = (
    BENCH,
    Sender("terminal", "0.14.2", {"sampling": {}}),
    Sender("editor-extension", "2026.11.3", {"roots": {}}),
    Sender("Desk for teams", "1.102.0-beta.4", {"sampling": {"tools": {}}, "roots": {}}),
)
"""Those of a load, which are not all alike."""


@dataclass(frozen=True)
class Call:
    """A request: a method, its params, and the name it addresses, if it addresses one."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)
    """What the client must declare."""
    sender: Sender = BENCH
    token: str | None = None
    """The access token that is sent along."""

    def headers(self) -> dict[str, str]:
        named = {} if self.name is None else {"mcp-name": self.name}
        if self.token is not None:
            named["authorization"] = f"Bearer {self.token}"
        return {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": self.method,
            **named,
        }

    def body(self, request_id: int | str = 1) -> str:
        meta = {
            f"{_META}protocolVersion": VERSION,
            f"{_META}clientInfo": {"name": self.sender.name, "version": self.sender.version},
            f"{_META}clientCapabilities": {**self.sender.capabilities, **self.capabilities},
        }
        params = {**self.params, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": request_id, "method": self.method, "params": params}
        return json.dumps(message, separators=(",", ":"))


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    """Those that the application set; uvicorn's own are left out."""
    body: bytes

    def result(self) -> dict[str, Any]:
        """The JSON-RPC result, or a failure that shows what came instead."""
        if self.status != 200:
            raise BenchFailure(f"HTTP {self.status}: {self.body[:300]!r}")
        message = json.loads(self.body)
        if not isinstance(message, dict) or message.get("id") != 1 or "result" not in message:
            raise BenchFailure(f"no result: {self.body[:300]!r}")
        result: dict[str, Any] = message["result"]
        return result


def send(port: int, call: Call) -> Answer:
    """Send one request; OSError where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
    try:
        connection.request("POST", PATH, call.body().encode(), call.headers())
        response = connection.getresponse()
        headers = [pair for pair in response.getheaders() if pair[0].lower() not in _UVICORNS_OWN]
        return Answer(response.status, headers, response.read())
    except http.client.HTTPException as error:
        raise OSError(f"broken HTTP: {error!r}") from error
    finally:
        connection.close()
