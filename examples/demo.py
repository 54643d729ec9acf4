"""The main job in one command: a call goes on although the process that served it is killed after each round.

Three workers serve `examples/relay.py`. Its tool asks twice. Whoever served a round is killed before the
question is answered, so the next round runs elsewhere. At a terminal you are asked; else `ANSWERS` are given.
"""

import asyncio
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, TextContent
from rich.console import Console
from rich.table import Table

from ekiden import Client, PendingCall
from ekiden.cli.terminal.answers import GivenAnswers
from ekiden.cli.terminal.asking import Responder
from ekiden.cli.terminal.prompting import Terminal
from ekiden.cli.terminal.screen import Screen
from ekiden.client.scripted import question_text
from ekiden.server.sealing.keys import new_key
from ekiden.stores import open_store
from ekiden.stories.store import CallQuery

ANSWERS: dict[str, Any] = {"Seats in": {"seats": 2}, "Pay": {"pay": True}}
SERVER = Path(__file__).parent / "relay.py"

console = Console(highlight=False)


async def main() -> None:
    port = free_port()
    store = f"sqlite:///{tempfile.mkdtemp(prefix='ekiden-demo-')}/store.db"  # It stays, to be looked at.
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        console.print("$ ekiden run examples/relay.py --workers 3", style="bold")
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ekiden.cli", "run", str(SERVER), "--workers", "3", "--port", str(port)),
            env={
                **os.environ,
                "EKIDEN_KEYS": new_key(),
                "EKIDEN_STORE": store,
                "RELAY_LOG": str(log),
                "RELAY_RECORD": "1",
            },
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the demo, which stops the server itself.
        )
        try:
            async with asyncio.timeout(20):
                await says(server, "is served at")
            await call(f"http://127.0.0.1:{port}/mcp", server, log)
        finally:
            server.terminate()
            await server.wait()
    await show_page(store)


def ekiden() -> str:
    """The command, as it is found from here: its folder is on the path if the environment is activated."""
    found = Path(sys.executable).with_name("ekiden")
    return "ekiden" if shutil.which("ekiden") else os.path.relpath(found)


async def show_page(url: str) -> None:
    """Say how to look at the call on a page."""
    store = open_store(url)
    try:
        assert store.stories is not None
        (row,) = await store.stories.listing(CallQuery())
    finally:
        await store.close()
    console.print("To see this call leg by leg, in a browser:", style="bold")
    console.print(f"{ekiden()} ui --store {url} --show-values --call {row.id}", soft_wrap=True)


async def call(url: str, server: asyncio.subprocess.Process, log: Path) -> None:
    """Call the tool round by round; every round is a client and a connection of its own."""
    responder = Responder(GivenAnswers({} if Terminal.is_there() else ANSWERS), Screen(), [])
    responder.server = "relay"
    ends: list[str] = []
    async with Client(url, elicit=responder.elicit) as client:
        ended = await client.start_tool("book", {"city": "Hakone"})
    while isinstance(ended, PendingCall):
        (request,) = ended.requests.values()
        worker = lines_of(log, "round")[-1][2]
        asks = question_text(request)
        console.print(
            f"\nRound {ended.rounds}: process {worker} asks {asks!r}. It is killed.", soft_wrap=True
        )
        os.kill(int(worker), signal.SIGKILL)
        async with asyncio.timeout(20):
            await says(server, f"worker {worker} was ended")
        ends.append("asked, was killed")
        responses = await responder.respond_all(ended.requests)
        for response in responses.values():
            console.print(f"The answer: {response.get('content') or response['action']}")
        async with Client(url, elicit=responder.elicit) as client:
            ended = await client.resume(ended, responses)
    assert isinstance(ended, CallToolResult)
    text = "".join(block.text for block in ended.content if isinstance(block, TextContent))
    console.print(f"\nRound {len(ends) + 1}: {text}\n")
    show(log, [*ends, "answered"])


def show(log: Path, ends: list[str]) -> None:
    """Who did what, as the server's processes wrote it down."""
    rounds = Table("round", "process", "steps that ran in it", "the process", title="Rounds")
    for number, ((_, _, process), end) in enumerate(zip(lines_of(log, "round"), ends, strict=True), 1):
        ran = [name for _, name, where in lines_of(log, "step") if where == process]
        rounds.add_row(str(number), process, ", ".join(ran), end)
    steps = Table("step", "ran", title="Steps")
    for name, times in Counter(name for _, name, _ in lines_of(log, "step")).items():
        steps.add_row(name, "once" if times == 1 else f"{times} times")
    console.print(rounds, steps)


async def says(server: asyncio.subprocess.Process, text: str) -> None:
    """Show what the server says, up to a line with `text` in it."""
    assert server.stderr is not None
    while line := (await server.stderr.readline()).decode():
        console.print(line.rstrip(), style="dim", soft_wrap=True)
        if text in line:
            return
    raise SystemExit("The server has ended.")


def lines_of(log: Path, kind: str) -> list[list[str]]:
    """The rounds or the steps that ran, in order: kind, name, process."""
    return [line.split() for line in log.read_text().splitlines() if line.startswith(kind)]


def free_port() -> int:
    for port in random.sample(range(18000, 19000), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit("No free port between 18000 and 19000")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
