"""`ekiden tasks TARGET ...`: look at a task of a server, wait for it, answer what it asks, cancel it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ekiden.cli.calling.conversation import AskedOptions, Conversation, converse
from ekiden.cli.calling.tool import show_ended
from ekiden.cli.terminal.screen import Screen, say
from ekiden.cli.terminal.task_status import TaskScreen, in_words
from ekiden.client.scripted import question_text
from ekiden.errors import InvalidParams, MethodNotFound, ServerError, UsageError

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from ekiden.client.tasks.handle import TaskHandle, TaskSnapshot

__all__ = ["manage_task"]

T = TypeVar("T")


def manage_task(options: AskedOptions, words: Sequence[str]) -> int:
    """Do what `ekiden tasks TARGET` was told; the exit code."""
    screen = Screen()

    def with_task(
        task_id: str, work: "Callable[[Conversation, TaskHandle, TaskSnapshot], Awaitable[T]]"
    ) -> T:
        async def found(with_: Conversation) -> T:
            task = with_.client.task(task_id)
            return await work(with_, task, await _look_up(task))

        return converse(options, screen, found)

    match words:
        case ["get", task_id]:
            screen.json(msgspec.to_builtins(with_task(task_id, _get)))
        case ["cancel", task_id]:
            say(with_task(task_id, _cancel))
        case ["answer", task_id]:
            say(with_task(task_id, _answer))
        case ["wait", task_id]:
            result = with_task(task_id, lambda with_, task, _: _wait(options, with_, task))
            return show_ended(options, screen, result, "task")
        case _:
            raise UsageError("say TARGET get|wait|answer|cancel ID, or --store URL list|get|cancel")
    return 0


async def _look_up(task: "TaskHandle") -> "TaskSnapshot":
    """The task as it is now, or an error if the server has no such task."""
    try:
        return await task.status()
    except ServerError as error:
        if error.code == InvalidParams.default_code:
            raise UsageError(f"the server has no task {task.id!r} of yours: {error}") from None
        if error.code == MethodNotFound.default_code:
            raise UsageError("the server has no tasks") from None
        raise


async def _get(_with: Conversation, _task: "TaskHandle", found: "TaskSnapshot") -> "TaskSnapshot":
    return found


async def _wait(options: AskedOptions, with_: Conversation, task: "TaskHandle") -> "CallToolResult":
    shown = TaskScreen(with_.screen, verbose=options.verbose)
    return await task.wait(on_status=shown.show, answer=with_.responder.respond_all)


async def _cancel(_with: Conversation, task: "TaskHandle", found: "TaskSnapshot") -> str:
    """Cancel a task; what that came to."""
    if found.ended:
        state = in_words(found, message=False)
        return f"task {task.id} had ended already: {state}; nothing was cancelled"
    await task.cancel()
    after = await task.status()
    if after.status == "cancelled":
        return f"task {task.id} was cancelled"
    if after.ended:
        return f"task {task.id} ended before it could be cancelled: {in_words(after)}"
    return f"task {task.id} was told to stop, and has not stopped yet: {in_words(after)}"


async def _answer(with_: Conversation, task: "TaskHandle", found: "TaskSnapshot") -> str:
    """Answer what a task asks now; what that came to."""
    if with_.client.session.era == "legacy":
        raise UsageError(
            "a server of 2025 asks only while somebody waits for the task: say wait instead of answer, "
            "with the same answers"
        )
    if not found.input_requests:
        raise UsageError(f"task {task.id} asks nothing: {in_words(found)}")
    responses = await with_.responder.respond_some(found.input_requests)
    await task.answer(responses)
    said = ", ".join(repr(question_text(found.input_requests[key])) for key in responses)
    return f"answered {said}; task {task.id}: {in_words(await task.status())}"
