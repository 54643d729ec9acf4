"""A lean client that creates tasks and looks after them: the same for every server.

    python -m bench.clients.task_client URL run TOOL COUNT ATONCE
    python -m bench.clients.task_client URL patient TOOL ARGUMENTS COUNT ATONCE
    python -m bench.clients.task_client URL rounds TOOL ARGUMENTS COUNT ATONCE
    python -m bench.clients.task_client URL answers COUNT
    python -m bench.clients.task_client URL sleepers COUNT SECONDS
    python -m bench.clients.task_client URL looks FILE COUNT

Prints JSON. `run` has tasks per second. `patient` does the same with arguments, leaves time between two
looks, and has how often it looked. `rounds` calls a tool that asks once and is no task, answers it, and has
calls per second. `answers` has the seconds from `tasks/update` to the handler, by the
clock that all processes of the machine share. `sleepers` creates tasks that sleep until the same
moment, so many seconds from now, and has how late each went on. `looks` asks for tasks whose ids are in the
file, a few at a time, and has the seconds of each answer.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from bench.exchange import Call

T = TypeVar("T")

_CAPABILITIES: Final[dict[str, Any]] = {
    "elicitation": {"form": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
_ELICITS: Final[dict[str, Any]] = {"elicitation": {"form": {}}}
_LOOK_SECONDS: Final = 0.005
_PATIENT_LOOK_SECONDS: Final = 0.1
_SLEEPERS_LOOK_SECONDS: Final = 0.25
"""Looks cost the server time in which it wakes nobody."""
_AT_ONCE: Final = 50
_LOOKERS: Final = 4


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


Address = tuple[str, int, str]


async def crowd(
    address: Address, items: Iterable[T], at_once: int, work: Callable[[Line, T], Awaitable[None]]
) -> None:
    """Do the work for every item, on so many connections."""
    left = iter(items)

    async def one() -> None:
        line = Line(*address)
        for item in left:
            await work(line, item)

    await asyncio.gather(*(one() for _ in range(at_once)))


async def create(line: Line, tool: str, arguments: dict[str, Any] | None = None) -> str:
    call = Call("tools/call", {"name": tool, "arguments": arguments or {}}, tool, _CAPABILITIES)
    result = await line.send(call)
    if result.get("resultType") != "task":
        raise SystemExit(f"no task: {result}")
    return str(result["taskId"])


async def look(line: Line, task_id: str) -> dict[str, Any]:
    return await line.send(Call("tasks/get", {"taskId": task_id}, task_id, _CAPABILITIES))


async def until(line: Line, task_id: str, status: str, pause: float = _LOOK_SECONDS) -> dict[str, Any]:
    while (task := await look(line, task_id))["status"] != status:
        if task["status"] in ("failed", "cancelled"):
            raise SystemExit(f"the task ended badly: {task}")
        await asyncio.sleep(pause)
    return task


def text_of(task: dict[str, Any]) -> str:
    return str(task["result"]["content"][0]["text"])


async def run(address: Address, tool: str, count: int, at_once: int) -> dict[str, Any]:
    async def work(line: Line, number: int) -> None:
        await until(line, await create(line, tool), "completed")

    began = time.perf_counter()
    await crowd(address, range(count), at_once, work)
    return {"per_second": count / (time.perf_counter() - began)}


async def patient(
    address: Address, tool: str, arguments: dict[str, Any], count: int, at_once: int
) -> dict[str, Any]:
    looks = 0

    async def work(line: Line, number: int) -> None:
        nonlocal looks
        task_id, status = await create(line, tool, arguments), "working"
        while status != "completed":
            await asyncio.sleep(_PATIENT_LOOK_SECONDS)
            status, looks = (await look(line, task_id))["status"], looks + 1
            if status not in ("working", "completed"):
                raise SystemExit(f"the task is {status}")

    began = time.perf_counter()
    await crowd(address, range(count), at_once, work)
    return {"per_second": count / (time.perf_counter() - began), "looks": looks}


async def rounds(
    address: Address, tool: str, arguments: dict[str, Any], count: int, at_once: int
) -> dict[str, Any]:
    async def work(line: Line, number: int) -> None:
        params = {"name": tool, "arguments": arguments}
        asked = await line.send(Call("tools/call", params, tool, _ELICITS))
        answers = {key: {"action": "accept", "content": {"ok": True}} for key in asked["inputRequests"]}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        done = await line.send(Call("tools/call", {**params, **more}, tool, _ELICITS))
        if "content" not in done:
            raise SystemExit(f"no end: {done}")

    began = time.perf_counter()
    await crowd(address, range(count), at_once, work)
    return {"per_second": count / (time.perf_counter() - began)}


async def answers(address: Address, count: int) -> dict[str, Any]:
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
        seconds.append((int(text_of(done)) - sent) / 1e9)
    return {"seconds": seconds}


async def sleepers(address: Address, count: int, seconds: float) -> dict[str, Any]:
    moment = time.time() + seconds
    ids: list[str] = []
    late: list[float] = []

    async def begin(line: Line, number: int) -> None:
        ids.append(await create(line, "sleeps", {"number": number, "until": moment}))

    async def end(line: Line, task_id: str) -> None:
        done = await until(line, task_id, "completed", _SLEEPERS_LOOK_SECONDS)
        began, went_on = map(float, text_of(done).split())
        if began > moment:
            raise SystemExit("a task had not begun when all were due: give them more seconds")
        late.append(went_on - moment)

    await crowd(address, range(count), _AT_ONCE, begin)
    await asyncio.sleep(moment - time.time())
    await crowd(address, ids, _AT_ONCE, end)
    return {"late": late}


async def looks(address: Address, file: Path, count: int) -> dict[str, Any]:
    taken: list[float] = []

    async def work(line: Line, task_id: str) -> None:
        began = time.perf_counter()
        await look(line, task_id)
        taken.append(time.perf_counter() - began)

    await crowd(address, random.choices(json.loads(file.read_text()), k=count), _LOOKERS, work)
    return {"seconds": taken}


def main() -> None:
    url, what, *more = sys.argv[1:]
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    address = (parts.hostname, parts.port, parts.path)
    if what == "run":
        found = asyncio.run(run(address, more[0], int(more[1]), int(more[2])))
    elif what in ("patient", "rounds"):
        work = patient if what == "patient" else rounds
        found = asyncio.run(work(address, more[0], json.loads(more[1]), int(more[2]), int(more[3])))
    elif what == "answers":
        found = asyncio.run(answers(address, int(more[0])))
    elif what == "sleepers":
        found = asyncio.run(sleepers(address, int(more[0]), float(more[1])))
    else:
        found = asyncio.run(looks(address, Path(more[0]), int(more[1])))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
