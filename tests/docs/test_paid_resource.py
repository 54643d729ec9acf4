"""The example of a paid resource, served by real workers that are killed while the user thinks."""

import asyncio
import re
from pathlib import Path

import psutil
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client
from ekiden.server.sealing.keys import new_key
from tests.cli.driving import running

SERVER = Path(__file__).parent.parent.parent / "examples" / "paid_resource" / "paid_resource.py"


async def test_a_project_is_created_once_although_every_worker_was_killed(tmp_path: Path) -> None:
    settings = {"EKIDEN_KEYS": new_key(), "CLOUD_FILE": str(tmp_path / "cloud.db")}
    store = f"sqlite:///{tmp_path}/rounds.db"
    words = ("run", str(SERVER), "--workers", "2", "--port", "0")
    with running(tmp_path / "log", *words, cwd=tmp_path, forks=False, STORE=store, **settings) as server:
        server.await_saying("is served at")
        url = re.findall(r"is served at (\S+)", server.said)[0]
        parent = int(re.findall(r"workers of process (\d+)", server.said)[0])
        killed: list[int] = []

        async def agree(params: ElicitRequestFormParams) -> ElicitResult:
            assert params.message == "blog in tokyo costs 10.00 a month. Create it?"
            workers = psutil.Process(parent).children()
            for worker in workers:
                worker.kill()
                killed.append(worker.pid)
            await asyncio.to_thread(psutil.wait_procs, workers, 30)  # Until then they hold connections.
            await asyncio.to_thread(server.await_saying, "another one starts")
            return ElicitResult(action="accept", content={"create": True})

        async with Client(url, elicit=agree) as client:
            result = await client.call_tool("create_project", {"name": "blog", "region": "tokyo"})
        assert [block.text for block in result.content] == ["blog was created in tokyo, for 10.00 a month."]
        assert len(killed) >= 2
