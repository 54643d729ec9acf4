"""Messages as a client writes them, and the headers that go with them."""

import base64
from itertools import count
from typing import Any

from .shapes import VERSION

PREFIX = "io.modelcontextprotocol/"
SUBSCRIPTION = PREFIX + "subscriptionId"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Message = dict[str, Any]

_NEW: Any = object()
_numbers = count(1000)


def meta(**fields: Any) -> Message:
    """A request's `_meta`: what is required, and `fields`, with the prefix where one belongs."""
    bare = {"progressToken"}
    made = {PREFIX + "protocolVersion": VERSION, PREFIX + "clientCapabilities": {}}
    return made | {key if key in bare or "/" in key else PREFIX + key: fields[key] for key in fields}


def request(method: str, params: Message | None = None, *, id_: Any = _NEW, **fields: Any) -> Message:
    """A request with everything it needs, and an id of its own; `fields` go into `_meta`."""
    number = next(_numbers) if id_ is _NEW else id_
    whole = {**(params or {}), "_meta": meta(**fields)}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": whole}


def call(tool: str, *, id_: Any = _NEW, _fields: Message | None = None, **arguments: Any) -> Message:
    """A `tools/call` request; `_fields` go into `_meta`."""
    return request("tools/call", {"name": tool, "arguments": arguments}, id_=id_, **(_fields or {}))


def listen(id_: Any = _NEW, **wanted: Any) -> Message:
    """A `subscriptions/listen` request."""
    return request("subscriptions/listen", {"notifications": wanted}, id_=id_)


def encoded(value: str) -> str:
    """A value as it travels in a header that cannot hold it plainly."""
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def mirrored(message: Message) -> dict[str, str]:
    """The headers that a client sends along with a message."""
    params = message.get("params")
    fields = params.get("_meta") if isinstance(params, dict) else None
    version = fields.get(PREFIX + "protocolVersion") if isinstance(fields, dict) else None
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version if isinstance(version, str) else VERSION,
        "mcp-method": message["method"],
    }
    if field := NAMED.get(message["method"]):
        name = message["params"][field]
        headers["mcp-name"] = name if name.isascii() else encoded(name)
    return headers
