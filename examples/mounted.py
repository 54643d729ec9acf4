"""An ekiden server inside a Starlette application, with a middleware: the code of "how to serve"."""

from collections import Counter

from starlette.applications import Starlette
from starlette.routing import Mount

from ekiden import CallNext, Complete, Interim, Outcome, Outgoing, Request, SendOn, Server

server = Server("tools")
counts: Counter[tuple[str, str]] = Counter()


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"{disk} is empty."


@server.middleware
async def count(request: Request, call_next: CallNext) -> Outcome:
    """Count requests by method and by how they ended."""
    outcome = await call_next(request)
    counts[request.method, type(outcome).__name__] += 1
    return outcome


SURE = {
    "method": "elicitation/create",
    "params": {"message": "Wipe it?", "requestedSchema": {"type": "object", "properties": {}}},
}


@server.middleware
async def confirm(request: Request, call_next: CallNext) -> Outcome:
    """Ask the user before anything is wiped."""
    if request.name != "wipe":
        return await call_next(request)
    answers = request.params.pop("inputResponses", None)
    if answers is None:
        return Interim({"sure": SURE}, None)
    if answers["sure"]["action"] != "accept":
        return Complete({"content": [{"type": "text", "text": "Nothing was wiped."}]})
    return await call_next(request)


@server.outgoing
async def sign(message: Outgoing, send: SendOn) -> None:
    """Sign every result, and send no log messages."""
    if message.method == "notifications/message":
        return
    if message.is_response and "result" in message.body:
        message.body["result"].setdefault("_meta", {})["tools.example/region"] = "eu-1"
    await send(message)


api = Starlette(
    routes=[Mount("/tools", server.asgi(allowed_hosts=["127.0.0.1", "tools.example"]))],
    lifespan=server.running,
)
