"""Prompts and completions."""

import base64
from typing import Any

import pytest

from .marks import requirement
from .messages import Message, call, request
from .over_http import Http
from .over_stdio import Stdio


def contents(http: Http, kind: str) -> list[Message]:
    """What the prompt with all kinds of content has of one kind."""
    messages = http.ask("prompts/get", {"name": "gallery"})["result"]["messages"]
    assert {message["role"] for message in messages} <= {"user", "assistant"}
    return [message["content"] for message in messages if message["content"]["type"] == kind]


def complete(name: Any = "review", argument: Any = None, **more: Any) -> Message:
    """The params of a completion."""
    wanted = {"name": "language", "value": "p"} if argument is None else argument
    return {"ref": {"type": "ref/prompt", "name": name}, "argument": wanted, **more}


@requirement("PROMPT-01", "COMP-01")
def test_a_server_with_prompts_and_completions_declares_them(http: Http) -> None:
    capabilities = http.ask("server/discover")["result"]["capabilities"]
    assert isinstance(capabilities["prompts"], dict)
    assert isinstance(capabilities["completions"], dict)


@requirement("PROMPT-01", "COMP-03", "MSG-08")
def test_a_server_without_prompts_neither_declares_nor_serves_them(bare: Stdio) -> None:
    capabilities = bare.ask("server/discover")["result"]["capabilities"]
    assert not {"prompts", "completions"} & set(capabilities)
    assert bare.ask("prompts/list")["error"]["code"] == -32601
    assert bare.ask("prompts/get", {"name": "review"})["error"]["code"] == -32601
    assert bare.ask("completion/complete", complete())["error"]["code"] == -32601


@requirement("PROMPT-02")
def test_the_list_holds_the_prompts_there_are_now(fresh: Stdio) -> None:
    def names() -> set[str]:
        return {prompt["name"] for prompt in fresh.ask("prompts/list")["result"]["prompts"]}

    before = names()
    assert {"review", "gallery"} <= before
    fresh.exchange(call("grow", id_="grow", kind="prompt", name="grown"))
    assert names() == {*before, "grown"}
    fresh.exchange(call("shrink", id_="shrink", kind="prompt", name="grown"))
    assert names() == before


@requirement("PROMPT-02")
def test_a_listed_prompt_tells_its_arguments(http: Http) -> None:
    (review,) = [p for p in http.ask("prompts/list")["result"]["prompts"] if p["name"] == "review"]
    assert [(a["name"], a.get("required", False)) for a in review["arguments"]] == [
        ("code", True),
        ("language", False),
    ]


@requirement("PROMPT-05")
def test_an_image_goes_out_as_base64_with_its_type(http: Http) -> None:
    (image,) = contents(http, "image")
    assert base64.b64decode(image["data"], validate=True) == b"\x00\x01\x02\xff"
    assert image["mimeType"] == "image/png"


@requirement("PROMPT-06")
def test_sound_goes_out_as_base64_with_its_type(http: Http) -> None:
    (audio,) = contents(http, "audio")
    assert base64.b64decode(audio["data"], validate=True) == b"\x00\x01\x02\xff"
    assert audio["mimeType"] == "audio/wav"


@requirement("PROMPT-07")
def test_an_embedded_resource_has_uri_type_and_content(http: Http) -> None:
    text, blob = (content["resource"] for content in contents(http, "resource"))
    assert (text["uri"], text["mimeType"], text["text"]) == ("memo://plain", "text/plain", "plain")
    assert (blob["uri"], blob["mimeType"]) == ("memo://pixels", "image/png")
    assert base64.b64decode(blob["blob"], validate=True) == b"\x00\x01\x02\xff"
    assert "blob" not in text
    assert "text" not in blob


@requirement("PROMPT-08")
@pytest.mark.parametrize("name", ["no_such_prompt", "Review", ""])
def test_an_unknown_prompt_is_refused(stdio: Stdio, name: str) -> None:
    assert stdio.ask("prompts/get", {"name": name})["error"]["code"] == -32602


@requirement("PROMPT-09")
@pytest.mark.parametrize("params", [{}, {"arguments": {}}, {"arguments": {"language": "python"}}])
def test_a_missing_argument_of_a_prompt_is_refused(http: Http, params: Message) -> None:
    assert http.send(request("prompts/get", {"name": "review", **params})).code == -32602


@requirement("PROMPT-10")
def test_a_prompt_that_breaks_is_an_internal_error(http: Http) -> None:
    assert http.send(request("prompts/get", {"name": "broken"})).code == -32603


@requirement("PROMPT-11")
@pytest.mark.parametrize(
    "params",
    [
        {"name": "review", "arguments": {"code": 7}},
        {"name": "review", "arguments": {"code": None}},
        {"name": "review", "arguments": {"code": {"a": "b"}}},
        {"name": "review", "arguments": "code"},
        {"name": "review", "arguments": ["code"]},
        {"name": 7},
        {},
    ],
)
def test_a_prompt_is_not_made_of_arguments_that_are_none(stdio: Stdio, params: Message) -> None:
    assert stdio.ask("prompts/get", params)["error"]["code"] == -32602


@requirement("COMP-02")
def test_at_most_100_suggestions_are_sent_and_the_rest_is_owned_up_to(http: Http) -> None:
    completion = http.ask("completion/complete", complete())["result"]["completion"]
    assert completion["values"] == [f"p{number}" for number in range(100)]
    assert completion["hasMore"] is True
    assert completion.get("total", 250) == 250


@requirement("COMP-02")
def test_a_template_s_variable_is_completed_too(http: Http) -> None:
    params = {
        "ref": {"type": "ref/resource", "uri": "memo://items/{key}"},
        "argument": {"name": "key", "value": "k"},
    }
    completion = http.ask("completion/complete", params)["result"]["completion"]
    assert completion["values"] == ["k"]
    assert completion.get("hasMore", False) is False


@requirement("COMP-04")
def test_completion_for_an_unknown_prompt_or_template_is_refused(http: Http) -> None:
    assert http.send(request("completion/complete", complete("no_such_prompt"))).code == -32602
    params = {
        "ref": {"type": "ref/resource", "uri": "memo://no/{such}"},
        "argument": {"name": "such", "value": ""},
    }
    assert http.send(request("completion/complete", params)).code == -32602


@requirement("COMP-05")
@pytest.mark.parametrize("lost", ["ref", "argument"])
def test_completion_without_what_it_needs_is_refused(http: Http, lost: str) -> None:
    params = {key: value for key, value in complete().items() if key != lost}
    assert http.send(request("completion/complete", params)).code == -32602


@requirement("COMP-06")
def test_a_completion_that_breaks_is_an_internal_error(http: Http) -> None:
    breaking = complete(argument={"name": "language", "value": "break"})
    assert http.send(request("completion/complete", breaking)).code == -32603


@requirement("COMP-07")
@pytest.mark.parametrize(
    "params",
    [
        complete(7),
        complete(argument={"name": "language"}),
        complete(argument={"value": "p"}),
        complete(argument={"name": "language", "value": 7}),
        complete(argument={"name": 7, "value": "p"}),
        complete(argument="language"),
        complete() | {"ref": {"type": "ref/tool", "name": "review"}},
        complete() | {"ref": {"name": "review"}},
        complete() | {"ref": "review"},
        complete(context={"arguments": "python"}),
        complete(context={"arguments": {"code": 7}}),
    ],
)
def test_a_completion_of_what_is_none_is_refused(http: Http, params: Message) -> None:
    assert http.send(request("completion/complete", params)).code == -32602
