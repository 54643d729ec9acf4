"""A server on stdio that asks with the form, reads with the URI, or tells the progress given as JSON."""

import json
import sys
from typing import Any

KIND, GIVEN = sys.argv[1], json.loads(sys.argv[2])
INFO = {"io.modelcontextprotocol/serverInfo": {"name": "crooked", "version": "1"}}
FRESH = {"ttlMs": 0, "cacheScope": "private"}


def send(**message: Any) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def asked() -> dict[str, Any]:
    """An interim result that asks with the given form."""
    form = {"mode": "form", "message": "What?", "requestedSchema": GIVEN}
    ask = {"method": "elicitation/create", "params": form}
    return {"resultType": "input_required", "inputRequests": {"k": ask}, "requestState": "s"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}, "_meta": INFO, **FRESH}
    if method == "tools/list":
        return {"tools": [{"name": "deed", "inputSchema": {"type": "object"}}], **FRESH}
    if method == "resources/read":
        return {"contents": [{"uri": GIVEN, "blob": "aGk="}], **FRESH}
    if KIND == "form" and "inputResponses" not in params:
        return asked()
    if KIND == "progress":
        about = {"progressToken": params["_meta"]["progressToken"], "message": "odd"}
        send(method="notifications/progress", params={**about, **GIVEN})
    return {"content": [{"type": "text", "text": json.dumps(params.get("inputResponses"))}]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        send(id=request["id"], result=answer(request["method"], request["params"]))
