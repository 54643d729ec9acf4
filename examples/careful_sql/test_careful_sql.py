"""Run with `DATABASE_URL` of a Postgres in which a schema of its own can be made and dropped."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from database import Effect, apply, dry_run

from ekiden import Server
from ekiden.testing import DECLINE, Replicas, ScriptedClient
from server import change, server

DELETE = "DELETE FROM orders WHERE paid = false"


@pytest.fixture(autouse=True)
async def shop(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Five orders, two of them unpaid, in a schema that this test alone sees."""
    url, schema = os.environ["DATABASE_URL"], f"shop_{uuid.uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
        await connection.execute(f'SET search_path TO "{schema}"'.encode())
        await connection.execute("CREATE TABLE orders (id int PRIMARY KEY, paid bool NOT NULL)")
        await connection.execute("INSERT INTO orders SELECT n, n > 2 FROM generate_series(1, 5) AS n")
        monkeypatch.setenv(
            "DATABASE_URL", f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"
        )
        yield connection
        await connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


async def left(connection: psycopg.AsyncConnection[Any]) -> int:
    row = await (await connection.execute("SELECT count(*) FROM orders")).fetchone()
    assert row is not None
    return int(row[0])


def said(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def changed(answers: Any, statement: str = DELETE, **options: Any) -> str:
    return said(
        await ScriptedClient(server, answers, **options).call_tool("change", {"statement": statement})
    )


async def test_what_was_confirmed_is_done(shop: psycopg.AsyncConnection[Any]) -> None:
    assert await changed({"This is a DELETE of 2 rows": "delete 2"}) == "Done: delete 2."
    assert await left(shop) == 3


@pytest.mark.parametrize("answer", [DECLINE, "yes", "delete 3"])
async def test_without_the_right_words_nothing_is_done(
    shop: psycopg.AsyncConnection[Any], answer: Any
) -> None:
    assert (await changed({"This is a DELETE": answer})).endswith("Nothing was changed.")
    assert await left(shop) == 5


async def test_a_client_that_cannot_ask_changes_nothing(shop: psycopg.AsyncConnection[Any]) -> None:
    client = ScriptedClient(server, capabilities={})
    result = await client.call_tool("change", {"statement": DELETE})
    assert result["isError"]
    assert await left(shop) == 5


async def test_rows_that_came_in_between_are_shown_first(shop: psycopg.AsyncConnection[Any]) -> None:
    shown: list[str] = []

    def answer(key: str, request: dict[str, Any]) -> str:
        shown.append(request["params"]["message"])
        if len(shown) == 1:  # While the user reads, somebody else adds an unpaid order.
            with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
                other.execute("INSERT INTO orders VALUES (6, false)")
        return shown[-1].rsplit("type: ", 1)[1]

    assert await changed(answer) == "Done: delete 3."
    assert ["of 2 rows" in shown[0], "of 3 rows" in shown[1]] == [True, True]
    assert await left(shop) == 3


async def test_the_question_shows_rows_that_it_is_about() -> None:
    client = ScriptedClient(server, {"This is a DELETE": DECLINE})
    await client.call_tool("change", {"statement": DELETE})
    [question] = client.rounds[0].requests.values()
    assert "- id=1, paid=False\n- id=2, paid=False\nTo do it, type: delete 2" in question["params"]["message"]


async def test_a_change_of_the_schema_is_confirmed_by_its_name(shop: psycopg.AsyncConnection[Any]) -> None:
    assert await changed({"This is a DROP TABLE": "drop table"}, "DROP TABLE orders") == "Done: drop table."


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM orders; DROP TABLE orders", "multiple commands"),
        ("COMMIT", "begins with WITH or one of"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "does not. Use `query`"),
        ("DELETE FROM nowhere", 'relation "nowhere" does not exist'),
        ("", "begins with WITH or one of"),
    ],
)
async def test_other_statements_are_refused_in_words(
    shop: psycopg.AsyncConnection[Any], statement: str, says: str
) -> None:
    assert says in await changed({}, statement)
    assert await left(shop) == 5


async def test_reading_cannot_change(shop: psycopg.AsyncConnection[Any]) -> None:
    result = await ScriptedClient(server).call_tool("query", {"statement": f"{DELETE} RETURNING id"})
    assert "read-only transaction" in said(result)
    rows = await ScriptedClient(server).call_tool(
        "query", {"statement": "SELECT id FROM orders WHERE NOT paid"}
    )
    assert rows["structuredContent"] == [{"id": "1"}, {"id": "2"}]
    assert await left(shop) == 5


async def test_each_round_may_be_served_by_another_worker(shop: psycopg.AsyncConnection[Any]) -> None:
    def make_server() -> Server:
        worker = Server("careful-sql", keys=[b"k" * 32])
        worker.tool(change)
        return worker

    replicas = Replicas(make_server, count=3)
    result = await replicas.client({"This is a DELETE": "delete 2"}).call_tool(
        "change", {"statement": DELETE}
    )
    assert said(result) == "Done: delete 2."
    assert replicas.served == [0, 1]


class Step:
    """As much of a context as a step of ours looks at."""

    step_key = "the same key"


async def test_a_step_that_runs_again_after_its_commit_changes_nothing(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    seen = await dry_run(DELETE)
    first = await apply(DELETE, seen, Step())  # type: ignore[arg-type]
    await shop.execute("INSERT INTO orders VALUES (1, false), (2, false)")
    again = await apply(DELETE, seen, Step())  # type: ignore[arg-type]
    assert first == again == Effect(command="DELETE", rows=2, shown=seen.shown, made=True)
    assert await left(shop) == 5


async def test_two_workers_at_the_same_step_make_one_change(shop: psycopg.AsyncConnection[Any]) -> None:
    seen = await dry_run(DELETE)
    both = await asyncio.gather(*(apply(DELETE, seen, Step()) for _ in range(2)))  # type: ignore[arg-type]
    assert both[0] == both[1]
    assert both[0].made
