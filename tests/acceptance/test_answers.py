"""Answers from clients that err, and from clients that mean harm."""

import asyncio
import json
from collections import Counter
from collections.abc import Generator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, model_validator

from ekiden import Context, InputRequired, Server
from ekiden.testing import CallFailed
from tests.acceptance.driving import (
    PATIENCE,
    Client,
    accept,
    call,
    headers_for,
    key_of,
    messages,
    new_server,
    only,
    post,
    said,
    served,
    soon,
    text,
)


class Name(BaseModel):
    name: str


def two_questions() -> Server:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        a, b = await asyncio.gather(ctx.elicit("a", str), ctx.elicit("b", str))
        return f"{a.data} {b.data}"

    return server


def every_kind(ran: Counter[str] | None = None) -> Server:
    """Asks one question of each kind under a key of its own, and steps with what it heard."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        form, page, poem, roots = await asyncio.gather(
            ctx.elicit("form", Name, key="form"),
            ctx.elicit_url("page", "https://example.com/", key="page"),
            ctx.sample("poem", max_tokens=9, key="poem"),
            ctx.list_roots(key="roots"),
        )

        def note() -> str:
            if ran is not None:
                ran["note"] += 1
            return "noted"

        await ctx.step(note)
        return f"{form.action} {page.action} {poem.model} {len(roots)}"

    return server


GOOD: dict[str, Any] = {
    "form": {"action": "accept", "content": {"name": "Ada"}},
    "page": {"action": "accept"},
    "poem": said("roses"),
    "roots": {"roots": [{"uri": "file:///a"}]},
}


# Which answers count


async def test_a_wrong_key_is_ignored_and_the_question_asked_again() -> None:
    client = Client(two_questions())
    first = await client.ask("tool")
    again = await client.retry(first, {"wrong": accept("x")})
    assert again.requests == first.requests
    assert again.state
    assert text(await client.retry(again, {key: accept("x") for key in again.requests})) == "x x"


async def test_of_two_questions_only_the_missing_one_is_asked_again() -> None:
    client = Client(two_questions())
    first = await client.ask("tool")
    second = await client.retry(first, {key_of(first, "b"): accept("B")})
    assert messages(second) == ["a"]
    third = await client.retry(second, {})
    assert messages(third) == ["a"]
    assert text(await client.retry(third, {only(third): accept("A")})) == "A B"


async def test_no_answers_at_all_ask_everything_again() -> None:
    client = Client(two_questions())
    first = await client.ask("tool")
    for responses in ({}, None):
        again = await client.retry(first, responses)
        assert again.requests == first.requests


async def test_extra_keys_are_ignored_whatever_their_values() -> None:
    client = Client(two_questions())
    first = await client.ask("tool")
    extra = {
        "x": None,
        "y": 7,
        "z": "no object",
        "u": [],
        "v": {"action": "explode"},
        "": {},
        "w": accept("x"),
    }
    responses = {**extra, key_of(first, "a"): accept("A"), key_of(first, "b"): accept("B")}
    assert text(await client.retry(first, responses)) == "A B"


async def test_an_answer_given_again_does_not_replace_the_one_that_was_kept() -> None:
    client = Client(two_questions())
    first = await client.ask("tool")
    a, b = key_of(first, "a"), key_of(first, "b")
    second = await client.retry(first, {a: accept("A")})
    assert text(await client.retry(second, {a: accept("changed"), b: accept("B")})) == "A B"


async def test_a_form_filled_in_wrongly_keeps_the_other_answer() -> None:
    client = Client(every_kind())
    first = await client.ask("tool")
    second = await client.retry(first, {**GOOD, "form": {"action": "accept", "content": {"name": 7}}})
    assert second.requests.keys() == {"form"}
    assert text(await client.retry(second, {"form": GOOD["form"]})) == "accept accept scripted 1"


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [..., {}, {"name": "Ada"}, {"name": 7}, None])
async def test_no_is_no_whatever_content_comes_with_it(action: str, content: Any) -> None:
    client = Client(every_kind())
    first = await client.ask("tool")
    no: dict[str, Any] = {"action": action} if content is ... else {"action": action, "content": content}
    assert text(await client.retry(first, {**GOOD, "form": no})) == f"{action} accept scripted 1"


async def test_accepting_a_form_without_content_is_asked_again() -> None:
    client = Client(every_kind())
    first = await client.ask("tool")
    for content in ({}, ...):
        empty: dict[str, Any] = (
            {"action": "accept"} if content is ... else {"action": "accept", "content": content}
        )
        again = await client.retry(first, {**GOOD, "form": empty})
        assert again.requests.keys() == {"form"}


# Malformed answers

MALFORMED: dict[str, list[Any]] = {
    "form": [
        None,
        7,
        "accept",
        True,
        [],
        {},
        {"action": None},
        {"action": "explode"},
        {"action": "ACCEPT"},
        {"action": ["accept"]},
        {"content": {"name": "Ada"}},
        {"action": "accept", "content": "Ada"},
        {"action": "accept", "content": ["Ada"]},
        {"action": "accept", "content": 7},
        GOOD["poem"],
        GOOD["roots"],
    ],
    "page": [None, [], {}, {"action": "explode"}, {"action": 1}, GOOD["poem"], GOOD["roots"]],
    "poem": [
        None,
        7,
        "roses",
        [],
        {},
        {"role": "assistant"},
        {"role": "assistant", "content": {"type": "text", "text": "x"}},
        {"role": "robot", "model": "m", "content": {"type": "text", "text": "x"}},
        {"role": "assistant", "model": "m", "content": "roses"},
        {"role": "assistant", "model": "m", "content": {"type": "text"}},
        {"role": "assistant", "model": "m", "content": {"type": "smell", "data": "x"}},
        {"role": "assistant", "model": 7, "content": {"type": "text", "text": "x"}},
        {"role": "assistant", "model": "m", "content": None},
        GOOD["form"],
        GOOD["roots"],
    ],
    "roots": [
        None,
        7,
        [],
        {},
        {"roots": None},
        {"roots": {}},
        {"roots": ["file:///a"]},
        {"roots": [{}]},
        {"roots": [{"uri": 7}]},
        {"roots": [{"uri": "file:///a"}, None]},
        GOOD["form"],
        GOOD["poem"],
    ],
}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_response_that_is_no_result_of_its_kind_is_refused(kind: str) -> None:
    ran: Counter[str] = Counter()
    client = Client(every_kind(ran))
    first = await client.ask("tool")
    for malformed in MALFORMED[kind]:
        error = await client.refused(inputResponses={**GOOD, kind: malformed}, requestState=first.state)
        assert error.code == -32602, malformed
    assert ran == {}
    assert text(await client.retry(first, GOOD)) == "accept accept scripted 1"
    assert ran == {"note": 1}


@pytest.mark.parametrize("value", [None, 7, "x", True, [], [GOOD["form"]], 1.5])
async def test_input_responses_that_are_no_object_are_refused(value: Any) -> None:
    ran: Counter[str] = Counter()
    client = Client(every_kind(ran))
    first = await client.ask("tool")
    for more in ({"requestState": first.state}, {}):
        error = await client.refused(inputResponses=value, **more)
        assert error.code == -32602
    assert ran == {}


async def test_malformed_answers_by_hand_are_refused_by_the_kind_that_was_asked() -> None:
    server = new_server()
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

    @server.tool
    async def tool(ctx: Context) -> Any:
        if not ctx.input_responses:
            return InputRequired(
                {
                    "form": {"method": "elicitation/create", "params": form},
                    "poem": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
                    "roots": {"method": "roots/list"},
                },
                "state",
            )
        return " ".join(sorted(ctx.input_responses))

    client = Client(server)
    first = await client.ask("tool")
    good = {key: GOOD[key] for key in ("form", "poem", "roots")}
    for kind in good:
        for malformed in MALFORMED[kind]:
            error = await client.refused(inputResponses={**good, kind: malformed}, requestState=first.state)
            assert error.code == -32602, (kind, malformed)
    assert text(await client.retry(first, good)) == "form poem roots"


# Hostile keys


HOSTILE_KEYS = [
    "",
    " ",
    "s:note",
    "step",
    "step-note",
    "now",
    "uuid-0",
    "__proto__",
    "constructor",
    "__class__",
    "elicit",
    "elicit-",
    "form\x00",
    "form ",
    "FORM",
    "\u202eform",
    "\uff46\uff4f\uff52\uff4d",
    "\U0001f600" * 100,
    "k" * 100_000,
    "../../etc/passwd",
    "'; DROP TABLE rounds; --",
    "%s%n{0}{form}",
]


async def test_hostile_keys_are_unknown_keys() -> None:
    ran: Counter[str] = Counter()
    client = Client(every_kind(ran))
    first = await client.ask("tool")
    for key in HOSTILE_KEYS:
        again = await client.retry(first, {key: GOOD["form"]})
        assert again.requests == first.requests, key
    everything: dict[str, Any] = {key: [key] for key in HOSTILE_KEYS} | GOOD
    assert text(await client.retry(first, everything)) == "accept accept scripted 1"
    assert ran == {"note": 1}


async def test_a_response_cannot_stand_for_a_step_or_a_drawn_value() -> None:
    """Every key that a journal might use for other things than answers is tried as an answer's."""
    server = new_server()
    ran: list[str] = []

    @server.tool
    async def tool(ctx: Context) -> str:
        def secret() -> str:
            ran.append("secret")
            return "from the step"

        await ctx.elicit("ok?", bool, key="ok")
        value = await ctx.step(secret, key="secret")
        number = ctx.random(key="random")
        await ctx.checkpoint(key="pause")
        await ctx.sleep(0, key="nap")
        return f"{value} {0 <= number < 1}"

    client = Client(server)
    first = await client.ask("tool")
    forged: dict[str, Any] = {
        prefix + name: value
        for name in ("secret", "random", "pause", "nap", "test_answers.secret")
        for prefix in (
            "",
            "s:",
            "step:",
            "step-",
            "step/",
            "d:",
            "draw:",
            "draw-",
            "n:",
            "p:",
            "a:",
            "k:",
            "_",
        )
        for value in ({"action": "accept", "content": {"value": "forged"}},)
    }
    played = await client.retry(first, {**forged, "ok": accept(True)})
    while played.result["resultType"] != "complete":
        played = await client.retry(played, forged)
    assert text(played) == "from the step True"
    assert ran == ["secret"]


async def test_a_step_and_a_question_of_the_same_key_do_not_meet() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        def work() -> str:
            return "worked"

        answer = await ctx.elicit("ok?", str, key="same")
        return f"{answer.data} {await ctx.step(work, key='same')}"

    client = Client(server)
    first = await client.ask("tool")
    assert text(await client.retry(first, {"same": accept("said")})) == "said worked"


# Hostile values


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"value": value}
    return value


@pytest.mark.parametrize(
    "content",
    [
        {"name": "x" * 50_000},
        {"name": "\U0001f600\x00\u2028\u202e"},
        {"name": _deep(50)},
        {"name": [[[]]] * 1000},
        {f"k{n}": "x" for n in range(2000)},
        {"name": "Ada", "__proto__": {"admin": True}},
        {"name": 10**19},
        {"name": 1e308},
        {"name": -0.0},
    ],
)
async def test_hostile_content_is_asked_again_or_taken_but_never_a_crash(content: Any) -> None:
    client = Client(every_kind())
    first = await client.ask("tool")
    responses = {**GOOD, "form": {"action": "accept", "content": content}}
    fits = isinstance(content.get("name"), str)
    played = await client.retry(first, responses)
    if fits:
        assert text(played) == "accept accept scripted 1"
    else:
        assert played.requests.keys() == {"form"}


@pytest.mark.parametrize("digits", [20, 300, 5_000, 50_000])
@pytest.mark.parametrize("schema", [int, float, str, bool])
async def test_numbers_of_many_digits_are_never_a_crash(digits: int, schema: Any) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("number", schema, key="n")
        await ctx.elicit("more", bool, key="more")
        return str(type(answer.data).__name__)

    async with server.connect() as channel:
        await channel.send(call("tool"))
        first = (await soon(channel.receive()))["result"]
        for literal in ("9" * digits, "-" + "9" * digits, "9" * digits + ".5", f"1e{digits}"):
            message = json.dumps(
                call(
                    "tool",
                    {},
                    2,
                    requestState=first["requestState"],
                    inputResponses={"n": accept("LITERAL"), "more": accept(True)},
                )
            )
            await channel.send(message.replace('"LITERAL"', literal).encode())
            reply = await soon(channel.receive())
            if "error" in reply:
                assert reply["error"]["code"] in (-32602, -32600, -32700), (literal[:20], reply)
            else:
                assert reply["result"]["resultType"] == "input_required" or not reply["result"].get(
                    "isError"
                ), (
                    literal[:20],
                    reply,
                )


async def test_numbers_of_many_digits_in_a_sample_or_in_roots_are_never_a_crash() -> None:
    ran: Counter[str] = Counter()
    async with every_kind(ran).connect() as channel:
        await channel.send(call("tool"))
        first = (await soon(channel.receive()))["result"]
        for digits in (20, 5_000):
            for key in ("poem", "roots", "form", "page"):
                for field in ("_meta", "extra"):
                    responses = {**GOOD, key: {**GOOD[key], field: {"n": "LITERAL"}}}
                    message = json.dumps(
                        call("tool", {}, 2, requestState=first["requestState"], inputResponses=responses)
                    )
                    await channel.send(message.replace('"LITERAL"', "9" * digits).encode())
                    reply = await soon(channel.receive())
                    if "error" in reply:
                        assert reply["error"]["code"] in (-32602, -32600, -32700), (digits, key, field, reply)
                    else:
                        assert not reply["result"].get("isError"), (digits, key, field, reply)


@pytest.mark.parametrize(
    "literal", [r'"\ud800"', r'"\udc00\ud800"', '"\\u0000"', "NaN", "Infinity", "1e400", "-0", "1E5"]
)
async def test_text_and_numbers_at_the_edge_of_json_are_never_a_crash(literal: str) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        text_or_number = {
            "type": "object",
            "properties": {"value": {"type": "string"}, "n": {"type": "number"}},
        }
        await ctx.elicit("edge", text_or_number, key="edge")
        await ctx.elicit("more", bool, key="more")
        return "done"

    async with server.connect() as channel:
        await channel.send(call("tool"))
        first = (await soon(channel.receive()))["result"]
        for field in ("value", "n"):
            responses = {"edge": {"action": "accept", "content": {field: "LITERAL"}}}
            message = call("tool", {}, 2, requestState=first["requestState"], inputResponses=responses)
            await channel.send(json.dumps(message).replace('"LITERAL"', literal).encode())
            reply = await soon(channel.receive())
            if "error" in reply:
                assert reply["error"]["code"] in (-32602, -32600, -32700), reply
            else:
                assert reply["result"]["resultType"] == "input_required"


async def test_very_deep_answers_are_never_a_crash() -> None:
    async with served(every_kind()) as url:
        first = (await post(url, call("tool"))).json()["result"]
        for levels in (100, 1_000, 100_000):
            deep = '{"value":' * levels + "1" + "}" * levels
            message = call(
                "tool",
                {},
                2,
                requestState=first["requestState"],
                inputResponses={**GOOD, "form": {"action": "accept", "content": {"name": "DEEP"}}},
            )
            body = json.dumps(message).replace('"DEEP"', deep)
            async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
                response = await client.post(url, content=body.encode(), headers=headers_for(message))
            assert response.status_code < 500, levels
        done = await post(url, call("tool", {}, 3, requestState=first["requestState"], inputResponses=GOOD))
        assert text(done.json()["result"]) == "accept accept scripted 1"


async def test_thousands_of_unknown_answers_do_not_grow_the_state() -> None:
    client = Client(two_questions())
    first = await client.ask("tool")
    flood = {f"unknown-{n}": accept("x" * 100) for n in range(5_000)}
    second = await client.retry(first, {**flood, key_of(first, "a"): accept("A")})
    assert second.state is not None
    assert first.state is not None
    assert len(second.state) < len(first.state) + 400


async def test_unknown_answers_by_hand_do_not_grow_the_state() -> None:
    """The token carries the answers that were asked for, not whatever a client sends along."""
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> Any:
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        if "last" not in ctx.input_responses:
            name = "last" if "first" in ctx.input_responses else "first"
            return InputRequired({name: {"method": "elicitation/create", "params": form}}, "state")
        return " ".join(sorted(ctx.input_responses))

    client = Client(server)
    first = await client.ask("tool")
    flood = {f"unknown-{n}": accept("x" * 100) for n in range(1_000)}
    second = await client.retry(first, {**flood, "first": accept("A")})
    assert second.state is not None
    assert len(second.state) < 2_000
    assert text(await client.retry(second, {"last": accept("B")})) == "first last"


# Everything else

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["accept", "decline", "cancel", "assistant", "user"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8)
            | st.sampled_from(["action", "content", "roots", "uri", "role", "model", "type", "name"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
_RESPONSES = st.dictionaries(st.sampled_from([*GOOD, "other", ""]) | st.text(max_size=5), _JSON, max_size=6)


@pytest.fixture(scope="module")
def running() -> Generator[tuple[asyncio.Runner, Server], None, None]:
    with asyncio.Runner() as runner:
        yield runner, every_kind()


def hold_any_json_to_its_meaning(
    running: tuple[asyncio.Runner, Server], responses: dict[str, Any], stateful: bool
) -> None:
    runner, server = running

    async def play() -> None:
        client = Client(server)
        first = await client.ask("tool")
        more: dict[str, Any] = {"requestState": first.state} if stateful else {}
        refusal: CallFailed | None = None
        try:
            played = await client.ask("tool", inputResponses=responses, **more)
        except CallFailed as error:
            refusal = error
        if refusal is not None:
            assert refusal.code == -32602
            return
        if played.result["resultType"] == "complete":
            assert not played.result.get("isError")
        for key in GOOD.keys() - responses.keys():
            assert key in played.requests, "a question that was not answered must be asked again"

    runner.run(play())


_MANY = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@settings(_MANY, max_examples=60)
@given(_RESPONSES, st.booleans())
def test_any_json_is_refused_asked_again_or_taken_for_what_it_is(
    running: tuple[asyncio.Runner, Server], responses: dict[str, Any], stateful: bool
) -> None:
    hold_any_json_to_its_meaning(running, responses, stateful)


@pytest.mark.slow
@_MANY
@given(_RESPONSES, st.booleans())
def test_much_json_is_refused_asked_again_or_taken_for_what_it_is(
    running: tuple[asyncio.Runner, Server], responses: dict[str, Any], stateful: bool
) -> None:
    hold_any_json_to_its_meaning(running, responses, stateful)


# What a handler makes of an answer is its own


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


TAGS = {
    "type": "object",
    "properties": {"tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}},
}


async def _by_schema(ctx: Context) -> list[str]:
    data: dict[str, list[str]] = (await ctx.elicit("first?", TAGS, key="first")).data or {}
    return data["tags"]


async def _by_model(ctx: Context) -> list[str]:
    answer = await ctx.elicit("first?", Loose, key="first")
    assert answer.data is not None
    tags: list[str] = answer.data.model_extra["tags"]  # type: ignore[index]
    return tags


async def _by_sampling(ctx: Context) -> list[str]:
    sampled = await ctx.sample("first?", max_tokens=9, key="first")
    used: Any = sampled.content[0] if isinstance(sampled.content, list) else sampled.content
    tags: list[str] = used.input["tags"]
    return tags


TOOL_USE = {
    "role": "assistant",
    "model": "m",
    "content": [{"type": "tool_use", "id": "1", "name": "tag", "input": {"tags": ["a"]}}],
}


@pytest.mark.parametrize(
    ("hear", "answer"),
    [
        (_by_schema, accept(tags=["a"])),
        (_by_model, accept(name="x", tags=["a"])),
        (_by_sampling, TOOL_USE),
    ],
)
async def test_what_a_handler_does_to_an_answer_reaches_no_later_round(hear: Any, answer: Any) -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        tags = await hear(ctx)
        tags.append("b")
        for question in ("second?", "third?"):
            await ctx.elicit(f"{question} {tags}", bool, key=question)
        return str(tags)

    client = Client(server)
    asked = await client.ask("tool")
    asked = await client.retry(asked, {"first": answer})
    assert messages(asked) == ["second? ['a', 'b']"]
    asked = await client.retry(asked, {"second?": accept(True)})
    assert messages(asked) == ["third? ['a', 'b']"]
    assert text(await client.retry(asked, {"third?": accept(True)})) == "['a', 'b']"


class Taking(BaseModel):
    name: str

    @model_validator(mode="before")
    @classmethod
    def take(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data.pop("name")}


async def test_what_a_validator_does_to_an_answer_reaches_no_later_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        first = await ctx.elicit("first?", Taking, key="first")
        await ctx.elicit("second?", bool, key="second")
        await ctx.elicit("third?", bool, key="third")
        return str(first.data)

    client = Client(server)
    asked = await client.retry(await client.ask("tool"), {"first": accept(name="x")})
    assert messages(asked) == ["second?"]
    asked = await client.retry(asked, {"second": accept(True)})
    assert messages(asked) == ["third?"]
    assert text(await client.retry(asked, {"third": accept(True)})) == "name='x'"


async def test_what_a_handler_does_to_an_answer_by_hand_reaches_no_later_round() -> None:
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str | InputRequired:
        heard = ctx.input_responses
        if "first" not in heard:
            return InputRequired({"first": only_tags()})
        tags = heard["first"].content["tags"]  # type: ignore[union-attr,index]
        tags.append("b")  # type: ignore[union-attr]
        if "second" not in heard:
            return InputRequired({"second": only_tags()})
        return str(tags)

    def only_tags() -> Any:
        return {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "?", "requestedSchema": TAGS},
        }

    client = Client(server)
    asked = await client.ask("tool")
    asked = await client.retry(asked, {"first": accept(tags=["a"])})
    assert text(await client.retry(asked, {"second": accept(tags=[])})) == "['a', 'b']"
