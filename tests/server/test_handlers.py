import asyncio
import contextvars
import threading

from ekiden import Context, Server
from tests.serving import PATIENCE, call, call_tool, notification


async def test_a_plain_function_runs_in_a_thread_and_does_not_stop_the_others() -> None:
    server = Server("s")
    release = threading.Event()

    @server.tool
    def block() -> str:
        assert release.wait(PATIENCE)
        return threading.current_thread().name

    @server.tool
    async def answer() -> str:
        return threading.current_thread().name

    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        await channel.send(call("block", request_id=1))
        await channel.send(call("answer", request_id=2))
        assert (await channel.receive())["id"] == 2
        release.set()
        response = await channel.receive()
    assert response["result"]["content"][0]["text"] != threading.current_thread().name


async def test_plain_functions_run_side_by_side() -> None:
    server = Server("s")
    together = threading.Barrier(10)

    @server.tool
    def meet() -> str:
        together.wait(PATIENCE)
        return "met"

    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        for n in range(10):
            await channel.send(call("meet", request_id=n))
        for _ in range(10):
            assert (await channel.receive())["result"]["content"][0]["text"] == "met"


async def test_a_plain_function_sees_the_context_variables_of_its_request() -> None:
    server = Server("s")
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @server.tool
    def look() -> str:
        return variable.get()

    variable.set("set")
    assert (await call_tool(server, "look"))["content"][0]["text"] == "set"


async def test_a_plain_function_may_take_the_context() -> None:
    server = Server("s")

    @server.tool
    def look(ctx: Context) -> str:
        return ctx.request.method

    assert (await call_tool(server, "look"))["content"][0]["text"] == "tools/call"


async def test_a_slow_plain_function_leaves_the_loop_free() -> None:
    server = Server("s")
    is_free = threading.Event()

    @server.tool
    def slow() -> str:
        return "free" if is_free.wait(PATIENCE) else "held up"

    async def beat() -> None:
        for _ in range(5):
            await asyncio.sleep(0.01)
        is_free.set()

    heart = asyncio.create_task(beat())
    result = await call_tool(server, "slow")
    await heart
    assert result["content"][0]["text"] == "free"


async def test_a_call_that_waits_for_a_thread_holds_up_nobody_and_never_begins_if_it_is_cancelled() -> None:
    server = Server("s")
    release, begun = threading.Event(), list[int]()

    @server.tool
    def block(number: int) -> str:
        begun.append(number)
        assert release.wait(PATIENCE)
        return "done"

    @server.tool
    async def answer() -> str:
        return "answered"

    async with asyncio.timeout(PATIENCE), server.connect() as channel:
        for number in range(50):
            await channel.send(call("block", {"number": number}, request_id=number))
        while len(begun) < 40:
            await asyncio.sleep(0.01)
        await channel.send(call("answer", request_id="answer"))
        assert (await channel.receive())["id"] == "answer"
        await channel.send(notification("notifications/cancelled", {"requestId": 45}))
        await channel.send(call("answer", request_id="again"))
        assert (await channel.receive())["id"] == "again"
        release.set()
        for _ in range(49):
            assert (await channel.receive())["result"]["content"][0]["text"] == "done"
    assert sorted(begun) == [number for number in range(50) if number != 45]
