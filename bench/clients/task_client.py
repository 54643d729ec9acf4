"""A lean client that creates tasks and looks after them: the same for every server.

    python -m bench.clients.task_client URL empty COUNT ATONCE
    python -m bench.clients.task_client URL answers COUNT

Prints JSON: tasks per second, or the seconds from `tasks/update` to the handler that goes on. The clock is
the machine's, which all processes share.
"""

import asyncio
import json
import sys
import time
from typing import Any, Final
from urllib.parse import urlsplit

from bench.exchange import Call

_CAPABILITIES: Final[dict[str, Any]] = {
    "elicitation": {"form": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
_LOOK_SECONDS: Final = 0.005


class Line:
    """One connection, used for one request at a time."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._address = (host, port)
        self._head = f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, call: Call) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        body = call.body().encode()
        headers = "".join(f"{name}: {value}\r\n" for name, value in call.headers().items())
        writer.write(f"{self._head}{headers}content-length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        message = json.loads(await reader.readexactly(length))
        if "result" not in message:
            raise SystemExit(f"no result: {message}")
        result: dict[str, Any] = message["result"]
        return result


async def create(line: Line, tool: str) -> str:
    call = Call("tools/call", {"name": tool, "arguments": {}}, tool, _CAPABILITIES)
    result = await line.send(call)
    if result.get("resultType") != "task":
        raise SystemExit(f"no task: {result}")
    return str(result["taskId"])


async def until(line: Line, task_id: str, status: str) -> dict[str, Any]:
    call = Call("tasks/get", {"taskId": task_id}, task_id, _CAPABILITIES)
    while (task := await line.send(call))["status"] != status:
        if task["status"] in ("failed", "cancelled"):
            raise SystemExit(f"the task ended badly: {task}")
        await asyncio.sleep(_LOOK_SECONDS)
    return task


async def empty(address: tuple[str, int, str], count: int, at_once: int) -> dict[str, Any]:
    numbers = iter(range(count))

    async def work() -> None:
        line = Line(*address)
        for _ in numbers:
            await until(line, await create(line, "empty"), "completed")

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return {"per_second": count / (time.perf_counter() - began)}


async def answers(address: tuple[str, int, str], count: int) -> dict[str, Any]:
    line = Line(*address)
    seconds: list[float] = []
    for _ in range(count):
        task_id = await create(line, "waits")
        (key,) = (await until(line, task_id, "input_required"))["inputRequests"]
        response = {key: {"action": "accept", "content": {"value": True}}}
        sent = time.monotonic_ns()
        params = {"taskId": task_id, "inputResponses": response}
        await line.send(Call("tasks/update", params, task_id, _CAPABILITIES))
        done = await until(line, task_id, "completed")
        seconds.append((int(done["result"]["content"][0]["text"]) - sent) / 1e9)
    return {"seconds": seconds}


def main() -> None:
    url, what, *numbers = sys.argv[1:]
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    address = (parts.hostname, parts.port, parts.path)
    if what == "empty":
        found = asyncio.run(empty(address, int(numbers[0]), int(numbers[1])))
    else:
        found = asyncio.run(answers(address, int(numbers[0])))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
