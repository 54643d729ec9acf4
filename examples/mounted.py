"""An ekiden server inside a Starlette application, with a middleware: the code of "how to serve"."""

from collections import Counter

from starlette.applications import Starlette
from starlette.routing import Mount

from ekiden import CallNext, Outcome, Request, Server

server = Server("tools")
counts: Counter[tuple[str, str]] = Counter()


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.middleware
async def count(request: Request, call_next: CallNext) -> Outcome:
    """Count requests by method and by how they ended."""
    outcome = await call_next(request)
    counts[request.method, type(outcome).__name__] += 1
    return outcome


api = Starlette(
    routes=[Mount("/tools", server.asgi(allowed_hosts=["127.0.0.1", "tools.example"]))],
    lifespan=server.running,
)
