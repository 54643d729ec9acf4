"""The official Inspector beside the page, set to call the server as a client of 2026."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ekiden.errors import UsageError

__all__ = ["check_inspector", "inspecting"]

_PACKAGE: Final = "@modelcontextprotocol/inspector@2"
"""Its second generation: the first knows only clients of 2025."""
_END_SECONDS: Final = 5.0


def check_inspector() -> None:
    """Raise now if the Inspector cannot be started."""
    if shutil.which("npx") is None:
        raise UsageError("--inspector needs Node 22.19 or later: there is no npx here")


@contextlib.asynccontextmanager
async def inspecting(url: str, headers: Mapping[str, str], *, opens: bool) -> AsyncGenerator[None]:
    """Run the Inspector while the block runs. It prints its own address, and is downloaded the first time."""
    with tempfile.TemporaryDirectory(prefix="ekiden-inspector-") as folder:
        settings = _written(Path(folder, "mcp.json"), url, headers)
        process = await asyncio.create_subprocess_exec(
            *("npx", "--yes", _PACKAGE, "--web", "--config", str(settings)),
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, "MCP_AUTO_OPEN_ENABLED": "true" if opens else "false"},
            process_group=0,
        )
        try:
            yield
        finally:
            await _end(process)


def _written(path: Path, url: str, headers: Mapping[str, str]) -> Path:
    """The file that tells it of the server, in a folder that nobody else can read."""
    entry = {"type": "http", "url": url, "protocolEra": "modern", "headers": dict(headers)}
    path.write_bytes(msgspec.json.encode({"mcpServers": {"ekiden-dev": entry}}))
    return path


async def _end(process: asyncio.subprocess.Process) -> None:
    """End npx and what it has started: they are one group."""
    for number, seconds in ((signal.SIGTERM, _END_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()
                return
