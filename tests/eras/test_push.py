"""Handlers that ask, and clients of 2025 who are asked while they wait."""

import asyncio

import pytest

from ekiden import Context, Server, SessionLimits, StepFailed
from ekiden.server.rounds import pushed
from tests.serving import served, soon

from .handlers import KEY, Name, make_server
from .old_client import (
    EVERYTHING,
    Message,
    accepted,
    call,
    hello,
    notification,
    old_client,
    raw_client,
    request,
    result,
    text,
)

NAMED = {"elicitation": {}}


@pytest.fixture
def _no_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that asks for nothing is called again without a pause."""
    monkeypatch.setattr(pushed, "_IDLE_SECONDS", 0.0)


def ann(message: Message) -> Message:
    return accepted(message["id"], name="Ann")


async def test_one_question_travels_on_the_stream_of_the_call() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        asked, answered = await client.talk(call("ask"), ann)
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "What is your name?"
        assert asked["params"]["mode"] == "form"
        assert text(answered) == "accept Ann"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_reaches_the_handler(action: str) -> None:
    async with served(make_server()) as base, old_client(base) as client:
        assert text(await client.answered(call("ask"), lambda m: result(m["id"], action=action))) == action


async def test_three_kinds_are_asked_before_any_is_answered() -> None:
    answers: dict[str, Message] = {
        "elicitation/create": {"action": "accept", "content": {"name": "Ann"}},
        "sampling/createMessage": {
            "role": "assistant",
            "content": {"type": "text", "text": "hi"},
            "model": "m",
        },
        "roots/list": {"roots": [{"uri": "file:///work"}]},
    }
    async with served(make_server()) as base, old_client(base) as client:
        pending: list[Message] = []

        def hold(message: Message) -> None:
            pending.append(message)

        async def answer_all() -> None:
            while len(pending) < 3:
                await asyncio.sleep(0.01)
            for message in reversed(pending):
                await client.send(result(message["id"], **answers[message["method"]]))

        answering = asyncio.create_task(answer_all())
        *_, answered = await client.talk(call("ask_three"), hold, hold, hold)
        await soon(answering)
        assert text(answered) == "Ann hi file:///work"


async def test_several_rounds_with_steps_and_checkpoints_run_plainly() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        said = await client.talk(
            call("ask_thrice"), *(lambda m, n=n: accepted(m["id"], name=f"No {n}") for n in range(3))
        )
        assert [message["params"]["message"] for message in said[:-1]] == [f"Question {n}" for n in range(3)]
        assert text(said[-1]) == "No 0 No 1 No 2"


async def test_an_answer_that_breaks_the_rules_of_the_form_is_asked_for_again() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        said = await client.talk(call("ask"), lambda m: accepted(m["id"], name="x"), ann)
        assert [message.get("method") for message in said] == ["elicitation/create"] * 2 + [None]
        assert text(said[-1]) == "accept Ann"


async def test_an_answer_that_is_none_is_a_tool_error() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        answered = await client.answered(call("ask"), lambda m: result(m["id"], action="perhaps"))
        assert answered["result"]["isError"] is True
        assert "elicitation/create" in text(answered)


async def test_a_client_that_fails_to_answer_is_a_tool_error_with_its_words() -> None:
    def fail(message: Message) -> Message:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -1, "message": "The user left"}}

    async with served(make_server()) as base, old_client(base) as client:
        answered = await client.answered(call("ask"), fail)
        assert answered["result"]["isError"] is True
        assert "The user left" in text(answered)


async def test_a_page_has_an_id_and_its_completion_is_told() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        asked, told, answered = await client.talk(
            call("open_page"), lambda m: result(m["id"], action="accept")
        )
        assert asked["params"]["mode"] == "url"
        page = asked["params"]["elicitationId"]
        assert told["method"] == "notifications/elicitation/complete"
        assert told["params"] == {"elicitationId": page}
        assert text(answered) == "accept"
        again, _ = await client.talk(call("open_page"), lambda m: result(m["id"], action="decline"))
        assert again["params"]["elicitationId"] != page


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_before_november_2025_there_are_no_pages(version: str) -> None:
    async with served(make_server()) as base, old_client(base, version=version) as client:
        answered = await client.answered(call("open_page"))
        assert answered["result"]["isError"] is True
        assert "elicitation" in text(answered)


@pytest.mark.parametrize("version", ["2025-03-26", "2024-11-05"])
async def test_before_june_2025_nobody_could_be_asked_for_a_form(version: str) -> None:
    async with served(make_server()) as base, old_client(base, version=version) as client:
        assert (await client.answered(call("ask")))["result"]["isError"] is True
        assert text(await client.answered(call("era"))) == "False False False"


async def test_in_june_2025_forms_were_plainer() -> None:
    server = Server("plain", keys=[KEY])

    @server.tool
    async def form(ctx: Context) -> str:
        """Ask with what June did not know."""
        schema = {
            "type": "object",
            "properties": {
                "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}], "default": "s"},
                "sure": {"type": "boolean", "default": True},
            },
        }
        return (await ctx.elicit("Size?", schema)).action

    async with served(server) as base, old_client(base, version="2025-06-18") as client:
        asked, _ = await client.talk(call("form"), lambda m: accepted(m["id"], size="s"))
        assert asked["params"] == {
            "message": "Size?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "size": {"type": "string", "enum": ["s"], "enumNames": ["Small"]},
                    "sure": {"type": "boolean", "default": True},
                },
            },
        }


async def test_a_form_that_june_2025_has_no_words_for_is_not_sent() -> None:
    async with served(make_server()) as base, old_client(base, version="2025-06-18") as client:
        answered = await client.answered(call("choose"))
        assert "extras" in text(answered)
        assert "2025-06-18" in text(answered)


async def test_what_was_not_declared_is_not_asked() -> None:
    async with served(make_server()) as base, old_client(base, capabilities={}) as client:
        for tool in ("ask", "ask_three", "manual", "declared"):
            answered = await client.answered(call(tool))
            assert answered["result"]["isError"] is True, answered
            assert "could not be asked" in text(answered)
        assert text(await client.answered(call("era"))) == "False False False"
        got = await client.ask("prompts/get", {"name": "ask_prompt"})
        assert got["error"]["code"] == -32600
        read = await client.ask("resources/read", {"uri": "eras://asked/1"})
        assert read["error"]["code"] == -32600


async def test_forms_and_pages_are_declared_apart() -> None:
    async with served(make_server()) as base, old_client(base, capabilities=NAMED) as client:
        assert text(await client.answered(call("era"))) == "False True False"


async def test_a_request_may_declare_more_than_its_session() -> None:
    more = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(make_server()) as base, old_client(base, capabilities={}) as client:
        assert text(await client.answered(call("ask", meta=more), ann)) == "accept Ann"
        assert (await client.answered(call("ask")))["result"]["isError"] is True


async def test_prompts_and_resources_ask_too() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        got = await client.answered(request("prompts/get", {"name": "ask_prompt"}), ann)
        assert got["result"]["messages"][0]["content"]["text"] == "Write about Ann"
        read = await client.answered(request("resources/read", {"uri": "eras://asked/7"}), ann)
        assert read["result"]["contents"][0]["text"] == "7 accept"


# The manual way


async def test_the_manual_way_is_resolved_inside_the_server() -> None:
    def answer(message: Message) -> Message:
        if message["method"] == "roots/list":
            return result(message["id"], roots=[])
        return accepted(message["id"], name=message["params"]["message"])

    async with served(make_server()) as base, old_client(base) as client:
        said = await client.talk(call("manual"), answer, answer, answer)
        assert sorted(message["method"] for message in said[:-1]) == ["elicitation/create"] * 2 + [
            "roots/list"
        ]
        assert text(said[-1]) == "First? Second? 0"
        assert text(await client.answered(call("manual_thread"), answer)) == "Name?"


@pytest.mark.usefixtures("_no_idling")
async def test_a_handler_that_is_never_done_fails_after_ten_rounds() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        answered = await client.answered(call("endless"))
        assert answered["result"]["isError"] is True
        assert "10 rounds" in text(answered)


# Time and cancellation


async def test_an_answer_that_never_comes_ends_the_call_and_is_withdrawn() -> None:
    server = make_server(sessions=SessionLimits(ask_seconds=0.2))
    async with served(server) as base, old_client(base) as client:
        asked, withdrawn, answered = await client.talk(call("ask"), lambda _: None)
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert "0.2 seconds" in text(answered)
        # It comes after all: nobody minds.
        assert (await client.send(accepted(asked["id"], name="Ann"))).status_code == 202


async def test_a_branch_that_is_given_up_withdraws_its_question() -> None:
    server = Server("impatient", keys=[KEY])

    @server.tool
    async def impatient(ctx: Context) -> str:
        """Wait for a moment only."""
        try:
            async with asyncio.timeout(0.1):
                await ctx.elicit("Quick?", Name)
        except TimeoutError:
            return "too late"
        return "in time"

    async with served(server) as base, old_client(base) as client:
        said = await client.talk(call("impatient"), lambda _: None)
        assert [message.get("method") for message in said] == [
            "elicitation/create",
            "notifications/cancelled",
            None,
        ] or said[-1]["result"]["content"][0]["text"] == "too late"
        assert text(said[-1]) == "too late"


async def test_a_cancelled_call_stops_and_gets_no_response() -> None:
    server = make_server()
    stopped = asyncio.Event()

    @server.tool
    async def stoppable(ctx: Context) -> str:
        """Wait for an answer that is not needed any more."""
        try:
            await ctx.elicit("Hm?", Name)
        finally:
            stopped.set()
        return "never"

    async with served(server) as base, old_client(base) as client:

        def cancel(message: Message) -> Message:
            return notification("notifications/cancelled", requestId=5, reason="enough")

        said = await client.talk(call("stoppable", id=5), cancel)
        await soon(stopped.wait())
        assert [message.get("method") for message in said][:1] == ["elicitation/create"]
        assert all("result" not in message and "error" not in message for message in said)
        # An old id cancels nothing.
        assert text(await client.answered(call("add", a=1, b=1))) == '{"total":2}'
        await client.send(notification("notifications/cancelled", requestId=5))


async def test_a_cancelled_call_lets_a_running_step_end() -> None:
    server = Server("careful", keys=[KEY])
    began, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        began.set()
        await may_end.wait()
        ended.set()
        return "paid"

    @server.tool
    async def buy(ctx: Context) -> str:
        """Pay."""
        await ctx.progress(1)
        return await ctx.step(pay)

    async with served(server) as base, old_client(base) as client:
        calling = asyncio.create_task(client.talk(call("buy", id=3, meta={"progressToken": 1})))
        await soon(began.wait())
        await client.send(notification("notifications/cancelled", requestId=3))
        await asyncio.sleep(0.05)
        assert not calling.done()
        may_end.set()
        assert "result" not in (await soon(calling))[-1]
        assert ended.is_set()


async def test_a_step_that_fails_and_what_runs_afterwards_are_as_on_the_modern_wire() -> None:
    server = Server("steps", keys=[KEY])
    done: list[str] = []

    def fail() -> str:
        raise ValueError("broken")

    async def note(word: str) -> str:
        done.append(word)
        return word

    @server.tool
    async def run(ctx: Context) -> str:
        """Fail a step, and have something done afterwards."""
        ctx.on_complete(note, "afterwards")
        try:
            await ctx.step(fail)
        except StepFailed as error:
            await ctx.step(note, f"{error.type}")
        return "ran"

    async with served(server) as base, old_client(base) as client:
        assert text(await client.answered(call("run"))) == "ran"
    assert done == ["ValueError", "afterwards"]


async def test_progress_and_log_messages_come_before_the_result() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        said = await client.talk(call("tell", meta={"progressToken": "p"}))
        assert [message.get("method") for message in said] == [
            "notifications/progress",
            "notifications/progress",
            "notifications/message",
            None,
        ]
        assert said[0]["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "going on"}
        assert said[2]["params"] == {"level": "warning", "data": {"big": True}, "logger": "eras"}


async def test_the_level_of_the_session_decides_what_is_logged() -> None:
    async with served(make_server()) as base, old_client(base) as client, old_client(base) as other:
        for level, count in (("debug", 2), ("emergency", 0), ("warning", 1)):
            assert (await client.ask("logging/setLevel", {"level": level}))["result"] == {}
            said = await client.talk(call("tell"))
            assert len(said) - 1 == count, level
        assert (await client.ask("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
        assert len(await other.talk(call("tell"))) == 2, "the other session has its own level"


async def test_a_question_waits_until_the_client_is_initialized() -> None:
    async with served(make_server()) as base, raw_client(base) as client:
        opened = await client.http.post(client.url, json=hello(), headers=client.headers)
        client.session = opened.headers["mcp-session-id"]
        calling = asyncio.create_task(client.talk(call("ask"), ann))
        await asyncio.sleep(0.1)
        assert not calling.done()
        await client.send(notification("notifications/initialized"))
        assert text((await soon(calling))[-1]) == "accept Ann"


async def test_a_client_that_takes_no_stream_is_told_why_it_cannot_be_asked() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        answered = await client.send(call("ask"), accept="application/json")
        assert "text/event-stream" in text(answered.json())
        told = await client.send(call("tell", meta={"progressToken": 1}), accept="application/json")
        assert text(told.json()) == "told"


async def test_on_a_channel_questions_are_pushed_as_well() -> None:
    async with make_server().connect() as channel:
        await channel.send(hello(capabilities=EVERYTHING))
        await channel.receive()
        await channel.send(notification("notifications/initialized"))
        await channel.send(call("ask", id="c"))
        asked = await soon(channel.receive())
        await channel.send(ann(asked))
        answered = await soon(channel.receive())
        assert (answered["id"], text(answered)) == ("c", "accept Ann")


@pytest.mark.usefixtures("_no_idling")
async def test_not_one_interim_result_reaches_a_client_of_2025() -> None:
    async with served(make_server()) as base, old_client(base) as client:
        seen: list[Message] = []
        for tool in ("ask", "ask_thrice", "manual_thread", "endless"):
            seen += await client.talk(call(tool), ann, ann, ann)
        for message in seen:
            fields = set(message.get("result", {}))
            assert not fields & {"resultType", "result_type", "inputRequests", "requestState"}
