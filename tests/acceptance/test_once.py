"""Rounds that come twice: lost replies, eager clients, crashes, and clients that change their answers."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ekiden import Context, RegistrationError, RoundLimits, Server
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed
from tests.acceptance.driving import (
    PATIENCE,
    Client,
    accept,
    call,
    error_text,
    messages,
    new_server,
    post,
    process,
    served,
    soon,
    text,
)

Make = Callable[..., Server]


@pytest.fixture(params=["nothing", "memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """What a server remembers its rounds in; two servers that are given the same share it."""
    if request.param == "nothing":
        return None
    return MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/rounds.db"


@pytest.fixture(params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store that several instances have in common."""
    return MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/rounds.db"


def shop(ran: Counter[str], store: Any = None, once: Any = "auto", **options: Any) -> Server:
    """Asks for an item, orders it in a step, asks whether to gift-wrap it, and ships it in a step."""
    server = new_server(store=store, **options)

    @server.tool(once=once)
    async def tool(ctx: Context) -> str:
        ran["handler"] += 1

        async def order(what: str) -> int:
            ran[f"order {what}"] += 1
            await asyncio.sleep(0)
            return 40 + ran[f"order {what}"]

        def ship(number: int) -> str:
            ran["ship"] += 1
            return f"shipped {number}"

        item = await ctx.elicit("Which item?", str, key="item")
        number = await ctx.step(order, str(item.data))
        wrap = await ctx.elicit("Wrap it?", bool, key="wrap")
        return f"{await ctx.step(ship, number)} {wrap.data}"

    return server


async def test_a_round_whose_reply_was_lost_is_repeated_without_its_steps(store: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(shop(ran, store))
    first = await client.ask("tool")
    second = await client.retry(first, {"item": accept("tea")})
    repeated = await client.retry(first, {"item": accept("tea")})
    assert ran["order tea"] == 1
    assert repeated.requests == second.requests
    for state in (second, repeated):
        assert text(await client.retry(state, {"wrap": accept(True)})) == "shipped 41 True"
    assert ran["order tea"] == ran["ship"] == 1


async def test_the_last_round_repeated_gives_the_same_result_under_the_new_id(store: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(shop(ran, store))
    first = await client.ask("tool")
    second = await client.retry(first, {"item": accept("tea")})
    results = [(await client.retry(second, {"wrap": accept(True)})).result for _ in range(5)]
    assert all(result == results[0] for result in results)
    assert text(results[0]) == "shipped 41 True"
    assert ran["ship"] == 1


async def test_the_id_of_a_repeat_is_its_own() -> None:
    ran: Counter[str] = Counter()
    async with shop(ran).connect() as channel:
        await channel.send(call("tool", {}, 1))
        state = (await soon(channel.receive()))["result"]["requestState"]
        replies = []
        for request_id in (2, "three", 4):
            retry = {"inputResponses": {"item": accept("tea")}, "requestState": state}
            await channel.send(call("tool", {}, request_id, **retry))
            replies.append(await soon(channel.receive()))
    assert [reply["id"] for reply in replies] == [2, "three", 4]
    assert ran["order tea"] == 1


async def test_a_repeat_gets_the_final_message_and_not_the_notifications() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        await ctx.progress(1)

        def work() -> int:
            return 1

        await ctx.step(work)
        await ctx.progress(2)
        return "done"

    client = Client(server, meta={"progressToken": "t"})
    first = await client.ask("tool")
    done = await client.retry(first, {"k": accept(True)})
    again = await client.retry(first, {"k": accept(True)})
    assert [note["params"]["progress"] for note in done.notifications] == [1, 2]
    assert again.notifications == []
    assert again.result == done.result


async def test_what_was_drawn_before_a_step_is_the_same_in_a_repeat(store: Any) -> None:
    ran: list[str] = []

    def make() -> Server:
        server = new_server(store=store)

        @server.tool
        async def tool(ctx: Context) -> str:
            def pay(token: str) -> str:
                ran.append(token)
                return token

            await ctx.elicit("ok?", bool, key="k")
            token = f"{ctx.uuid()} {ctx.now()} {ctx.random()}"
            return str(token == await ctx.step(pay, token))

        return server

    server = make()
    clients = [Client(server), Client(server if store is None else make())]
    first = await clients[0].ask("tool")
    for client in clients * 2:
        assert text(await client.retry(first, {"k": accept(True)})) == "True"
    assert len(ran) == 1


async def test_a_repeat_with_other_answers_is_refused(store: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(shop(ran, store))
    first = await client.ask("tool")
    await client.retry(first, {"item": accept("tea")})
    for other in (accept("coffee"), {"action": "decline"}):
        error = await client.refused(inputResponses={"item": other}, requestState=first.state)
        assert error.code == -32602
    assert ran["order tea"] == 1
    assert ran["order coffee"] == 0


async def test_answers_that_are_spelled_otherwise_are_equal() -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
        one, other = await asyncio.gather(ctx.elicit("x", schema, key="x"), ctx.elicit("y", schema, key="y"))

        def work() -> int:
            ran.append(1)
            return 1

        await ctx.step(work)
        return f"{one.data['a']:g} {other.data['b']:g}"

    client = Client(server)
    first = await client.ask("tool")
    one = {"x": accept(a=1, b=2), "y": accept(a=3, b=4)}
    other = {"y": accept(b=4.0, a=3), "x": accept(b=2, a=1.0)}
    assert text(await client.retry(first, one)) == "1 4"
    assert text(await client.retry(first, other)) == "1 4"
    assert ran == [1]


async def test_a_repeat_on_another_instance_finds_the_steps_in_the_store(shared: Any) -> None:
    ran: Counter[str] = Counter()
    instances = [Client(shop(ran, shared)) for _ in range(3)]
    first = await instances[0].ask("tool")
    seconds = [await client.retry(first, {"item": accept("tea")}) for client in instances]
    lasts = [await client.retry(seconds[0], {"wrap": accept(False)}) for client in instances]
    assert {text(last) for last in lasts} == {"shipped 41 False"}
    assert ran["order tea"] == ran["ship"] == 1
    error = await instances[2].refused(inputResponses={"wrap": accept(True)}, requestState=seconds[0].state)
    assert error.code == -32602


async def test_a_thousand_repeats_at_once_run_the_steps_once(store: Any) -> None:
    ran: Counter[str] = Counter()
    instances = [shop(ran, store)] * 2 if store is None else [shop(ran, store), shop(ran, store)]
    clients = [Client(server) for server in instances]
    first = await clients[0].ask("tool")
    second = await clients[0].retry(first, {"item": accept("tea")})
    played = await asyncio.gather(
        *(clients[n % 2].retry(second, {"wrap": accept(True)}) for n in range(1_000))
    )
    assert {text(one) for one in played} == {"shipped 41 True"}
    assert ran["ship"] == 1


async def test_of_many_at_once_with_different_answers_one_wins(shared: Any) -> None:
    ran: Counter[str] = Counter()
    clients = [Client(shop(ran, shared)) for _ in range(2)]
    first = await clients[0].ask("tool")

    async def play(n: int) -> str:
        try:
            played = await clients[n % 2].retry(first, {"item": accept(f"item {n % 10}")})
        except CallFailed as error:
            return str(error.code)
        return ",".join(messages(played))

    ends = Counter(await asyncio.gather(*(play(n) for n in range(100))))
    assert ends == {"Wrap it?": 10, "-32602": 90}
    assert sum(count for what, count in ran.items() if what.startswith("order")) == 1


async def test_while_the_first_runs_a_repeat_waits(store: Any) -> None:
    server = new_server(store=store)
    begun, release = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def work() -> str:
            ran.append(1)
            begun.set()
            await release.wait()
            return "worked"

        await ctx.elicit("ok?", bool, key="k")
        return await ctx.step(work)

    client = Client(server)
    first = await client.ask("tool")
    running = asyncio.create_task(client.retry(first, {"k": accept(True)}))
    await soon(begun.wait())
    repeats = [asyncio.create_task(client.retry(first, {"k": accept(True)})) for _ in range(5)]
    done, _ = await asyncio.wait(repeats, timeout=0.1)
    assert not done
    release.set()
    assert text(await running) == "worked"
    assert {text(await repeat) for repeat in repeats} == {"worked"}
    assert ran == [1]


async def test_an_error_after_a_step_is_remembered_with_it(store: Any) -> None:
    server = new_server(store=store)
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def work() -> int:
            ran.append(1)
            return 1

        await ctx.elicit("ok?", bool, key="k")
        await ctx.step(work)
        raise ValueError("after the step")

    client = Client(server)
    first = await client.ask("tool")
    for _ in range(3):
        assert error_text(await client.retry(first, {"k": accept(True)}))
    assert ran == [1]


async def test_a_question_the_client_cannot_be_asked_does_not_make_a_step_run_again(store: Any) -> None:
    server = new_server(store=store)
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def work() -> int:
            ran.append(1)
            return 1

        await ctx.elicit("ok?", bool, key="k")
        await ctx.step(work)
        await ctx.list_roots()
        return "done"

    able, unable = Client(server), Client(server, capabilities={"elicitation": {}})
    first = await able.ask("tool")
    for client in (unable, unable, able):
        try:
            await client.retry(first, {"k": accept(True)})
        except CallFailed as error:
            code = error.code
        else:
            code = -32021
        assert code in (-32021, -32602)
    assert ran == [1]


async def test_a_round_without_steps_is_not_remembered(store: Any) -> None:
    server = new_server(store=store)

    @server.tool
    async def tool(ctx: Context) -> str:
        name = await ctx.elicit("Name?", str, key="name")
        sure = await ctx.elicit("Sure?", bool, key="sure")
        return f"{name.data} {sure.data}"

    client = Client(server)
    first = await client.ask("tool")
    ada = await client.retry(first, {"name": accept("Ada")})
    eve = await client.retry(first, {"name": accept("Eve")})
    assert text(await client.retry(ada, {"sure": accept(True)})) == "Ada True"
    assert text(await client.retry(ada, {"sure": accept(False)})) == "Ada False"
    assert text(await client.retry(eve, {"sure": accept(True)})) == "Eve True"


async def test_prompts_and_resources_run_their_steps_once_too(store: Any) -> None:
    server = new_server(store=store)
    ran: Counter[str] = Counter()

    @server.prompt
    async def prompt(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        return await ctx.step(note, "prompt")

    @server.resource("test://{which}")
    async def resource(which: str, ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        return await ctx.step(note, which)

    def note(what: str) -> str:
        ran[what] += 1
        return f"{what} {ran[what]}"

    client = Client(server)
    for method, params in (
        ("prompts/get", {"name": "prompt"}),
        ("resources/read", {"uri": "test://one"}),
        ("resources/read", {"uri": "test://two"}),
    ):
        first = await client.round(method, params)
        retry = {**params, "inputResponses": {"k": accept(True)}, "requestState": first.state}
        assert (await client.round(method, retry)).result == (await client.round(method, retry)).result
    assert ran == {"prompt": 1, "one": 1, "two": 1}


# once=True


def test_once_needs_a_store() -> None:
    server = new_server()
    with pytest.raises(RegistrationError, match="store"):

        @server.tool(once=True)
        async def tool(ctx: Context) -> str:
            return "never"


async def test_with_once_every_round_is_consumed_though_it_has_no_step(shared: Any) -> None:
    runs: list[int] = []

    def make() -> Server:
        server = new_server(store=shared)

        @server.tool(once=True)
        async def tool(ctx: Context) -> str:
            runs.append(1)
            name = await ctx.elicit("Name?", str, key="name")
            sure = await ctx.elicit("Sure?", bool, key="sure")
            return f"{name.data} {sure.data} {len(runs)}"

        return server

    one, other = Client(make()), Client(make())
    first = await one.ask("tool")
    second = await one.retry(first, {"name": accept("Ada")})
    again = await other.retry(first, {"name": accept("Ada")})
    assert again.result == second.result
    assert len(runs) == 2
    for client in (one, other):
        error = await client.refused(inputResponses={"name": accept("Eve")}, requestState=first.state)
        assert error.code == -32602
    assert text(await other.retry(second, {"sure": accept(True)})) == "Ada True 3"
    assert text(await one.retry(second, {"sure": accept(True)})) == "Ada True 3"
    error = await one.refused(inputResponses={"sure": accept(False)}, requestState=second.state)
    assert error.code == -32602
    assert len(runs) == 3


async def test_with_once_a_round_without_answers_is_consumed_too(shared: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(shop(ran, shared, once=True))
    first = await client.ask("tool")
    again = await client.retry(first, {})
    assert again.requests == first.requests
    error = await client.refused(inputResponses={"item": accept("tea")}, requestState=first.state)
    assert error.code == -32602
    second = await client.retry(again, {"item": accept("tea")})
    assert text(await client.retry(second, {"wrap": accept(True)})) == "shipped 41 True"


async def test_with_once_the_first_call_can_be_repeated(shared: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(shop(ran, shared, once=True))
    one, two = await client.ask("tool"), await client.ask("tool")
    for first in (one, two):
        second = await client.retry(first, {"item": accept("tea")})
        await client.retry(second, {"wrap": accept(True)})
    assert ran["order tea"] == 2


async def test_with_once_a_thousand_at_once_run_the_handler_once(shared: Any) -> None:
    runs: list[int] = []
    server = new_server(store=shared)

    @server.tool(once=True)
    async def tool(ctx: Context) -> str:
        runs.append(1)
        return str((await ctx.elicit("ok?", bool, key="k")).data)

    client = Client(server)
    first = await client.ask("tool")
    played = await asyncio.gather(*(client.retry(first, {"k": accept(True)}) for _ in range(1_000)))
    assert {text(one) for one in played} == {"True"}
    assert len(runs) == 2


# once=False


async def test_without_once_steps_of_a_repeated_round_run_again(store: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(shop(ran, store, once=False))
    first = await client.ask("tool")
    for item in ("tea", "tea", "coffee"):
        assert messages(await client.retry(first, {"item": accept(item)})) == ["Wrap it?"]
    assert ran["order tea"] == 2
    assert ran["order coffee"] == 1


# Clients that leave


@pytest.mark.parametrize("once", ["auto", True])
async def test_a_client_that_leaves_consumes_nothing(shared: Any, once: Any) -> None:
    server = new_server(store=shared)
    began: asyncio.Queue[str] = asyncio.Queue()
    stopped: asyncio.Queue[str] = asyncio.Queue()
    patience = [3600.0]

    @server.tool(once=once)
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("ok?", str, key="k")
        began.put_nowait(str(answer.data))
        try:
            await asyncio.sleep(patience[0])  # Plain I/O.
        except asyncio.CancelledError:
            stopped.put_nowait(str(answer.data))
            raise

        def work() -> str:
            return f"worked for {answer.data}"

        return await ctx.step(work)

    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        leaving = asyncio.create_task(client.retry(first, {"k": accept("Ada")}))
        assert await soon(began.get()) == "Ada"
        leaving.cancel()
        assert await soon(stopped.get()) == "Ada"
        await asyncio.wait([leaving])
        patience[0] = 0
        done = await client.retry(first, {"k": accept("Eve")})
        assert text(done) == "worked for Eve"


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("once", ["auto", True])
async def test_a_step_that_ran_when_its_client_left_is_not_run_again(
    shared: Any, once: Any, draws: bool
) -> None:
    server = new_server(store=shared)
    ran: list[int] = []
    begun, stopped = asyncio.Event(), asyncio.Event()
    patience = [3600.0]

    @server.tool(once=once)
    async def tool(ctx: Context) -> str:
        async def work(_token: str) -> str:
            ran.append(1)
            return "worked"

        await ctx.elicit("ok?", bool, key="k")
        worked = await ctx.step(work, str(ctx.uuid()) if draws else "token")
        begun.set()
        try:
            await asyncio.sleep(patience[0])
        finally:
            stopped.set()
        return worked

    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        leaving = asyncio.create_task(client.retry(first, {"k": accept(True)}))
        await soon(begun.wait())
        leaving.cancel()
        await soon(stopped.wait())
        await asyncio.wait([leaving])
        patience[0] = 0
        assert text(await client.retry(first, {"k": accept(True)})) == "worked"
    assert ran == [1]


async def test_a_client_that_leaves_while_a_step_runs_can_come_back(shared: Any) -> None:
    server = new_server(store=shared)
    begun, release = asyncio.Event(), asyncio.Event()
    ran: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def work() -> str:
            ran["begun"] += 1
            begun.set()
            await release.wait()
            ran["ended"] += 1
            return "worked"

        await ctx.elicit("ok?", bool, key="k")
        return await ctx.step(work)

    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        leaving = asyncio.create_task(client.retry(first, {"k": accept(True)}))
        await soon(begun.wait())
        leaving.cancel()
        back = asyncio.create_task(client.retry(first, {"k": accept(True)}))
        release.set()
        assert text(await back) == "worked"
        await asyncio.wait([leaving])
    assert ran["ended"] == 1


async def test_a_client_that_hangs_up_on_http_consumes_nothing(shared: Any) -> None:
    server = new_server(store=shared)
    began: asyncio.Queue[str] = asyncio.Queue()
    stopped = asyncio.Event()
    patience = [3600.0]

    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("ok?", str, key="k")
        began.put_nowait(str(answer.data))
        try:
            await asyncio.sleep(patience[0])
        except asyncio.CancelledError:
            stopped.set()
            raise

        def work() -> str:
            return f"worked for {answer.data}"

        return await ctx.step(work)

    async with served(server) as url:
        state = (await post(url, call("tool"))).json()["result"]["requestState"]

        def retry(name: str) -> dict[str, Any]:
            return call("tool", {}, 2, inputResponses={"k": accept(name)}, requestState=state)

        leaving = asyncio.create_task(post(url, retry("Ada")))
        assert await soon(began.get()) == "Ada"
        leaving.cancel()
        await soon(stopped.wait())
        patience[0] = 0
        assert text((await post(url, retry("Eve"))).json()["result"]) == "worked for Eve"


# Crashes

_WORKER = """
import asyncio, os, sys
from ekiden import Context, RoundLimits, Server

path, block_at = sys.argv[1], int(sys.argv[2])
server = Server(
    "worker", keys=[b"k" * 32], store=f"sqlite:///{path}/rounds.db", rounds=RoundLimits(lease_seconds=0.5)
)

def note(line):
    with open(f"{path}/journal", "a") as file:
        file.write(line + "\\n")

@server.tool(once=ONCE)
async def tool(ctx: Context) -> str:
    async def work(n: int, token: str) -> int:
        note(f"begun {n} {ctx.step_key}")
        if n == block_at:
            while not os.path.exists(f"{path}/release"):
                await asyncio.sleep(0.01)
        note(f"ended {n}")
        return n * n

    answer = await ctx.elicit("ok?", str, key="k")
    token = TOKEN
    total = sum([await ctx.step(work, n, token) for n in range(6)])
    return f"{answer.data} {total}"

server.run("stdio", grace=0.1)
"""


def worker(*, once: Any = "auto", draws: bool = False) -> str:
    """The script of a process; with `draws`, its steps are given what was drawn before them."""
    token = 'f"{ctx.uuid()} {ctx.now()} {ctx.random()}"' if draws else '"token"'
    return _WORKER.replace("ONCE", repr(once)).replace("TOKEN", token)


async def _until(path: Path, line: str) -> None:
    """Wait until the worker has noted a line that begins so. In a thread: no timer can know when that is."""

    def look() -> None:
        deadline = time.monotonic() + PATIENCE
        while not (path / "journal").exists() or line not in (path / "journal").read_text():
            assert time.monotonic() < deadline, f"never: {line}"
            time.sleep(0.02)

    await asyncio.to_thread(look)


def _noted(path: Path) -> Counter[str]:
    return Counter(" ".join(line.split()[:2]) for line in (path / "journal").read_text().splitlines())


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("once", ["auto", True])
async def test_after_a_kill_in_the_middle_of_the_steps_another_process_goes_on(
    tmp_path: Path, once: Any, draws: bool
) -> None:
    source = worker(once=once, draws=draws)
    async with (
        process(source, str(tmp_path), "3") as victim,
        process(source, str(tmp_path), "-1") as successor,
    ):
        first = (await victim.exchange(call("tool", {}, 1)))["result"]
        retry = {"inputResponses": {"k": accept("Ada")}, "requestState": first["requestState"]}
        await victim.send(call("tool", {}, 2, **retry))
        await _until(tmp_path, "begun 3")
        await victim.killed()
        done = await successor.exchange(call("tool", {}, 3, **retry))
        assert text(done["result"]) == "Ada 55"
        again = await successor.exchange(call("tool", {}, 4, **retry))
        assert again["result"] == done["result"]
        refused = {**retry, "inputResponses": {"k": accept("Eve")}}
        assert (await successor.exchange(call("tool", {}, 5, **refused)))["error"]["code"] == -32602
    noted = _noted(tmp_path)
    assert noted["begun 3"] == 2
    assert all(noted[f"begun {n}"] == 1 for n in (0, 1, 2, 4, 5))
    assert all(noted[f"ended {n}"] == 1 for n in range(6))
    keys = {line.split()[2] for line in (tmp_path / "journal").read_text().splitlines() if "begun 3" in line}
    assert len(keys) == 1, "the step that was tried twice must have one key for the outside"


async def test_after_a_kill_many_repeats_at_once_go_on_once(tmp_path: Path) -> None:
    source = worker()
    async with (
        process(source, str(tmp_path), "3") as victim,
        process(source, str(tmp_path), "-1") as one,
        process(source, str(tmp_path), "-1") as other,
    ):
        first = (await victim.exchange(call("tool", {}, 1)))["result"]
        retry = {"inputResponses": {"k": accept("Ada")}, "requestState": first["requestState"]}
        await victim.send(call("tool", {}, 2, **retry))
        await _until(tmp_path, "begun 3")
        for n in range(20):
            await (one, other)[n % 2].send(call("tool", {}, n, **retry))
        await victim.killed()
        for n in range(20):
            assert text((await (one, other)[n % 2].receive())["result"]) == "Ada 55"
    noted = _noted(tmp_path)
    assert noted["begun 3"] == 2
    assert all(noted[f"ended {n}"] == 1 for n in range(6))


async def test_a_process_that_was_frozen_past_its_lease_does_not_overwrite_its_successor(
    tmp_path: Path,
) -> None:
    source = worker()
    async with (
        process(source, str(tmp_path), "3") as frozen,
        process(source, str(tmp_path), "-1") as successor,
    ):
        first = (await frozen.exchange(call("tool", {}, 1)))["result"]
        retry = {"inputResponses": {"k": accept("Ada")}, "requestState": first["requestState"]}
        await frozen.send(call("tool", {}, 2, **retry))
        await _until(tmp_path, "begun 3")
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            done = await successor.exchange(call("tool", {}, 3, **retry))
            assert text(done["result"]) == "Ada 55"
            (tmp_path / "release").touch()
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        late = await frozen.receive()
        if "result" in late:
            assert late["result"] == done["result"]
        noted = _noted(tmp_path)
        assert all(noted[f"begun {n}"] == 1 for n in (0, 1, 2, 4, 5)), "the frozen one went on with steps"
        again = await successor.exchange(call("tool", {}, 4, **retry))
        assert again["result"] == done["result"]


async def test_a_step_longer_than_the_lease_keeps_it(tmp_path: Path) -> None:
    """A lease is for owners that died, not for owners that are slow."""
    ran: list[int] = []

    def make() -> Server:
        server = new_server(store=f"sqlite:///{tmp_path}/rounds.db", rounds=RoundLimits(lease_seconds=0.3))

        @server.tool
        async def tool(ctx: Context) -> str:
            async def slow() -> str:
                ran.append(1)
                await asyncio.sleep(1.5)
                return "worked"

            await ctx.elicit("ok?", bool, key="k")
            return await ctx.step(slow)

        return server

    one, other = Client(make()), Client(make())
    first = await one.ask("tool")
    played = await asyncio.gather(
        one.retry(first, {"k": accept(True)}), other.retry(first, {"k": accept(True)})
    )
    assert {text(end) for end in played} == {"worked"}
    assert ran == [1]
