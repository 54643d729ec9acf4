"""Follows a task to its end, and answers what it asks with a script."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ekiden.errors import CallFailed
from ekiden.testing.answers import Script, check_accepted, respond
from ekiden.wire.json import JsonObject

__all__ = ["follow_task"]

_LOOK_SECONDS: Final = 0.01
"""Between two looks at a task. It usually runs in the same process."""


async def follow_task(
    task_id: str,
    send: Callable[[str, Mapping[str, Any]], Awaitable[JsonObject]],
    script: Script,
    *,
    seconds: float,
    seen: list[JsonObject],
) -> JsonObject:
    """The result of a task; raises `CallFailed` if it fails, or takes too long. Its states go to `seen`."""
    answered: dict[str, tuple[JsonObject, JsonObject]] = {}
    try:
        async with asyncio.timeout(seconds):
            while (task := await send("tasks/get", {"taskId": task_id}))["status"] in _OPEN:
                _note(task, seen)
                responses = _responses(task.get("inputRequests") or {}, script, answered)
                if responses:
                    await send("tasks/update", {"taskId": task_id, "inputResponses": responses})
                else:
                    await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        last = seen[-1]["status"] if seen else "unknown"
        raise CallFailed(f"The task did not end within {seconds:g} seconds; it was {last}") from None
    _note(task, seen)
    return _result(task)


_OPEN: Final = ("working", "input_required")


def _note(task: JsonObject, seen: list[JsonObject]) -> None:
    if not seen or seen[-1] != task:
        seen.append(task)


def _responses(
    requests: Mapping[str, JsonObject], script: Script, answered: dict[str, tuple[JsonObject, JsonObject]]
) -> JsonObject:
    """The responses to new questions. One that is asked again has the same key but for the attempt."""
    responses: JsonObject = {}
    for key, request in requests.items():
        name = key.rpartition(".")[0] or key
        if key in answered:
            continue
        responses[key] = respond(script, name, request)
        last = answered.get(name)
        if last is not None and last[0] == request:
            check_accepted(script, request, last[1], responses[key])
        answered[key] = answered[name] = request, responses[key]
    return responses


def _result(task: JsonObject) -> JsonObject:
    if task["status"] == "failed":
        error = task["error"]
        raise CallFailed(error["message"], code=error["code"], data=error.get("data"))
    if task["status"] == "cancelled":
        raise CallFailed(f"The task was cancelled: {task.get('statusMessage') or 'no reason given'}")
    result: JsonObject = task["result"]
    return result
