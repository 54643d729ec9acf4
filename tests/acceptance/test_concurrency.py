"""Handlers that do several things at once, and handlers that do not want to stop."""

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ekiden import Context, Server
from ekiden.testing import CallFailed, Replicas
from tests.acceptance.driving import (
    Client,
    accept,
    call,
    error_text,
    key_of,
    messages,
    new_server,
    only,
    process,
    soon,
    text,
)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Any:
    """asyncio complains of exceptions that nobody retrieved and of tasks destroyed while pending."""
    yield
    complaints = [
        r.getMessage() for r in caplog.records if r.name == "asyncio" and r.levelno >= logging.ERROR
    ]
    assert complaints == []


# How branches are run


async def _with_gather(*branches: Callable[[], Any]) -> list[Any]:
    return list(await asyncio.gather(*(branch() for branch in branches)))


async def _with_task_group(*branches: Callable[[], Any]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch()) for branch in branches]
    return [task.result() for task in tasks]


async def _with_anyio(*branches: Callable[[], Any]) -> list[Any]:
    results: dict[int, Any] = {}

    async def run(n: int, branch: Callable[[], Any]) -> None:
        results[n] = await branch()

    async with anyio.create_task_group() as group:
        for n, branch in enumerate(branches):
            group.start_soon(run, n, branch)
    return [results[n] for n in range(len(branches))]


async def _with_wait(*branches: Callable[[], Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(branch()) for branch in branches]
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def _with_shields(*branches: Callable[[], Any]) -> list[Any]:
    return list(await asyncio.gather(*(asyncio.shield(branch()) for branch in branches)))


_WAYS = [_with_gather, _with_task_group, _with_anyio, _with_wait, _with_shields]


@pytest.mark.parametrize("together", _WAYS)
async def test_branches_that_ask_and_then_step_are_answered_in_either_order(together: Any) -> None:
    ran: Counter[str] = Counter()

    def make() -> Server:
        server = new_server()

        @server.tool
        async def tool(ctx: Context) -> str:
            def note(what: str) -> str:
                ran[what] += 1
                return what

            async def branch(name: str) -> str:
                before = await ctx.step(note, f"before {name}")
                answer = await ctx.elicit(name, str)
                after = await ctx.step(note, f"after {name} {answer.data}")
                return f"{before}, {after}"

            return "; ".join(await together(lambda: branch("a"), lambda: branch("b")))

        return server

    for order in ("ab", "ba"):
        ran.clear()
        client = Client(Replicas(make).next)
        first = await client.ask("tool")
        assert messages(first) == ["a", "b"]
        second = await client.retry(first, {key_of(first, order[0]): accept(order[0].upper())})
        assert messages(second) == [order[1]]
        done = await client.retry(second, {only(second): accept(order[1].upper())})
        assert text(done) == "before a, after a A; before b, after b B"
        assert ran == {"before a": 1, "before b": 1, "after a A": 1, "after b B": 1}


@pytest.mark.parametrize("inner", _WAYS)
@pytest.mark.parametrize("outer", [_with_gather, _with_task_group, _with_anyio])
async def test_branches_within_branches_ask_in_one_round(outer: Any, inner: Any) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def ask(name: str) -> str:
            return str((await ctx.elicit(name, str)).data)

        async def group(name: str) -> str:
            return "".join(await inner(lambda: ask(name + "1"), lambda: ask(name + "2")))

        parts = await outer(lambda: group("a"), lambda: group("b"))
        return " ".join(parts) + await ask("c")

    client = Client(server, lambda _k, r: r["params"]["message"].upper())
    assert text(await client.call_tool("tool")) == "A1A2 B1B2C"
    assert [messages(played) for played in client.rounds] == [["a1", "a2", "b1", "b2"], ["c"], []]


async def test_one_branch_is_rounds_ahead_of_the_other() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def chain(name: str) -> str:
            return "".join([str((await ctx.elicit(f"{name}{n}", str)).data) for n in range(3)])

        return " ".join(await asyncio.gather(chain("a"), chain("b")))

    client = Client(server)
    played = await client.ask("tool")
    for n in range(3):
        assert messages(played) == sorted([f"a{n}", "b0"])
        played = await client.retry(played, {key_of(played, f"a{n}"): accept(f"A{n}")})
    for n in range(3):
        assert messages(played) == [f"b{n}"]
        played = await client.retry(played, {only(played): accept(f"B{n}")})
    assert text(played) == "A0A1A2 B0B1B2"


async def test_a_lock_around_questions_makes_them_one_a_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        lock = asyncio.Lock()

        async def ask(name: str) -> str:
            async with lock:
                return str((await ctx.elicit(name, str)).data)

        return " ".join(await asyncio.gather(ask("a"), ask("b"), ask("c")))

    client = Client(server, lambda _k, r: r["params"]["message"].upper())
    assert text(await client.call_tool("tool")) == "A B C"
    assert len(client.rounds) == 4


async def test_the_first_answer_is_enough_where_the_handler_says_so() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        tasks = {asyncio.ensure_future(ctx.elicit(name, str)) for name in ("a", "b")}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return str(done.pop().result().data)

    client = Client(server)
    first = await client.ask("tool")
    assert messages(first) == ["a", "b"]
    assert text(await client.retry(first, {key_of(first, "b"): accept("B")})) == "B"


async def test_a_question_that_the_handler_has_given_up_is_not_asked() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        given_up = asyncio.ensure_future(ctx.elicit("given up", str))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        await asyncio.sleep(0.05)  # Plain I/O, with nothing pending.
        return "done"

    assert text(await Client(server).ask("tool")) == "done"


async def test_gather_that_returns_exceptions_does_not_swallow_the_end_of_a_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answers = await asyncio.gather(ctx.elicit("a", str), ctx.elicit("b", str), return_exceptions=True)
        if any(isinstance(answer, BaseException) for answer in answers):
            return "swallowed"
        return " ".join(str(answer.data) for answer in answers)  # type: ignore[union-attr]

    client = Client(server, {"a": "A", "b": "B"})
    assert text(await client.call_tool("tool")) == "A B"
    assert len(client.rounds) == 2


# Errors beside questions


@pytest.mark.parametrize("together", [_with_gather, _with_task_group, _with_anyio])
async def test_a_branch_that_raises_beside_a_question_fails_the_call(together: Any) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def fail() -> None:
            raise ValueError("broken")

        await together(lambda: ctx.elicit("never answered", str), fail)
        return "never"

    assert error_text(await Client(server).call_tool("tool"))


class Abort(BaseException):
    """What some libraries raise to get past `except Exception`."""


@pytest.mark.parametrize("raised", [Abort(), asyncio.CancelledError(), StopIteration()], ids=repr)
@pytest.mark.parametrize("where", ["handler", "branch", "step", "step in a thread"])
async def test_whatever_a_handler_raises_the_client_gets_an_answer(raised: BaseException, where: str) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        async def fail() -> str:
            raise raised

        def fail_in_a_thread() -> str:
            raise raised

        await ctx.elicit("ok?", bool, key="k")
        if where == "handler":
            await fail()
        elif where == "branch":
            await asyncio.gather(fail(), fail())
        else:
            await ctx.step(fail if where == "step" else fail_in_a_thread)
        return "never"

    client = Client(server)
    first = await client.ask("tool")
    async with asyncio.timeout(30):
        try:
            played = await client.retry(first, {"k": accept(True)})
        except CallFailed as error:
            code = error.code
        else:
            assert error_text(played)
            code = -32603
    assert code == -32603


async def test_an_except_star_around_a_group_does_not_swallow_the_end_of_a_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answers: list[str] = []

        async def ask(name: str) -> None:
            answers.append(str((await ctx.elicit(name, str)).data))

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask("a"))
                group.create_task(ask("b"))
        except* Exception:
            answers.append("swallowed")
        return " ".join(sorted(answers))

    client = Client(server, {"a": "A", "b": "B"})
    assert text(await client.call_tool("tool")) == "A B"


# Clean-up


async def test_clean_up_code_with_awaits_runs_at_every_suspension() -> None:
    server = new_server()
    opened: list[str] = []

    @asynccontextmanager
    async def connection() -> AsyncGenerator[None, None]:
        opened.append("open")
        try:
            yield
        finally:
            await asyncio.sleep(0.01)
            opened.append("close")

    @server.tool
    async def tool(ctx: Context) -> str:
        async with connection():
            answer = await ctx.elicit("ok?", bool)
        return str(answer.data)

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "True"
    assert opened == ["open", "close"] * 2


@pytest.mark.parametrize("together", _WAYS)
async def test_a_step_in_the_finally_of_a_branch_runs_once(together: Any) -> None:
    server = new_server()
    ran: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context) -> str:
        def tidy(name: str) -> None:
            ran[name] += 1

        async def branch(name: str) -> str:
            try:
                return str((await ctx.elicit(name, str)).data)
            finally:
                await ctx.step(tidy, name)

        return " ".join(await together(lambda: branch("a"), lambda: branch("b")))

    client = Client(server)
    first = await client.ask("tool")
    assert ran == {}
    second = await client.retry(first, {key_of(first, "b"): accept("B")})
    assert ran == {"b": 1}
    assert text(await client.retry(second, {only(second): accept("A")})) == "A B"
    assert ran == {"a": 1, "b": 1}


# Steps beside questions


async def test_a_step_is_not_cut_by_a_siblings_question_nor_by_what_the_sibling_waits_for() -> None:
    server = new_server()
    events: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def pay() -> str:
            events.append("begun")
            for _ in range(20):
                await asyncio.sleep(0.002)
            events.append("paid")
            return "paid"

        async def ask() -> None:
            await ctx.elicit("a", str)

        async def idle() -> None:
            await asyncio.sleep(0.01 if "paid" in events else 3600)

        paid, *_ = await asyncio.gather(ctx.step(pay), ask(), idle())
        return str(paid)

    client = Client(server)
    first = await client.ask("tool")
    assert events == ["begun", "paid"]
    assert text(await client.retry(first, {only(first): accept("A")})) == "paid"
    assert events == ["begun", "paid"]


async def test_many_steps_in_threads_beside_a_question_all_end() -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def work(n: int) -> int:
            ran.append(n)
            return n

        numbers = await asyncio.gather(*(ctx.step(work, n) for n in range(50)), ctx.elicit("ok?", bool))
        return str(sum(numbers[:50]))

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == str(sum(range(50)))
    assert sorted(ran) == list(range(50))


async def test_a_chain_of_steps_that_a_question_interrupts_goes_on_where_it_was() -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def work(n: int) -> int:
            await asyncio.sleep(0.001)
            ran.append(n)
            return n

        async def chain() -> int:
            return sum([await ctx.step(work, n) for n in range(10)])

        total, _ = await asyncio.gather(chain(), ctx.elicit("ok?", bool))
        return str(total)

    assert text(await Client(server, {"ok?": True}).call_tool("tool")) == "45"
    assert ran == list(range(10))


async def test_a_journaled_step_whose_branch_is_not_there_yet_is_not_missed() -> None:
    """In the second round the round ends while a branch is still on its way to its journaled step."""
    server = new_server()
    rounds: list[int] = []
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        rounds.append(1)

        def work() -> int:
            ran.append(1)
            return 7

        async def slow() -> int:
            await asyncio.sleep(3600 if len(rounds) == 2 else 0)  # Plain I/O.
            return await ctx.step(work)

        async def talks() -> None:
            await ctx.elicit("one", bool)
            await ctx.elicit("two", bool)

        worked, _ = await asyncio.gather(slow(), talks())
        return str(worked)

    client = Client(server, {"one": True, "two": True})
    assert text(await client.call_tool("tool")) == "7"
    assert ran == [1]
    assert len(client.rounds) == 3


# Timeouts


async def _timeout(seconds: float, awaitable: Any) -> Any:
    async with asyncio.timeout(seconds):
        return await awaitable


async def _wait_for(seconds: float, awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, seconds)


async def _fail_after(seconds: float, awaitable: Any) -> Any:
    with anyio.fail_after(seconds):
        return await awaitable


async def _shielded_scope(_seconds: float, awaitable: Any) -> Any:
    with anyio.CancelScope(shield=True):
        return await awaitable


@pytest.mark.parametrize("within", [_timeout, _wait_for, _fail_after, _shielded_scope])
async def test_a_timeout_around_questions_and_steps_does_not_fire_at_the_end_of_a_round(within: Any) -> None:
    server = new_server()
    ran: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def work() -> str:
            ran.append(1)
            return "worked"

        try:
            worked = await within(30, ctx.step(work))
            answer = await within(30, ctx.elicit("ok?", bool))
        except TimeoutError:
            return "timed out"
        return f"{worked} {answer.data}"

    client = Client(server, {"ok?": True})
    assert text(await client.call_tool("tool")) == "worked True"
    assert len(client.rounds) == 2
    assert ran == [1]


async def test_move_on_after_around_a_question_does_not_move_on() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answer: Any = None
        with anyio.move_on_after(30):
            answer = await ctx.elicit("ok?", bool)
        return str(answer and answer.data)

    client = Client(server, {"ok?": True})
    assert text(await client.call_tool("tool")) == "True"


async def test_a_step_that_outlasts_a_timeout_is_not_begun_again_in_every_round() -> None:
    server = new_server()
    begun: list[int] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def pay() -> str:
            begun.append(1)
            await asyncio.sleep(0.1)
            return "paid"

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.step(pay)
        await ctx.elicit("one", bool)
        await ctx.elicit("two", bool)
        return "done"

    client = Client(server, {"one": True, "two": True})
    assert text(await client.call_tool("tool")) == "done"
    assert len(begun) == 1


# Handlers that do not want to stop, in a process that may be killed

_STUBBORN = """
import asyncio
from ekiden import Context, Server

server = Server("stubborn", keys=[b"k" * 32])

@server.tool
async def free() -> str:
    return "free"

@server.tool
async def loops_around_the_question(ctx: Context) -> str:
    while True:
        try:
            return str((await ctx.elicit("ok?", bool)).data)
        except BaseException:
            pass

@server.tool
async def loops_in_a_child(ctx: Context) -> str:
    async def stubborn():
        while True:
            try:
                return await ctx.elicit("ok?", bool)
            except BaseException:
                pass
    return str((await asyncio.create_task(stubborn())).data)

@server.tool
async def sleeps_when_told_to_stop(ctx: Context) -> str:
    try:
        return str((await ctx.elicit("ok?", bool)).data)
    except BaseException:
        await asyncio.sleep(3600)

@server.tool
async def sleeps_again_and_again(ctx: Context) -> str:
    try:
        return str((await ctx.elicit("ok?", bool)).data)
    except BaseException:
        while True:
            try:
                await asyncio.sleep(3600)
            except BaseException:
                pass

@server.tool
async def asks_other_things_instead(ctx: Context) -> str:
    for n in range(1_000_000):
        try:
            return str((await ctx.elicit("ok?" if n == 0 else f"or {n}?", bool)).data)
        except BaseException:
            pass

@server.tool
async def has_a_stubborn_sibling(ctx: Context) -> str:
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(3600)
            except BaseException:
                pass
    child = asyncio.create_task(stubborn())
    return str((await ctx.elicit("ok?", bool)).data)

server.run("stdio", grace=0.1)
"""


async def test_handlers_that_will_not_stop_hold_up_neither_their_rounds_nor_the_server() -> None:
    names = re.findall(r"async def (\w+)\(ctx", _STUBBORN)
    assert len(names) == 6
    async with process(_STUBBORN) as child, asyncio.timeout(50):
        for n, name in enumerate(names):
            await child.send(call(name, request_id=n))
        await child.send(call("free", request_id="free"))
        replies = {reply["id"]: reply["result"] for reply in [await child.receive() for _ in range(7)]}
        assert list(replies).index("free") <= 1, "the server was held up"
        for n, name in enumerate(names):
            (key,) = replies[n]["inputRequests"]
            assert replies[n]["inputRequests"][key]["params"]["message"] == "ok?", name
            retry = {"inputResponses": {key: accept(True)}, "requestState": replies[n]["requestState"]}
            await child.send(call(name, request_id=f"again {n}", **retry))
        last = {reply["id"]: reply["result"] for reply in [await child.receive() for _ in names]}
        for n, name in enumerate(names):
            assert last[f"again {n}"]["content"][0]["text"] == "True", name


# Tasks that nobody awaits


async def test_a_question_in_a_task_that_nobody_awaits_does_not_keep_the_call_from_ending() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        task = asyncio.create_task(ctx.elicit("unawaited", str))
        await asyncio.sleep(0)
        return f"done {task.done()}"

    client = Client(server, {"unawaited": "x"})
    assert text(await client.call_tool("tool")).startswith("done")


async def test_a_question_in_a_task_that_nobody_awaits_is_asked_with_the_others() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        task = asyncio.create_task(ctx.elicit("unawaited", str))
        answer = await ctx.elicit("awaited", str)
        return f"{answer.data} {task.done()}"

    client = Client(server, {"unawaited": "x", "awaited": "y"})
    first = await client.ask("tool")
    assert messages(first) == ["awaited", "unawaited"]
    done = await client.retry(first, {key_of(first, "awaited"): accept("y")})
    assert text(done) == "y False"


async def test_a_task_that_outlives_its_handler_gets_no_effect_any_more() -> None:
    server = new_server()
    go = asyncio.Event()
    seen: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def work() -> None:
            seen.append("step ran")

        async def outlive() -> None:
            await go.wait()
            for effect in (lambda: ctx.step(work), lambda: ctx.elicit("late", str), lambda: ctx.checkpoint()):
                try:
                    await effect()
                    seen.append("went through")
                except BaseException as error:
                    seen.append(type(error).__name__)
            try:
                ctx.uuid()
                seen.append("went through")
            except BaseException as error:
                seen.append(type(error).__name__)

        tasks.append(asyncio.create_task(outlive()))
        await asyncio.sleep(0)
        return "done"

    assert text(await Client(server).call_tool("tool")) == "done"
    go.set()
    await soon(asyncio.wait(tasks))
    assert "step ran" not in seen
    assert "went through" not in seen


async def test_a_plain_background_task_may_outlive_the_call() -> None:
    server = new_server()
    go, done = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        async def notify() -> None:
            await go.wait()
            done.set()

        tasks.append(asyncio.create_task(notify()))
        return "done"

    async with server.running():
        assert text(await Client(server).call_tool("tool")) == "done"
        go.set()
        await soon(done.wait())
        await soon(asyncio.wait(tasks))


# Many calls at once


async def test_calls_at_the_same_time_do_not_mix() -> None:
    server = new_server()
    ran: Counter[str] = Counter()

    @server.tool
    async def tool(ctx: Context, who: str) -> str:
        async def load(name: str) -> str:
            await asyncio.sleep(0)
            ran[name] += 1
            return name

        name = await ctx.step(load, who)
        answer = await ctx.elicit("Your number?", str)
        return f"{name} {answer.data}"

    async def one(n: int) -> None:
        client = Client(server, {"Your number?": str(n)})
        assert text(await client.call_tool("tool", {"who": f"w{n}"})) == f"w{n} {n}"

    await asyncio.gather(*(one(n) for n in range(200)))
    assert set(ran.values()) == {1}
    assert len(ran) == 200


# Cancellation and shutdown


async def test_a_cancellation_stops_the_handler_of_its_round_only() -> None:
    server = new_server()
    began: asyncio.Queue[str] = asyncio.Queue()
    stopped: asyncio.Queue[str] = asyncio.Queue()
    go_on = asyncio.Event()

    @server.tool
    async def tool(ctx: Context, who: str) -> str:
        await ctx.elicit("ok?", bool)
        began.put_nowait(who)
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            stopped.put_nowait(who)
            raise
        return who

    async with server.connect() as channel:

        def cancel(request_id: int) -> dict[str, Any]:
            return {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": request_id, "reason": "test"},
            }

        retries = {}
        for request_id, who in ((1, "a"), (2, "b")):
            await channel.send(call("tool", {"who": who}, request_id))
            result = (await soon(channel.receive()))["result"]
            responses = {key: accept(True) for key in result["inputRequests"]}
            retries[who] = {"inputResponses": responses, "requestState": result["requestState"]}
        await channel.send(call("tool", {"who": "a"}, 3, **retries["a"]))
        await channel.send(call("tool", {"who": "b"}, 4, **retries["b"]))
        assert {await soon(began.get()), await soon(began.get())} == {"a", "b"}
        await channel.send(cancel(1))
        await channel.send(cancel(2))
        await channel.send(cancel(3))
        assert await soon(stopped.get()) == "a"
        go_on.set()
        reply = await soon(channel.receive())
        assert reply["id"] == 4
        assert text(reply["result"]) == "b"
        assert stopped.empty()


async def test_shutdown_waits_for_a_running_step_and_keeps_it(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/rounds.db"
    begun, release = asyncio.Event(), asyncio.Event()
    events: list[str] = []

    def make() -> Server:
        server = new_server(store=store)

        @server.tool
        async def tool(ctx: Context) -> str:
            async def pay() -> str:
                events.append("begun")
                begun.set()
                await release.wait()
                events.append("paid")
                return "paid"

            await ctx.elicit("ok?", bool)
            return await ctx.step(pay)

        return server

    server = make()
    await server.endpoint.start()
    client = Client(server)
    first = await client.ask("tool")
    retry = {"inputResponses": {only(first): accept(True)}, "requestState": first.state}
    running = asyncio.create_task(client.ask("tool", **retry))
    await soon(begun.wait())
    stopping = asyncio.create_task(server.endpoint.stop())
    await asyncio.sleep(0.01)
    assert events == ["begun"]
    release.set()
    await soon(stopping)
    await soon(asyncio.wait([running]))
    assert events == ["begun", "paid"]
    again = Client(make())
    assert text(await again.ask("tool", **retry)) == "paid"
    assert events == ["begun", "paid"]
