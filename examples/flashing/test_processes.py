"""The story over several processes: workers that are killed, and a deploy of a new version in the middle."""

import asyncio
import base64
import os
import random
import re
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import devices
import httpx2
import pytest
from browsing import answer_page, until
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, TaskHandle

HERE = Path(__file__).parent
LINK = re.compile(r"http://\S+/ask/\S+")


async def now(params: ElicitRequestFormParams) -> ElicitResult:
    """The user, who wants it now, and one by one."""
    return ElicitResult(action="accept", content={"starts": "2026-01-01T00:00:00Z", "at_once": 1})


class Site:
    """A fleet, a store and a port: what stays while processes come and go."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.port = port = free_port()
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.environment = {
            **os.environ,
            "EKIDEN_KEYS": base64.b64encode(secrets.token_bytes(32)).decode(),
            "EKIDEN_STORE": f"sqlite:///{folder}/tasks.db",
            "FLEET": str(folder / "fleet"),
            "FLASH_SECONDS": "0.05",
            "LEASE_SECONDS": "1",
            "ORIGIN": f"http://127.0.0.1:{port}",
        }

    @asynccontextmanager
    async def serving(self, file: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process of the server; stopped in order at the end, if it lives then."""
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ekiden.cli", "run", str(file), "--port", str(self.port)),
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
            )
        try:
            await self.logged(re.compile("is served at"))
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def logged(self, pattern: re.Pattern[str]) -> str:
        """What the newest process wrote to its log at last."""

        async def look() -> str | None:
            found = pattern.search(self.log.read_text())
            return None if found is None else found[0]

        try:
            return await until(look)
        except TimeoutError:
            raise AssertionError(self.log.read_text()) from None

    async def start(self) -> str:
        """Call the tool, answer the user's question, and leave; the task in writing."""
        async with Client(self.url, elicit=now) as client:
            handle = await client.start_tool("update", {"firmware": "2.0"})
            assert isinstance(handle, TaskHandle)
            waiting = asyncio.create_task(handle.wait(timeout=60))
            await self.logged(LINK)  # The approver is asked, so the user has been.
            waiting.cancel()
            await asyncio.wait({waiting})
            return handle.to_json()

    async def end(self, written: str) -> str:
        """What the task returned."""
        async with Client(self.url, elicit=now) as client:
            result = await client.task(written).wait(timeout=60)
        [block] = result.content
        return str(getattr(block, "text", block))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Four lamps with firmware 1.0."""
    site = Site(tmp_path)
    monkeypatch.setenv("FLEET", site.environment["FLEET"])
    devices.make_fleet(4)
    return site


async def approve(link: str) -> None:
    async with httpx2.AsyncClient() as browser:
        await answer_page(browser, link, go_on="true")


def free_port() -> int:
    for port in random.sample(range(20_000, 21_000), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no free port")


async def test_however_workers_are_killed_no_device_is_flashed_twice(site: Site) -> None:
    async with site.serving(HERE / "dying.py", DIE="begun lamp-2") as worker:
        written = await site.start()
        await approve(await site.logged(LINK))
        assert await worker.wait() == -signal.SIGKILL
    assert [device.history for device in devices.fleet()] == [["1.0", "2.0"], ["1.0"], ["1.0"], ["1.0"]]
    assert devices.load("lamp-2").writing == "2.0"
    for moment in ("written lamp-2", "before lamp-3"):
        async with site.serving(HERE / "dying.py", DIE=moment) as worker:
            assert await worker.wait() == -signal.SIGKILL
        assert [len(device.history) for device in devices.fleet()] == [2, 2, 1, 1]
    async with site.serving(HERE / "server.py"):
        assert await site.end(written) == "4 devices were flashed with 2.0. 4 of them run it."
    assert [device.history for device in devices.fleet()] == [["1.0", "2.0"]] * 4


def make_version_1(folder: Path) -> Path:
    """Take the change that the README shows back, in a copy."""
    shutil.copy(HERE / "devices.py", folder)
    source = (HERE / "server.py").read_text()
    changes = re.findall(r"```diff\n(.*?)```", (HERE / "README.md").read_text(), re.DOTALL)
    for change in "".join(changes).split("@@\n"):
        lines = change.splitlines()
        new = "\n".join(line[1:] for line in lines if line[0] != "-")
        assert source.count(new) == 1, new
        source = source.replace(new, "\n".join(line[1:] for line in lines if line[0] != "+"))
    (folder / "server.py").write_text(source)
    return folder / "server.py"


async def test_a_task_that_version_1_began_is_ended_by_version_2(site: Site, tmp_path: Path) -> None:
    old = make_version_1(tmp_path)
    assert "checked" not in old.read_text()
    async with site.serving(old):
        written = await site.start()
        link = await site.logged(LINK)
    async with site.serving(HERE / "server.py"):
        async with Client(site.url) as client:
            assert client.session.server_info["version"] == "2.0.0"
        await approve(link)
        assert await site.end(written) == "4 devices were flashed with 2.0."
    assert [device.history for device in devices.fleet()] == [["1.0", "2.0"]] * 4
