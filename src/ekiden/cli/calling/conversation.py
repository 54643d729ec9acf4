"""A client of the target, and somebody who answers what the server asks: as long as one command takes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ekiden.cli.targets import TargetOptions, open_client
from ekiden.cli.terminal.answers import read_answers
from ekiden.cli.terminal.asking import Responder
from ekiden.cli.terminal.screen import Screen, one_line, say
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from ekiden.client.client import Client

__all__ = ["AskedOptions", "Conversation", "converse"]

T = TypeVar("T")


class AskedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a command was told that may be asked something."""

    connection: TargetOptions
    answers: Path | None = None
    answer: Sequence[str] = ()
    roots: Sequence[str] = ()
    max_rounds: int = 100
    save_to: Path = Path()
    json: bool = False
    verbose: bool = False


class Conversation(msgspec.Struct):
    """Who talks, and where it is shown."""

    client: "Client"
    responder: Responder
    screen: Screen


def converse(options: AskedOptions, screen: Screen, work: Callable[[Conversation], Awaitable[T]]) -> T:
    """What `work` comes to."""
    if not options.save_to.is_dir():  # Told before the call, whose pictures would be lost.
        raise UsageError(f"--save-to {options.save_to}: there is no such folder")
    try:
        return asyncio.run(_converse(options, screen, work))
    except KeyboardInterrupt:
        screen.clear()
        say(f"interrupted; {options.connection.fate}")
        raise
    finally:
        screen.clear()


async def _converse(options: AskedOptions, screen: Screen, work: Callable[[Conversation], Awaitable[T]]) -> T:
    responder = Responder(read_answers(options.answers, options.answer), screen, _uris(options.roots))
    responder.call = asyncio.current_task()
    listening = {"on_log": _log_to(screen)} if options.verbose else {}
    try:
        async with open_client(options.connection, responder, **listening) as client:
            name = one_line(client.session.server_info.get("name") or "The server")
            responder.server = f"{name} ({options.connection.target})"
            return await work(Conversation(client, responder, screen))
    except asyncio.CancelledError:
        if responder.failure is not None:
            raise responder.failure from None
        raise


def _log_to(screen: Screen) -> Callable[[JsonObject], None]:
    def log(params: JsonObject) -> None:
        screen.note(one_line(f"log {params.get('level')}: {params.get('data')}"), style="dim")

    return log


def _uris(roots: Sequence[str]) -> list[str]:
    return [root if "://" in root else Path(root).resolve().as_uri() for root in roots]
