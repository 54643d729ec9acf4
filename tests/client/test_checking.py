"""A client that cannot send a wrong answer: what is not an answer to what was asked never leaves it."""

import asyncio
import functools
from typing import Any

import pytest
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent
from pydantic import FileUrl

from ekiden import Client, InvalidResult, LeftOut, PendingCall, WrongAnswer
from tests.client.sessions.old import OldServer
from tests.hostile.evil import Evil, answers, evil
from tests.serving import PATIENCE, served

from .test_rounds import DONE, ROOTS, SAMPLE, agree, calls, form, in_turn, interim

SURE = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Sure?",
        "requestedSchema": {
            "type": "object",
            "properties": {"sure": {"type": "boolean"}, "mail": {"type": "string", "format": "email"}},
            "required": ["sure"],
        },
    },
}
PAGE = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Log in", "url": "https://a.example/"},
}
WITH_TOOLS = {
    **SAMPLE,
    "params": {**SAMPLE["params"], "tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
}

ODD_TOOLS = {**SAMPLE, "params": {**SAMPLE["params"], "tools": [{"name": ["rm"]}, "rm", {}]}}
DEEP: Any = functools.reduce(lambda inner, _: [inner], range(200), 0)

SAID: dict[str, Any] = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}
USES = {"type": "tool_use", "id": "1", "input": {}}


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


WRONG: list[tuple[str, dict[str, Any], Any, str]] = [
    ("nothing", SURE, None, "not None"),
    ("a bare value", SURE, True, "of type bool"),
    ("the content alone", SURE, {"sure": True}, "action"),
    ("an action that is not one", SURE, {"action": "yes"}, "action"),
    ("a wrong type", SURE, accept(sure="yes"), 'sure: "yes" is not of type "boolean"'),
    ("a missing field", SURE, accept(), 'content: "sure" is a required property'),
    ("no content", SURE, {"action": "accept"}, 'content: "sure" is a required property'),
    ("a broken format", SURE, accept(sure=True, mail="nobody"), "mail"),
    ("content that is not an object", SURE, {"action": "accept", "content": [1]}, "content"),
    ("content that is declined", SURE, {"action": "decline", "content": {"sure": True}}, "although"),
    ("a value that is not JSON", SURE, {"action": "accept", "content": {"sure": object()}}, "JSON"),
    ("a number that is too large", SURE, accept(sure=2**80), "an integer beyond 64 bits"),
    ("a value that is too deep", SURE, accept(sure=DEEP), "nested deeper"),
    ("a tool that is not one", ODD_TOOLS, {**SAID, "content": [{**USES, "name": "rm"}]}, "not offered"),
    ("a model's reply to a form", SURE, SAID, "action"),
    ("a form's answer to the model", SAMPLE, accept(sure=True), "role"),
    ("content for a page", PAGE, accept(sure=True), "a page was to be opened"),
    ("a tool that was not offered", SAMPLE, {**SAID, "content": {**USES, "name": "add"}}, "not offered"),
    ("another tool than offered", WITH_TOOLS, {**SAID, "content": [{**USES, "name": "rm"}]}, "not offered"),
    ("a list instead of roots", ROOTS, {"uri": "file:///a"}, "roots"),
    ("a root that is not a file", ROOTS, {"roots": [{"uri": "https://a.example/"}]}, "roots.0.uri"),
]

RIGHT: list[tuple[str, dict[str, Any], Any]] = [
    ("a dict", SURE, accept(sure=True, mail="a@b.example")),
    ("a model", SURE, ElicitResult(action="accept", content={"sure": False})),
    ("a decline", SURE, ElicitResult(action="decline")),
    ("a page", PAGE, {"action": "accept"}),
    (
        "a reply",
        SAMPLE,
        CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text="hi")),
    ),
    ("a tool that was offered", WITH_TOOLS, {**SAID, "content": [{**USES, "name": "add"}]}),
    ("roots", ROOTS, ListRootsResult(roots=[Root(uri=FileUrl("file:///a"))])),
]


def a_pending(request: dict[str, Any], key: str = "k") -> PendingCall:
    return PendingCall("tools/call", {"name": "deed", "arguments": {}}, {key: request}, "state")


@pytest.mark.parametrize(
    ("request_", "response", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
async def test_a_wrong_answer_by_hand_is_named_and_nothing_is_sent(
    request_: dict[str, Any], response: Any, words: str
) -> None:
    async with evil({"deed": answers(DONE)}) as server, Client(server.url) as client:
        with pytest.raises(WrongAnswer) as caught:
            await client.resume(a_pending(request_), {"k": response})
        assert words in str(caught.value)
        assert caught.value.key == "k"
        assert str(caught.value.question) in str(caught.value)
        assert not calls(server)


@pytest.mark.parametrize(("request_", "response"), [row[1:] for row in RIGHT], ids=[row[0] for row in RIGHT])
async def test_a_right_answer_is_sent_as_the_wire_spells_it(request_: dict[str, Any], response: Any) -> None:
    async with evil({"deed": answers(DONE)}) as server, Client(server.url) as client:
        await client.resume(a_pending(request_), {"k": response})
    ((sent, *_),) = [list(call["params"]["inputResponses"].values()) for call in calls(server)]
    assert isinstance(sent, dict)
    assert "resultType" not in sent
    assert sent == (
        response if isinstance(response, dict) else response.model_dump(mode="json", exclude_none=True)
    )


async def deed_of(server: Evil, **callbacks: Any) -> None:
    async with Client(server.url, **callbacks) as client:
        await client.call_tool("deed")


@pytest.mark.parametrize(
    ("request_", "callback"),
    [(SURE, "elicit"), (PAGE, "elicit_url"), (SAMPLE, "sample"), (ROOTS, "roots")],
    ids=["form", "page", "model", "roots"],
)
@pytest.mark.parametrize("returned", [None, "nonsense", 7, {"odd": 1}, [1]], ids=repr)
async def test_a_callback_that_returns_nonsense_is_an_error_that_names_the_question(
    request_: dict[str, Any], callback: str, returned: Any
) -> None:
    async def awaited(*_: Any) -> Any:
        return returned

    def plain(*_: Any) -> Any:
        return returned

    for function in (awaited, plain):
        async with evil({"deed": answers(interim({"the key": request_}, "s"))}) as server:
            with pytest.raises(WrongAnswer, match="'the key'") as caught:
                await deed_of(server, **{callback: function})
            assert len(calls(server)) == 1, "there was no second round"
        assert caught.value.question in ("Sure?", "Log in", "Hi", "roots")


async def test_one_wrong_answer_keeps_the_right_ones_back_too() -> None:
    async def wrong(_: Any) -> Any:
        return {"role": "assistant"}

    asked = {"form": form("Who?"), "model": SAMPLE}
    async with evil({"deed": answers(interim(asked))}) as server:
        with pytest.raises(WrongAnswer, match=r"'model' \('Hi'\)"):
            await deed_of(server, elicit=agree, sample=wrong)
        assert len(calls(server)) == 1


async def test_answers_belong_to_questions_one_to_one() -> None:
    pending = PendingCall(
        "tools/call", {"name": "deed", "arguments": {}}, {"a": form("One?"), "b": form("Two?")}, "state"
    )
    yes = accept(value="yes")
    async with evil({"deed": answers(DONE)}) as server, Client(server.url) as client:
        with pytest.raises(WrongAnswer, match=r"'c' was not sent: it is not asked; asked are 'a', 'b'"):
            await client.resume(pending, {"a": yes, "b": yes, "c": yes})
        with pytest.raises(WrongAnswer, match=r"'b' \('Two\?'\) was not sent: there is no answer") as caught:
            await client.resume(pending, {"a": yes})
        assert "LeftOut()" in str(caught.value)
        with pytest.raises(WrongAnswer, match="nothing is"):
            await client.resume(PendingCall("tools/call", pending.params, {}, "s"), {"a": yes})
        assert not calls(server)


async def test_a_question_is_left_out_only_explicitly() -> None:
    pending = PendingCall(
        "tools/call", {"name": "deed", "arguments": {}}, {"a": form("One?"), "b": form("Two?")}, "state"
    )
    async with evil({"deed": answers(DONE)}) as server, Client(server.url) as client:
        await client.resume(pending, {"a": accept(value="yes"), "b": LeftOut()})
        await client.resume(pending, {"a": LeftOut(), "b": LeftOut()})
    sent = [call["params"]["inputResponses"] for call in calls(server)]
    assert sent == [{"a": accept(value="yes")}, {}]


async def test_a_callback_may_leave_its_question_out() -> None:
    async def later(_: Any) -> LeftOut:
        return LeftOut()

    asked = interim({"form": form("Who?"), "model": SAMPLE}, "s")
    deed = in_turn(asked, interim({"model": SAMPLE}, "t"), DONE)
    async with evil({"deed": deed}) as server:
        await deed_of(server, elicit=agree, sample=later)
    sent = [call["params"].get("inputResponses") for call in calls(server)]
    assert sent == [None, {"form": accept(value="Who?")}, {}]


@pytest.mark.parametrize("request_", [5, {}, {"method": "secrets/get"}, {**SURE, "params": 5}], ids=repr)
async def test_what_is_not_a_question_is_not_answered(request_: Any) -> None:
    async with evil({"deed": answers(DONE)}) as server, Client(server.url) as client:
        for responses in ({"k": {"action": "accept"}}, {}):
            with pytest.raises(InvalidResult):
                await client.resume(a_pending(request_), responses)
        assert not calls(server)


async def test_a_form_that_cannot_be_checked_is_answered_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = {**SURE, "params": {**SURE["params"], "requestedSchema": {"type": "nonsense"}}}  # type: ignore[dict-item]
    async with evil({"deed": answers(DONE)}) as server, Client(server.url) as client:
        await client.resume(a_pending(broken), {"k": accept(sure="yes")})
        assert len(calls(server)) == 1
    assert "cannot be used" in caplog.text


async def test_a_server_of_2025_gets_an_error_instead_of_a_wrong_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def wrong(_: Any) -> Any:
        return {"action": "accept", "content": {"value": "my secret"}}

    async def later(_: Any) -> LeftOut:
        return LeftOut()

    async def dismissed(_: Any) -> Any:
        closed = asyncio.get_running_loop().create_future()
        closed.cancel()
        return await closed

    old = OldServer()
    async with served(old.app) as base:
        for callback, told in (
            (wrong, {"code": -32603, "message": "The client's callback failed"}),
            (dismissed, {"code": -32603, "message": "The client's callback failed"}),
            (later, {"code": -1, "message": "The client leaves this question out"}),
        ):
            async with Client(f"{base}/mcp", elicit=callback, timeout=PATIENCE) as client:
                result = await client.call_tool("ask")
            answered = [message for message in old.heard if "method" not in message][-1]
            assert answered["error"] == told
            assert "secret" not in str(result)
    assert "WrongAnswer" in caplog.text
    assert "'Sure?'" in caplog.text
