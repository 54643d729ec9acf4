"""A server of 2025-11-25, small and strict: a handshake, a session, and questions while it answers."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

VERSION = "2025-11-25"
FORM = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"value": {"type": "boolean"}}},
}
PAGE = {"mode": "url", "message": "Log in", "url": "https://rail.example/", "elicitationId": "e1"}


class OldServer:
    """Keeps all that it hears in `heard`, and the headers of it in `headers`.

    It sends requests of the methods `early` before it answers the handshake, and keeps the answers.
    """

    def __init__(self, version: str = VERSION, early: Sequence[str] = ()) -> None:
        self._hello = {**_HELLO, "protocolVersion": version}
        self._early = early
        self.early_answers: list[dict[str, Any]] = []
        self.heard: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sessions: set[str] = set()
        self.resumed: list[str] = []
        self.logged_in = False
        self.cancelled = asyncio.Event()
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.stream: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """What goes out on the stream that the client GETs."""
        self.app = Starlette(
            routes=[
                Route("/mcp", self._post, methods=["POST"]),
                Route("/mcp", self._get, methods=["GET"]),
                Route("/mcp", self._delete, methods=["DELETE"]),
            ]
        )

    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard if "method" in message]

    async def _post(self, request: Request) -> Response:
        message = await request.json()
        self.heard.append(message)
        self.headers.append(dict(request.headers))
        if message.get("method") == "initialize":
            session = f"session-{next(self._numbers)}"
            self.sessions.add(session)
            headers = {"mcp-session-id": session}
            if self._early:
                return StreamingResponse(self._greeting(message), 200, headers, "text/event-stream")
            return self._result(message, self._hello, headers)
        if "mcp-session-id" not in request.headers:
            error = {"code": -32600, "message": "Bad Request: Missing session ID"}
            return JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": error}, 400)
        if request.headers["mcp-session-id"] not in self.sessions:
            error = {"code": -32001, "message": "Session not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 404)
        if "method" not in message:
            self._asked[message["id"]].set_result(message)
            return Response(status_code=202)
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                self.cancelled.set()
            return Response(status_code=202)
        return await self._answer(message)

    def _result(
        self, message: dict[str, Any], result: Any, headers: dict[str, str] | None = None
    ) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    async def _greeting(self, message: dict[str, Any]) -> AsyncIterator[str]:
        for method in self._early:
            number, question = await self.ask(method, FORM)
            yield _event(question)
            self.early_answers.append(await self.answer(number))
        yield _event({"jsonrpc": "2.0", "id": message["id"], "result": self._hello})

    async def _answer(self, message: dict[str, Any]) -> Response:
        method, params = message["method"], message.get("params", {})
        if method == "tools/list":
            return self._result(message, {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
        if method != "tools/call":
            return self._result(message, {})
        name = params["name"]
        if name == "login" and not self.logged_in:
            error = {"code": -32042, "message": "Log in first", "data": {"elicitations": [PAGE]}}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        if name == "interim":
            return self._result(message, {"resultType": "input_required", "requestState": "x"})
        if name == "task of 2026":
            return self._result(message, _TASK)
        if name in ("ask", "nameless", "hang", "break off", "ping", "strange", "progress"):
            return StreamingResponse(self._stream(message, name), media_type="text/event-stream")
        return self._result(message, _text(name))

    async def ask(self, method: str, params: Any) -> tuple[int, dict[str, Any]]:
        """A question, to be sent; its answer comes by `answer`."""
        number = next(self._numbers) + 1000
        self._asked[number] = asyncio.get_running_loop().create_future()
        return number, {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    async def answer(self, number: int) -> dict[str, Any]:
        return await asyncio.wait_for(self._asked[number], 10)

    async def _stream(self, message: dict[str, Any], name: str) -> AsyncIterator[str]:
        final = {"jsonrpc": "2.0", "id": message["id"]}
        if name == "hang":
            await asyncio.sleep(3600)
        if name == "break off":
            yield f"id: {message['id']}\nretry: 10\ndata: \n\n"
            return
        if name == "progress":
            token = message["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            yield _event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            yield _event({**final, "result": _text("done")})
            return
        if name == "nameless":
            yield _event({"jsonrpc": "2.0", "id": None, "method": "elicitation/create", "params": FORM})
            yield _event({**final, "result": _text("done")})
            return
        method = {"ask": "elicitation/create", "ping": "ping", "strange": "secrets/get"}[name]
        number, question = await self.ask(method, FORM if name == "ask" else {})
        yield _event(question)
        answer = await self.answer(number)
        yield _event({**final, "result": _text(json.dumps(answer.get("result", answer.get("error"))))})

    async def _get(self, request: Request) -> Response:
        if "last-event-id" in request.headers:
            self.resumed.append(request.headers["last-event-id"])
            final = {"jsonrpc": "2.0", "id": int(self.resumed[-1]), "result": _text("resumed")}
            return StreamingResponse(iter([_event(final)]), media_type="text/event-stream")
        return StreamingResponse(self._listened(), media_type="text/event-stream")

    async def _listened(self) -> AsyncIterator[str]:
        while True:
            yield _event(await self.stream.get())

    async def _delete(self, request: Request) -> Response:
        self.heard.append({"method": "DELETE"})
        self.sessions.discard(request.headers["mcp-session-id"])
        return Response(status_code=200)


_HELLO = {
    "protocolVersion": VERSION,
    "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": True}},
    "serverInfo": {"name": "old", "version": "1"},
    "instructions": "Be kind.",
}
_TIMES = {"createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z"}
_TASK = {"resultType": "task", "taskId": "t", "status": "working", "ttlMs": None, **_TIMES}


def _text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def _event(message: dict[str, Any]) -> str:
    return f"data: {json.dumps(message)}\n\n"
