"""`ekiden call`: call one tool, round by round, and show its result."""

import asyncio
import difflib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ekiden.cli.arguments import parse_arguments
from ekiden.cli.targets import TargetOptions, open_client
from ekiden.cli.terminal.answers import read_answers
from ekiden.cli.terminal.asking import Responder
from ekiden.cli.terminal.results import show_result
from ekiden.cli.terminal.screen import Screen, say
from ekiden.cli.terminal.task_status import TaskScreen
from ekiden.client.scripted import question_text
from ekiden.errors import EkidenError, MethodNotFound, ProtocolError, TooManyRounds, UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

    from ekiden.client.client import Client
    from ekiden.client.pending import PendingCall
    from ekiden.client.tasks.handle import TaskHandle

__all__ = ["CallOptions", "call"]


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `ekiden call` was told."""

    connection: TargetOptions
    tool: str
    arguments: Sequence[str]
    answers: Path | None
    answer: Sequence[str]
    roots: Sequence[str]
    max_rounds: int
    save_to: Path
    json: bool
    verbose: bool


def call(options: CallOptions) -> int:
    """Call a tool and show its result; the exit code."""
    screen = Screen()
    try:
        result = asyncio.run(_call(options, screen))
    except KeyboardInterrupt:
        screen.clear()
        say("interrupted; the call was cancelled")
        raise
    finally:
        screen.clear()
    raw = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options.json:
        screen.json(raw)
    else:
        show_result(screen, raw, options.tool, options.save_to)
    return 1 if result.is_error else 0


async def _call(options: CallOptions, screen: Screen) -> "CallToolResult":
    responder = Responder(read_answers(options.answers, options.answer), screen, _uris(options.roots))
    responder.call = asyncio.current_task()
    listening = {"on_log": _log_to(screen)} if options.verbose else {}
    try:
        async with open_client(options.connection, responder, **listening) as client:
            responder.server = (
                f"{client.session.server_info.get('name', 'The server')} ({options.connection.target})"
            )
            tool = await _find_tool(client, options.tool)
            arguments = parse_arguments(options.arguments, tool.input_schema)
            return await _Rounds(client, responder, screen, options).drive(tool.name, arguments)
    except asyncio.CancelledError:
        if responder.failure is not None:
            raise responder.failure from None
        raise
    except TimeoutError:
        if (seconds := options.connection.timeout) is None:
            raise
        raise EkidenError(f"the call did not end within {seconds:g} seconds; it was cancelled") from None


async def _find_tool(client: "Client", name: str) -> "Tool":
    try:
        tools = {tool.name: tool for tool in await client.list_tools()}
    except ProtocolError as error:
        if error.code != MethodNotFound.default_code:
            raise
        tools = {}
    if name in tools:
        return tools[name]
    near = difflib.get_close_matches(name, tools, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(tools) or 'none'}"
    raise UsageError(f"the server has no tool {name!r}; {hint}")


class _Rounds:
    """Makes the rounds of one call, and shows each with `--verbose`."""

    def __init__(self, client: "Client", responder: Responder, screen: Screen, options: CallOptions) -> None:
        self._client = client
        self._responder = responder
        self._screen = screen
        self._options = options
        self._began = time.perf_counter()

    async def drive(self, tool: str, arguments: JsonObject) -> "CallToolResult":
        """The result of the last round."""
        from ekiden.client.pending import PendingCall, pace

        progress = self._screen.progress
        ended = await self._client.start_tool(tool, arguments, progress=progress)
        while isinstance(ended, PendingCall):
            self._show_round(ended.rounds, ended)
            if ended.rounds > self._options.max_rounds:
                raise TooManyRounds(
                    f"the call did not end within {self._options.max_rounds} rounds (--max-rounds)"
                )
            if not ended.requests:
                await asyncio.sleep(pace(ended.idle_rounds))
            responses = await self._responder.respond_all(ended.requests)
            rounds, self._began = ended.rounds, time.perf_counter()
            ended = await self._client.resume(ended, responses, progress=progress)
            if not isinstance(ended, PendingCall):
                self._show_round(rounds + 1, None)
                return await self._finish(ended)
        self._show_round(1, None)
        return await self._finish(ended)

    async def _finish(self, ended: "CallToolResult | TaskHandle") -> "CallToolResult":
        """If the call has become a task, wait for it; Ctrl-C cancels the task."""
        from ekiden.client.tasks.handle import TaskHandle

        if not isinstance(ended, TaskHandle):
            return ended
        if self._options.verbose:
            self._screen.note(f"task {ended.id}", style="dim")
        shown = TaskScreen(self._screen, verbose=self._options.verbose)
        try:
            return await ended.wait(on_status=shown.show, answer=self._responder.respond_all)
        except (asyncio.CancelledError, UsageError):
            await asyncio.shield(ended.try_cancel())
            raise

    def _show_round(self, number: int, pending: "PendingCall | None") -> None:
        """One line for a round, and one for each of its questions."""
        if not self._options.verbose:
            return
        self._screen.clear()
        spent = f"round {number}: {(time.perf_counter() - self._began) * 1000:.1f} ms"
        if pending is None:
            self._screen.note(f"{spent}, the result", style="dim")
            return
        asked = f"{len(pending.requests)} asked" if pending.requests else "nothing asked, goes on"
        self._screen.note(f"{spent}, {asked}, state of {len(pending.state or '')} bytes", style="dim")
        for key, request in pending.requests.items():
            self._screen.note(f"  {key}: {request.get('method')}: {question_text(request)}", style="dim")


def _log_to(screen: Screen) -> Callable[[JsonObject], None]:
    def log(params: JsonObject) -> None:
        screen.note(f"log {params.get('level')}: {params.get('data')}", style="dim")

    return log


def _uris(roots: Sequence[str]) -> list[str]:
    return [root if "://" in root else Path(root).resolve().as_uri() for root in roots]
