"""Probes: whether the process lives, and whether it should be sent requests."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ekiden import Server, StoreUnavailable
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from scripts.ports import free_port
from scripts.postgres import running_postgres
from tests.cli.driving import SHOP, eventually, running
from tests.serving import PATIENCE, served


async def probe(base: str, path: str, **headers: str) -> tuple[int, str]:
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        response = await client.get(f"{base}{path}", headers=headers)
        return response.status_code, response.text


async def test_a_server_that_serves_is_alive_and_ready_under_whatever_name() -> None:
    async with served(Server("s", store=MemoryStore())) as base:
        for host in ("localhost", "10.1.2.3:8000"):
            assert await probe(base, "/healthz", host=host) == (200, "ok\n")
            assert await probe(base, "/readyz", host=host) == (200, "ready\n")
        assert (await probe(base, "/mcp", host="10.1.2.3"))[0] == 421, "only the probes are let through"


class Faulty(MemoryStore):
    """A store that is away when a test wants it to be."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.is_away = False

    async def look(self, round_id: str, history: str, *, now: float) -> Any:
        self.asked += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().look(round_id, history, now=now)


async def test_it_is_not_ready_while_its_store_is_away_but_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ekiden.server.operations.health._REMEMBERED_SECONDS", 0.0)
    store = Faulty()
    async with served(Server("s", store=store)) as base:
        store.is_away = True
        assert await probe(base, "/readyz") == (503, "the store cannot be reached\n")
        assert await probe(base, "/healthz") == (200, "ok\n")
        store.is_away = False
        assert await probe(base, "/readyz") == (200, "ready\n")


async def test_many_probes_ask_the_store_once() -> None:
    store = Faulty()
    async with served(Server("s", store=store)) as base:
        answers = await asyncio.gather(*(probe(base, "/readyz") for _ in range(20)))
    assert set(answers) == {(200, "ready\n")}
    assert store.asked <= 2, "an answer counts for a second"


async def test_a_real_postgres_that_stops_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ekiden.server.operations.health._REMEMBERED_SECONDS", 0.0)
    with running_postgres() as postgres:
        store = PostgresStore(postgres.new_database())
        await store.migrate()
        try:
            async with served(Server("s", store=store)) as base:
                assert await probe(base, "/readyz") == (200, "ready\n")
                await asyncio.to_thread(postgres.stop)
                assert await probe(base, "/readyz") == (503, "the store cannot be reached\n")
                await asyncio.to_thread(postgres.start)
                async with asyncio.timeout(4 * PATIENCE):
                    while await probe(base, "/readyz") != (200, "ready\n"):
                        await asyncio.sleep(0.05)
        finally:
            await store.close()


async def test_it_is_not_ready_before_the_start_and_while_it_shuts_down() -> None:
    server = Server("s")
    assert server.endpoint.unready() == "not started"
    async with server.running():
        assert server.endpoint.unready() is None
        server.endpoint.drain()
        assert server.endpoint.unready() == "shutting down"
    async with server.running():
        assert server.endpoint.unready() is None, "it can start again"


def test_the_probes_can_be_left_out_and_stay_out_of_a_router_of_yours() -> None:
    assert "/healthz" not in Server("s").asgi(health=False).gate.routes
    assert "/healthz" not in Server("s").asgi(path=None).gate.routes


def test_the_real_command_answers_probes(tmp_path: Path) -> None:
    port = free_port()

    def ready() -> bool:
        try:
            return (
                httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=5).status_code == 200
            )
        except httpx2.TransportError:
            return False

    with running(tmp_path / "log", "run", SHOP, "--port", str(port), "--workers", "2") as server:
        eventually(ready, "it is ready")
        os.kill(server.process.pid, signal.SIGTERM)
        eventually(lambda: not ready(), "it is not ready any more")
