"""A server of the draft as its first text has it: no `result_type`, and a state beside the questions."""

import itertools
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

VERSION = "2026-06-XX"
RELATED = "io.modelcontextprotocol/related-task"
TIMES = {"createdAt": "2026-01-27T03:32:48Z", "lastUpdatedAt": "2026-01-27T03:32:48Z", "ttl": 60000}


def form(message: str, field: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


class DraftServer:
    """Keeps all that it hears in `heard`. Its tool `echo` is a task, `weather` asks by rounds."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {}
        self.cancelled = False
        self.fails = False
        self.state = "bar"
        self._polled = itertools.count(1)
        self.app = Starlette(routes=[Route("/mcp", self._serve, methods=["POST", "GET", "DELETE"])])

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The parameters of all requests of a method."""
        return [message["params"] for message in self.heard if message.get("method") == method]

    async def _serve(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        self.heard.append(message)
        if "id" not in message:
            return Response(status_code=202)
        answer = self._answer(message["method"], message.get("params") or {})
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        known = {
            "initialize": self._hello,
            "tools/list": self._tools,
            "tools/call": self._call,
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/input_response": self._input,
            "tasks/cancel": self._cancel,
        }
        if method not in known:
            return {"error": {"code": -32601, "message": "Method not found"}}
        result = known[method](params)
        return result if "error" in result else {"result": result}

    def _hello(self, params: dict[str, Any]) -> dict[str, Any]:
        assert params["protocolVersion"] == VERSION
        tasks = {"requests": {"tools": {"call": {}}}, "cancel": {}}
        return {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {}, "tasks": tasks},
            "serverInfo": {"name": "draft", "version": "1"},
        }

    def _tools(self, _: dict[str, Any]) -> dict[str, Any]:
        plain = {"inputSchema": {"type": "object"}}
        return {
            "tools": [
                {"name": "weather", **plain},
                {"name": "echo", **plain, "execution": {"taskSupport": "required"}},
            ]
        }

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["name"] == "echo":
            assert params["task"] == {}
            return {"task": self._task("working")}
        if "inputResponses" not in params:
            return {"inputRequests": {"login": form("Who are you?", "name")}, "requestState": "foo"}
        assert params["requestState"] == "foo"
        return {"content": [{"type": "text", "text": f"72 for {_value(params, 'login', 'name')}"}]}

    def _task(self, status: str) -> dict[str, Any]:
        return {"taskId": "echo_1", "status": status, "pollInterval": 10, **TIMES}

    def _status(self) -> str:
        if self.cancelled:
            return "cancelled"
        if "echo_input" not in self.answers:
            return "input_required"
        return "failed" if self.fails else "completed"

    def _get(self, params: dict[str, Any]) -> dict[str, Any]:
        assert params["taskId"] == "echo_1"
        return self._task("working" if next(self._polled) == 1 else self._status())

    def _result(self, params: dict[str, Any]) -> dict[str, Any]:
        assert params["taskId"] == "echo_1"
        if self._status() == "input_required":
            asked = {"echo_input": form("What shall I echo?", "input")}
            return {
                "inputRequests": asked,
                "requestState": self.state,
                "_meta": {RELATED: {"taskId": "echo_1"}},
            }
        if self.fails:
            return {"error": {"code": -32603, "message": "the echo is broken"}}
        return {
            "content": [{"type": "text", "text": f"Echo: {self.answers['echo_input']}"}],
            "isError": False,
        }

    def _input(self, params: dict[str, Any]) -> dict[str, Any]:
        assert params["_meta"][RELATED] == {"taskId": "echo_1"}
        assert params["requestState"] == "bar"
        self.answers["echo_input"] = _value(params, "echo_input", "input")
        return {"_meta": params["_meta"]}

    def _cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        assert params["taskId"] == "echo_1"
        self.cancelled = True
        return self._task("cancelled")


def _value(params: dict[str, Any], key: str, field: str) -> Any:
    return params["inputResponses"][key]["content"][field]
