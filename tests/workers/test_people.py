"""People answer at several processes at once: one answer is taken, and the call goes on with it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp_types import TextContent

from ekiden import Client
from scripts.ports import free_port
from tests.peers.running import await_listening

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow

BOOKING = {"/name": "Aiko", "/seats": "2", "/meal": '"rice"', "/quiet": "true"}


@pytest.fixture(params=["sqlite", "postgres"])
def origins(request: pytest.FixtureRequest, key: str, tmp_path: Path) -> Iterator[list[str]]:
    """Three processes of one server, each at a port of its own; the links lead to the first."""
    store = f"sqlite:///{tmp_path}/people.db"
    if request.param == "postgres":
        store = request.getfixturevalue("database")
    ports = [free_port() for _ in range(3)]
    made = [f"http://127.0.0.1:{port}" for port in ports]
    environment = {**os.environ, "EKIDEN_KEYS": key, "PEOPLE_STORE": store, "PEOPLE_ORIGIN": made[0]}
    running: list[subprocess.Popen[bytes]] = []
    for port in ports:
        command = [sys.executable, "-m", "ekiden.cli", "run", "examples/people.py", "--port", str(port)]
        with (tmp_path / f"{port}.log").open("wb") as log:
            running.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log))
    try:
        for process, port in zip(running, ports, strict=True):
            await_listening(process, port, tmp_path / f"{port}.log")
        yield made
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(30)


async def called(origin: str) -> str:
    async with Client(f"{origin}/mcp") as client:
        content = (await client.call_tool("book", {"to": "Sendai"})).content[0]
        assert isinstance(content, TextContent)
        return content.text


async def sent(link: str, origin: str, seats: int) -> int:
    """The status of an answer that is given at another process than the link leads to."""
    at = re.sub(r"^http://[^/]+", origin, link)
    async with httpx2.AsyncClient(timeout=60.0) as browser:
        page = await browser.get(at)
        code = page.text.partition('name="form_code" value="')[2].partition('"')[0]
        form = {**BOOKING, "/seats": str(seats), "form_code": code, "action": "accept"}
        answered = await browser.post(at, data=form, headers={"origin": origin})
        return answered.status_code


async def test_of_answers_at_three_processes_one_is_taken_and_the_call_goes_on_with_it(
    origins: list[str],
) -> None:
    [link] = set(re.findall(r"http\S+/ask/\S+", await called(origins[0])))
    statuses = await asyncio.gather(*(sent(link, origins[n % 3], n + 1) for n in range(9)))
    assert statuses.count(303) == 1
    seats = statuses.index(303) + 1
    told = await asyncio.gather(*(called(origin) for origin in origins))
    # The next question is for the office, and says what the taken answer costs.
    assert {f"for {seats * 110} EUR" in words for words in told} == {True}
