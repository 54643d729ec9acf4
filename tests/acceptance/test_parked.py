"""`resume="parked"`: the coroutine stays in memory between rounds, for what cannot be replayed."""

import asyncio
import contextlib
import logging
import time
from typing import Any

import pytest

from ekiden import Context, RegistrationError, RoundLimits, Server
from ekiden.testing import DECLINE, CallFailed
from tests.acceptance.driving import (
    BAD_STATE,
    Client,
    accept,
    call,
    error_text,
    key_of,
    messages,
    new_server,
    only,
    process,
    text,
)


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def parked(events: list[str], **options: Any) -> Server:
    server = new_server(**options)

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        events.append("begun")
        try:
            name = await ctx.elicit("Name?", str, key="name")
            events.append("named")
            sure = await ctx.elicit("Sure?", bool, key="sure")
            return f"{name.data} {sure.data}"
        except BaseException as error:
            events.append(type(error).__name__)
            raise
        finally:
            events.append("ended")

    return server


async def test_a_parked_handler_goes_on_where_it_was() -> None:
    events: list[str] = []
    client = Client(parked(events), {"name": "Ada", "sure": True})
    assert text(await client.call_tool("tool")) == "Ada True"
    assert len(client.rounds) == 3
    assert events == ["begun", "named", "ended"]


async def test_every_kind_of_question_can_be_asked_from_a_parked_handler() -> None:
    server = new_server()
    generator_ran: list[int] = []

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        async def numbers() -> Any:
            for n in range(3):
                generator_ran.append(n)
                yield n

        total = 0
        async for n in numbers():  # An async generator: what no replay could bring back.
            answer = await ctx.elicit(f"Add {n}?", bool)
            total += n if answer.data else 0
        poem, roots = await asyncio.gather(ctx.sample("Poem", max_tokens=9), ctx.list_roots())
        page = await ctx.elicit_url("Page", "https://example.com/")
        return f"{total} {poem.content.text} {len(roots)} {page.action}"  # type: ignore[union-attr]

    script = {"Add": True, "Poem": "roses", "roots": ["file:///a"], "Page": DECLINE}
    client = Client(server, script)
    assert text(await client.call_tool("tool")) == "3 roses 1 decline"
    assert generator_ran == [0, 1, 2]
    assert len(client.rounds) == 6


async def test_branches_of_a_parked_handler_go_on_as_their_answers_come() -> None:
    server = new_server()
    steps: list[str] = []

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        async def branch(name: str) -> str:
            answer = await ctx.elicit(name, str)
            await ctx.step(steps.append, name)
            return str(answer.data)

        return " ".join(await asyncio.gather(branch("a"), branch("b")))

    client = Client(server)
    first = await client.ask("tool")
    assert messages(first) == ["a", "b"]
    second = await client.retry(first, {key_of(first, "b"): accept("B")})
    assert messages(second) == ["a"]
    assert text(await client.retry(second, {only(second): accept("A")})) == "A B"
    assert steps == ["b", "a"]


async def test_a_state_is_good_for_one_resumption() -> None:
    events: list[str] = []
    client = Client(parked(events))
    first = await client.ask("tool")
    second = await client.retry(first, {"name": accept("Ada")})
    for name in ("Ada", "Eve"):
        error = await client.refused(inputResponses={"name": accept(name)}, requestState=first.state)
        assert error.code == -32602
    assert text(await client.retry(second, {"sure": accept(True)})) == "Ada True"
    error = await client.refused(inputResponses={"sure": accept(True)}, requestState=second.state)
    assert error.code == -32602
    assert events == ["begun", "named", "ended"]


async def test_of_many_resumptions_at_once_one_goes_through() -> None:
    events: list[str] = []
    client = Client(parked(events))
    first = await client.ask("tool")

    async def resume() -> bool:
        try:
            return messages(await client.retry(first, {"name": accept("Ada")})) == ["Sure?"]
        except Exception:
            return False

    assert sum(await asyncio.gather(*(resume() for _ in range(50)))) == 1
    assert events == ["begun", "named"]


async def test_wrong_and_missing_answers_leave_it_parked() -> None:
    events: list[str] = []
    client = Client(parked(events))
    played = await client.ask("tool")
    for responses in ({"wrong": accept("x")}, {}, {"name": accept(7)}):
        played = await client.retry(played, responses)
        assert messages(played) == ["Name?"]
    assert messages(await client.retry(played, {"name": accept("Ada")})) == ["Sure?"]
    assert events == ["begun", "named"]


@pytest.mark.parametrize("malformed", [None, {"name": 7}, {"name": {"action": "explode"}}])
async def test_a_malformed_answer_leaves_it_parked(malformed: Any) -> None:
    events: list[str] = []
    client = Client(parked(events))
    first = await client.ask("tool")
    error = await client.refused(inputResponses=malformed, requestState=first.state)
    assert error.code == -32602
    assert messages(await client.retry(first, {"name": accept("Ada")})) == ["Sure?"]
    assert events == ["begun", "named"]


async def test_a_state_of_other_arguments_or_another_principal_leaves_it_parked() -> None:
    events: list[str] = []
    who = ["ada"]
    client = Client(parked(events, principal=lambda _request: who[0]))
    first = await client.ask("tool")
    who[0] = "eve"
    error = await client.refused(inputResponses={"name": accept("Eve")}, requestState=first.state)
    assert (error.code, error.message) == (-32602, BAD_STATE)
    who[0] = "ada"
    assert messages(await client.retry(first, {"name": accept("Ada")})) == ["Sure?"]


async def test_a_parked_handler_expires_and_is_cancelled() -> None:
    events: list[str] = []
    server = parked(events, rounds=RoundLimits(answer_seconds=0.2))
    async with server.running():
        client = Client(server)
        first = await client.ask("tool")
        async with asyncio.timeout(10):
            while "ended" not in events:
                await asyncio.sleep(0.02)
        assert events == ["begun", "CancelledError", "ended"]
        error = await client.refused(inputResponses={"name": accept("Ada")}, requestState=first.state)
        assert error.code == -32602


async def test_parked_handlers_are_capped_in_number() -> None:
    events: list[str] = []
    server = parked(events, rounds=RoundLimits(parked_calls=3))
    async with server.running():
        client = Client(server)
        firsts = [await client.ask("tool") for _ in range(3)]
        with contextlib.suppress(CallFailed):
            assert error_text(await client.ask("tool"))
        for first in firsts:
            assert messages(await client.retry(first, {"name": accept("Ada")})) == ["Sure?"]


async def test_a_parked_handler_that_ended_makes_room() -> None:
    events: list[str] = []
    server = parked(events, rounds=RoundLimits(parked_calls=1))
    async with server.running():
        for _ in range(3):
            client = Client(server, {"name": "Ada", "sure": True})
            assert text(await client.call_tool("tool")) == "Ada True"


async def test_shutdown_cancels_parked_handlers_without_errors_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[str] = []
    server = parked(events)
    with caplog.at_level(logging.DEBUG):
        async with server.running():
            client = Client(server)
            first = await client.ask("tool")
            assert events == ["begun"]
        assert events == ["begun", "CancelledError", "ended"]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
    error = await client.refused(inputResponses={"name": accept("Ada")}, requestState=first.state)
    assert error.code == -32602


async def test_another_instance_says_clearly_that_the_call_must_be_restarted() -> None:
    events: list[str] = []
    first = await Client(parked(events)).ask("tool")
    other = Client(parked(events))
    error = await other.refused(inputResponses={"name": accept("Ada")}, requestState=first.state)
    assert error.code == -32602
    assert error.message != BAD_STATE
    assert "again" in error.message.lower() or "restart" in error.message.lower()
    assert events == ["begun"]


async def test_a_forged_state_does_not_get_the_clear_message() -> None:
    client = Client(parked([]))
    first = await client.ask("tool")
    assert first.state is not None
    error = await client.refused(inputResponses={"name": accept("Ada")}, requestState=first.state[:-2] + "AA")
    assert (error.code, error.message) == (-32602, BAD_STATE)


async def test_an_expired_state_of_a_parked_handler_is_refused() -> None:
    clock = Clock()
    client = Client(parked([], clock=clock))
    first = await client.ask("tool")
    clock.now += 601
    error = await client.refused(inputResponses={"name": accept("Ada")}, requestState=first.state)
    assert error.code == -32602


async def test_a_parked_handler_may_catch_its_cancellation_but_not_outlive_the_server() -> None:
    server = new_server()
    events: list[str] = []

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("ok?", bool, key="k")
        except BaseException:
            events.append("caught")
        return "survived"

    async with server.running():
        await Client(server).ask("tool")
        assert events == []
    assert events == ["caught"]


async def test_what_a_parked_handler_raises_after_its_answer_is_an_error() -> None:
    server = new_server()

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        raise ValueError("after the answer")

    client = Client(server)
    first = await client.ask("tool")
    assert error_text(await client.retry(first, {"k": accept(True)}))


async def test_a_parked_handler_is_asked_for_nothing_the_client_does_not_declare() -> None:
    server = new_server()

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        await ctx.elicit("ok?", bool, key="k")
        await ctx.list_roots()
        return "never"

    first = await Client(server).ask("tool")
    less = Client(server, capabilities={"elicitation": {}})
    error = await less.refused(inputResponses={"k": accept(True)}, requestState=first.state)
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": {"roots": {}}}


async def test_progress_of_a_parked_handler_goes_to_the_request_of_the_round() -> None:
    server = new_server()

    @server.tool(resume="parked")
    async def tool(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.elicit("ok?", bool, key="k")
        await ctx.progress(2)
        return "done"

    one, two = Client(server, meta={"progressToken": "one"}), Client(server, meta={"progressToken": "two"})
    first = await one.ask("tool")
    assert [note["params"] for note in first.notifications] == [{"progressToken": "one", "progress": 1}]
    last = await two.retry(first, {"k": accept(True)})
    assert [note["params"] for note in last.notifications] == [{"progressToken": "two", "progress": 2}]


async def test_prompts_and_resources_can_be_parked() -> None:
    server = new_server()
    begun: list[str] = []

    @server.prompt(resume="parked")
    async def prompt(ctx: Context) -> str:
        begun.append("prompt")
        return str((await ctx.elicit("Name?", str)).data)

    @server.resource("test://{which}", resume="parked")
    async def resource(which: str, ctx: Context) -> str:
        begun.append("resource")
        return str((await ctx.elicit("Name?", str)).data)

    client = Client(server, {"Name?": "Ada"})
    assert (await client.get_prompt("prompt"))["messages"][0]["content"]["text"] == "Ada"
    assert (await client.read_resource("test://x"))["contents"][0]["text"] == "Ada"
    assert begun == ["prompt", "resource"]


def test_parked_and_once_do_not_go_together(tmp_path: Any) -> None:
    server = new_server(store=f"sqlite:///{tmp_path}/rounds.db")
    with pytest.raises(RegistrationError):

        @server.tool(resume="parked", once=True)
        async def tool(ctx: Context) -> str:
            return "never"


# Over stdio, in processes of their own

_PARKED = """
from ekiden import Context, Server

server = Server("parked", keys=[b"k" * 32])

@server.tool(resume="parked")
async def tool(ctx: Context) -> str:
    names = []
    for n in range(3):
        names.append((await ctx.elicit(f"Name {n}?", str)).data)
    return " ".join(names)

server.run("stdio", grace=1)
"""


async def test_a_parked_handler_works_over_stdio() -> None:
    async with process(_PARKED) as child:
        retry: dict[str, Any] = {}
        for request_id in range(4):
            result = (await child.exchange(call("tool", {}, request_id, **retry)))["result"]
            if result["resultType"] == "complete":
                break
            (key,) = result["inputRequests"]
            retry = {
                "inputResponses": {key: accept(f"n{request_id}")},
                "requestState": result["requestState"],
            }
        assert text(result) == "n0 n1 n2"


async def test_a_parked_handler_of_another_process_is_a_clear_error_and_exit_is_clean() -> None:
    async with process(_PARKED) as one, process(_PARKED) as other:
        first = (await one.exchange(call("tool", {}, 1)))["result"]
        (key,) = first["inputRequests"]
        retry = {"inputResponses": {key: accept("Ada")}, "requestState": first["requestState"]}
        error = (await other.exchange(call("tool", {}, 2, **retry)))["error"]
        assert error["code"] == -32602
        assert error["message"] != BAD_STATE
        one.stdin.close()
        assert await one.ended() == 0
