"""The watch over messages sees what it is to see."""

from typing import Any

import pytest

from ekiden import Client, Server
from ekiden.rounds.outcome import Complete

from .types import MODERN, NOVEMBER, problem_of_request, problem_of_response

TASK = {"taskId": "1", "createdAt": "t", "lastUpdatedAt": "t", "ttlMs": None, "resultType": "complete"}


@pytest.mark.parametrize(
    ("method", "version", "result", "problem"),
    [
        ("tools/call", MODERN, {"resultType": "complete", "content": []}, None),
        ("tools/call", MODERN, {"resultType": "input_required", "requestState": "s"}, None),
        ("tools/call", MODERN, {"content": [{"type": "text"}]}, "content.0"),
        ("tools/call", MODERN, {**TASK, "resultType": "task", "status": "working"}, None),
        ("tools/call", MODERN, {"taskId": "1", "resultType": "task"}, "status: Field required"),
        ("tools/list", NOVEMBER, {"tools": [{"name": "a"}]}, "tools.0.inputSchema"),
        ("ping", MODERN, {}, "has no ping"),
        ("tasks/get", MODERN, {**TASK, "status": "completed", "result": {}}, None),
        ("tasks/get", MODERN, {**TASK, "status": "completed"}, "a wrong result"),
        (
            "tasks/get",
            MODERN,
            {**TASK, "status": "working", "error": {"code": 1, "message": ""}},
            "a wrong error",
        ),
        ("tasks/get", NOVEMBER, TASK, "status"),
    ],
)
def test_a_wrong_result_is_seen(method: str, version: str, result: Any, problem: str | None) -> None:
    found = problem_of_response("server", version, method, {"result": result})
    assert (found is None) if problem is None else (problem in (found or ""))


@pytest.mark.parametrize(
    ("side", "version", "message", "problem"),
    [
        ("client", NOVEMBER, {"id": 1, "method": "ping"}, None),
        ("client", MODERN, {"id": 1, "method": "ping"}, "has no such message of a client"),
        ("server", MODERN, {"id": 1, "method": "roots/list"}, "has no such message of a server"),
        ("client", MODERN, {"id": 1, "method": "tools/list", "params": {}}, "_meta"),
        ("server", NOVEMBER, {"method": "notifications/progress", "params": {}}, "progressToken"),
    ],
)
def test_a_wrong_message_is_seen(side: Any, version: str, message: Any, problem: str | None) -> None:
    found = problem_of_request(side, version, {"jsonrpc": "2.0", **message})
    assert (found is None) if problem is None else (problem in (found or ""))


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_what_a_server_sends_is_watched(mode: Any, wrong_messages: list[str]) -> None:
    server = Server("s")

    @server.middleware
    async def spoil(request: Any, call_next: Any) -> Any:
        outcome = await call_next(request)
        return Complete({"prompts": [{"title": "nameless"}]}) if request.method == "prompts/list" else outcome

    @server.prompt
    def hello() -> str:
        """Say hello."""
        return "hello"

    async with Client(server, mode=mode) as client:
        assert wrong_messages == []
        with pytest.raises(Exception, match="name"):
            await client.list_prompts()
    assert len(wrong_messages) == 1
    assert "prompts.0.name: Field required" in wrong_messages[0]
