"""Gateways and upstreams in processes of their own. Every wait is bounded, and every process is ended."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

from scripts.ports import free_port
from tests.warm import WarmProcess, python

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
"""Until a process is ready, with all that it starts itself, on a busy machine."""
STOP_SECONDS = 20.0


class Running:
    """A server in a process of its own, which can be killed and started again at the same port."""

    def __init__(self, arguments: list[str], log: Path, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._words = ["-m", "ekiden.cli", *arguments, "--port", str(self.port), "--log-level", "warning"]
        self._environment = {**os.environ, **environment}
        self.log = log
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    async def start(self) -> None:
        with self.log.open("ab") as stderr:
            self._process = python(*self._words, env=self._environment, cwd=ROOT, stderr=stderr)
        async with asyncio.timeout(START_SECONDS), httpx2.AsyncClient() as client:
            while not await self._is_ready(client):
                assert self._process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.05)

    async def _is_ready(self, client: httpx2.AsyncClient) -> bool:
        try:
            return (await client.get(f"http://127.0.0.1:{self.port}/readyz")).status_code == 200
        except httpx2.TransportError:
            return False

    def children(self) -> list[psutil.Process]:
        """The processes that it has started itself."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """End it in order; its exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        finally:
            self.kill()


@asynccontextmanager
async def running(arguments: list[str], log: Path, **environment: str) -> AsyncGenerator[Running, None]:
    server = Running(arguments, log, **environment)
    try:
        await server.start()
        yield server
    finally:
        server.kill()


def config(folder: Path, **servers: Any) -> str:
    """A file of servers; its path."""
    file = folder / f"{'-'.join(servers)}.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)
