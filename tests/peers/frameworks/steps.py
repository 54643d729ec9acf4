"""What each framework's client does at `server.py`. Run by the peers' interpreters: standard library only.

    python CLIENT.py bare URL < steps     as it is by default
    python CLIENT.py full URL < steps     with every callback that the framework has

`steps` is a list of tools and arguments. What came of each is printed as one JSON object, by tool:
`{"result": ...}` or `{"error": ...}`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE = 30.0
"""Seconds for one step; each takes a few milliseconds."""

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


async def take(call: Call) -> dict[str, Any]:
    """Take all steps, one after the other."""
    seen: dict[str, Any] = {}
    for name, arguments in json.load(sys.stdin):
        try:
            seen[name] = {"result": await asyncio.wait_for(call(name, arguments), PATIENCE)}
        except Exception as error:
            seen[name] = {"error": f"{type(error).__name__}: {error}"}
    return seen


def run(connect: Callable[[str, bool], Awaitable[dict[str, Any]]]) -> None:
    """Run a client's script; `connect(url, full)` takes the steps."""
    mode, url = sys.argv[1:]
    print(json.dumps(asyncio.run(connect(url, mode == "full"))))
