"""`tasks/list` for clients with a handshake: only the rows of who asks are read."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx2

from ekiden import Context, Request, Server
from ekiden.rounds.outcome import Complete
from ekiden.server.tasks.legacy import LegacyTasks
from ekiden.stores.memory.tasks import MemoryTasks
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import Glance
from ekiden.testing.task_contract import new_record
from tests.eras.old_client import OldClient
from tests.serving import served, soon


class CountingTasks(MemoryTasks):
    """Counts the rows that were given out."""

    given = 0

    async def listing(self, **which: Any) -> Sequence[TaskRecord]:
        found = await super().listing(**which)
        self.given += len(found)
        return found


async def test_a_list_reads_no_foreign_rows() -> None:
    store = CountingTasks()

    async def visible(task_id: str, principal: str) -> Glance | None:
        return await store.glance(task_id)

    for number in range(300):
        await store.insert(new_record(f"foreign {number}", principal="bob"), {})
    for number in range(150):
        record = new_record(f"mine {number:03}", principal="alice", created=1000.0 + number)
        await store.insert(record, {})
    tasks: Any = SimpleNamespace(
        store=store,
        audience="server",
        visible=visible,
        principal_of=lambda request: request.who,
        scopes_of=lambda record: frozenset(),
    )
    legacy = LegacyTasks(tasks)

    async def page(principal: str, cursor: str | None = None) -> Any:
        request: Any = SimpleNamespace(who=principal, principal=None)
        outcome = await legacy.list(request, cursor)
        assert isinstance(outcome, Complete)
        return outcome.result

    assert await page("carol") == {"tasks": []}
    assert store.given == 0
    first = await page("alice")
    assert (len(first["tasks"]), first["nextCursor"]) == (100, "mine 050")
    last = await page("alice", "mine 050")
    assert [task["taskId"] for task in last["tasks"]] == [f"mine {n:03}" for n in range(49, -1, -1)]
    assert "nextCursor" not in last
    assert store.given == 101 + 50


async def test_who_has_no_principal_is_shown_no_tasks_where_others_have_one() -> None:
    def by_header(request: Request) -> str | None:
        return request.header("x-user")

    server = Server("mixed", keys=[b"k" * 32], store="memory:", principal=by_header)

    @server.tool(task="optional")
    async def look(ctx: Context) -> str:
        return "the balance is 4711"

    async with served(server) as base, httpx2.AsyncClient(trust_env=False) as http:
        listed: dict[str, list[str]] = {}
        made: dict[str, str] = {}
        for who in ("", "ada", "another", "bob"):
            client = OldClient(base, http)
            client.more = {"x-user": who} if who in ("ada", "bob") else {}
            await client.open()
            call = {"name": "look", "arguments": {}, "task": {}}
            made[who] = (await client.ask("tools/call", call))["result"]["task"]["taskId"]
            await soon(client.ask("tasks/result", {"taskId": made[who]}))
            tasks = (await client.ask("tasks/list"))["result"]["tasks"]
            listed[who] = [task["taskId"] for task in tasks]
    assert listed == {"": [], "ada": [made["ada"]], "another": [], "bob": [made["bob"]]}
