"""`ekiden call`: call one tool, round by round, and show its result, or the task that it has become."""

import asyncio
import shlex
from typing import TYPE_CHECKING

from ekiden.cli.arguments import parse_arguments
from ekiden.cli.calling.conversation import AskedOptions, Conversation, converse
from ekiden.cli.calling.names import find_named
from ekiden.cli.calling.rounds import Rounds
from ekiden.cli.terminal.results import show_result
from ekiden.cli.terminal.screen import Screen, one_line, say
from ekiden.cli.terminal.task_status import TaskScreen
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp_types import CallToolResult

    from ekiden.client.tasks.handle import TaskHandle, TaskSnapshot

__all__ = ["call", "show_ended"]


def call(options: AskedOptions, tool: str, words: "Sequence[str]", *, detach: bool) -> int:
    """Call a tool and show its result; the exit code. With `detach`, a task is not waited for."""
    screen = Screen()

    async def work(with_: Conversation) -> "CallToolResult | TaskSnapshot":
        found = await find_named("tool", tool, with_.client.list_tools)
        arguments = parse_arguments(words, found.input_schema)
        return await _call(options, with_, found.name, arguments, detach=detach)

    ended = converse(options, screen, work)
    from ekiden.client.tasks.handle import TaskSnapshot

    if isinstance(ended, TaskSnapshot):
        _show_detached(options, screen, ended)
        return 0
    if detach:
        screen.note("The call has ended: it did not become a task.")
    return show_ended(options, screen, ended, tool)


def show_ended(options: AskedOptions, screen: Screen, result: "CallToolResult", name: str) -> int:
    """Show the result of a tool; the exit code. `name` is for files that are saved."""
    raw = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options.json:
        screen.json(raw)
    else:
        show_result(screen, raw, name, options.save_to)
    return 1 if result.is_error else 0


def _show_detached(options: AskedOptions, screen: Screen, task: "TaskSnapshot") -> None:
    """The id alone on stdout, so that a script can keep it."""
    import msgspec

    if options.json:
        screen.json(msgspec.to_builtins(task))
        return
    task_id = one_line(task.task_id)
    screen.text(task_id)
    target = shlex.quote(options.connection.target)
    say(f"the call goes on as a task; for its result: ekiden tasks {target} wait {shlex.quote(task_id)}")


async def _call(
    options: AskedOptions, with_: Conversation, tool: str, arguments: JsonObject, *, detach: bool
) -> "CallToolResult | TaskSnapshot":
    from ekiden.client.tasks.handle import TaskHandle

    client, progress = with_.client, with_.screen.progress
    ended: CallToolResult | TaskHandle = await Rounds(options, with_).drive(
        lambda: client.start_tool(tool, arguments, progress=progress),
        lambda pending, responses: client.resume(pending, responses, progress=progress),
    )
    if not isinstance(ended, TaskHandle):
        return ended
    return await ended.status() if detach else await _finish(options, with_, ended)


async def _finish(options: AskedOptions, with_: Conversation, task: "TaskHandle") -> "CallToolResult":
    """Wait for the task that the call has become; Ctrl-C or a missing answer cancels it."""
    if options.verbose:
        with_.screen.note(f"task {one_line(task.id)}", style="dim")
    shown = TaskScreen(with_.screen, verbose=options.verbose)
    try:
        return await task.wait(on_status=shown.show, answer=with_.responder.respond_all)
    except asyncio.CancelledError:
        await asyncio.shield(task.try_cancel())
        raise
    except UsageError as error:
        await asyncio.shield(task.try_cancel())
        raise UsageError(
            f"{error}. The call had become a task, which is cancelled now; "
            "with --detach it stays, and `ekiden tasks TARGET answer` answers it later"
        ) from None
