"""Servers that are not ours, and a client of ours for them.

The scripts in `servers/` offer the same tools, prompts and resources with the SDKs of others, so that one
set of tests holds for all of them. One is ours, for comparison.
"""

import asyncio
import contextlib
import runpy
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import mcp_types as types

from ekiden import Client
from scripts.ports import free_port
from tests import warm
from tests.peers import running

SERVERS = running.HERE / "servers"
PATIENCE = 60.0
"""Seconds for anything at all; most things take a few milliseconds."""

Era = Literal["modern", "legacy"]


class Peer(NamedTuple):
    """An SDK that servers are written with."""

    name: str
    title: str
    """For the documentation."""
    environment: str | None
    """Where under `.peers` it lives; ours is here."""
    script: str
    version: str
    """What its server says of itself."""
    eras: tuple[Era, ...]

    def command(self) -> list[str]:
        """How its server is started; a missing environment is a failure, not a reason to skip."""
        if self.environment is None:
            return warm.command(str(SERVERS / self.script))
        environment = running.ROOT / ".peers" / self.environment
        running.require(environment)
        if self.script.endswith(".py"):
            return [str(environment / "bin" / "python"), str(SERVERS / self.script)]
        node = runpy.run_path(str(running.ROOT / "scripts" / "npm.py"))["NODE"]
        return [str(node), str(SERVERS / self.script)]


PEERS = (
    Peer("ekiden", "ekiden", None, "ours.py", "0.1.0", ("modern", "legacy")),
    Peer("mcp-2.3", "mcp 2.3 (Python)", "mcp", "official.py", "2.3.0", ("modern", "legacy")),
    Peer("fastmcp-4.1", "FastMCP 4.1", "fastmcp", "fastmcp4.py", "4.1.2", ("modern", "legacy")),
    Peer(
        "typescript-2.4", "TypeScript SDK 2.4", "typescript", "typescript.mjs", "2.4.0", ("modern", "legacy")
    ),
    Peer("mcp-1.30", "mcp 1.30 (Python)", "mcp1", "official1.py", "1.30.0", ("legacy",)),
    Peer("typescript-1.32", "TypeScript SDK 1.32", "typescript", "typescript1.mjs", "1.32.2", ("legacy",)),
)


class Way(NamedTuple):
    """A server, how it is reached, and in which era."""

    peer: Peer
    transport: Literal["http", "stdio"]
    era: Era

    def __str__(self) -> str:
        era = f"-{self.era}" if len(self.peer.eras) > 1 else ""
        return f"{self.peer.name}{era}-{self.transport}"

    @property
    def mode(self) -> Literal["auto", "legacy"]:
        """What the client is told: nothing, unless it is to speak as clients did before."""
        return "legacy" if self.era == "legacy" and len(self.peer.eras) > 1 else "auto"


WAYS = [Way(peer, transport, era) for peer in PEERS for era in peer.eras for transport in ("http", "stdio")]


class Person:
    """Whoever answers, by fixed rules, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.together: asyncio.Barrier | None = None
        """Where set, nobody answers before so many questions are open at the same time."""
        self.broken = False

    async def elicit(self, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        await self._hear(params.message)
        if params.message in REFUSALS:
            return types.ElicitResult(action=REFUSALS[params.message])
        (field,) = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={field: value_for(params.message)})

    async def elicit_url(self, params: types.ElicitRequestURLParams) -> types.ElicitResult:
        await self._hear(f"{params.message} {params.url}")
        return types.ElicitResult(action="accept")

    async def sample(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = params.messages[-1].content
        assert isinstance(content, types.TextContent)
        await self._hear(content.text)
        words = types.TextContent(text=str(ANSWERS[content.text]))
        return types.CreateMessageResult(role="assistant", model="m", content=words)

    async def roots(self) -> list[types.Root | str]:
        await self._hear("roots")
        return [types.Root(uri="file:///a", name="a"), "file:///b"]

    async def _hear(self, question: str) -> None:
        if self.broken:
            raise RuntimeError("the user's screen is broken")
        self.asked.append(question)
        if self.together is not None:
            await asyncio.wait_for(self.together.wait(), PATIENCE)


REFUSALS: dict[str, Literal["decline", "cancel"]] = {"Order salt?": "decline", "Order soap?": "cancel"}
ANSWERS: dict[str, str | int] = {
    "Order tea?": 2,
    "A haiku": "old pond",
    "Your name?": "Mio",
    "Which city?": "Sendai",
    "How many days in Sendai?": 3,
    "Plan 3 days in Sendai.": "Walk.",
    "Who reads about trains?": "children",
    "The password of mio?": "sesame",
}


def value_for(message: str) -> str | int:
    """The answer to a form; of a numbered lot as many are ordered as its number says."""
    if message.startswith("Order lot "):
        return int(message.removeprefix("Order lot ").removesuffix("?"))
    return ANSWERS[message]


class Visit(NamedTuple):
    """A client of ours at a foreign server."""

    way: Way
    target: str | list[str]
    client: Client
    person: Person
    log: list[dict[str, Any]]

    def another(self, **options: Any) -> Client:
        """One more client of the same server; over stdio it is another process."""
        return Client(self.target, mode=self.way.mode, timeout=PATIENCE, **options)


@contextlib.asynccontextmanager
async def visiting(way: Way, folder: Path) -> AsyncIterator[Visit]:
    """Start a server, and a client of it with all the callbacks there are."""
    with contextlib.ExitStack() as stack:
        target: str | list[str] = [*way.peer.command(), "stdio"]
        if way.transport == "http":
            target = stack.enter_context(http_server(way.peer.command(), folder / "log"))
        person, log = Person(), list[dict[str, Any]]()
        visit = Visit(way, target, Client("unused"), person, log)
        client = visit.another(
            elicit=person.elicit,
            elicit_url=person.elicit_url,
            sample=person.sample,
            roots=person.roots,
            on_log=log.append,
        )
        async with client:
            yield visit._replace(client=client)


@contextlib.contextmanager
def http_server(command: list[str], log: Path) -> Iterator[str]:
    """The URL of a foreign server, which is stopped in the end."""
    port = free_port()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "http", str(port)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        running.await_listening(process, port, log)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(running.STOP_SECONDS)
