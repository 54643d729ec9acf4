"""Tools: that they are declared, listed, checked, and how they fail."""

from typing import Any

import httpx2
import jsonschema_rs
import pytest

from .marks import requirement
from .messages import Message, call, request
from .over_http import Http
from .over_stdio import Stdio, stdio_server
from .shapes import is_error


def names(message: Message) -> list[str]:
    """The names of the tools in a list."""
    return [tool["name"] for tool in message["result"]["tools"]]


@requirement("TOOL-01")
def test_a_server_with_tools_declares_them(http: Http, bare: Stdio) -> None:
    assert isinstance(http.ask("server/discover")["result"]["capabilities"]["tools"], dict)
    assert isinstance(bare.ask("server/discover")["result"]["capabilities"]["tools"], dict)


@requirement("TOOL-01", "MSG-08")
def test_a_server_without_tools_neither_declares_nor_serves_them() -> None:
    with stdio_server("toolless") as client:
        capabilities = client.ask("server/discover")["result"]["capabilities"]
        assert "tools" not in capabilities
        assert "prompts" in capabilities
        assert client.ask("tools/list")["error"]["code"] == -32601
        assert client.ask("tools/call", {"name": "x"})["error"]["code"] == -32601


@requirement("TOOL-02")
def test_the_list_holds_the_tools_there_are_now(fresh: Stdio) -> None:
    before = names(fresh.ask("tools/list"))
    assert {"echo", "steps", "mirror"} <= set(before)
    fresh.exchange(call("grow", id_="grow", kind="tool", name="grown"))
    assert set(names(fresh.ask("tools/list"))) == {*before, "grown"}
    fresh.exchange(call("shrink", id_="shrink", kind="tool", name="grown"))
    assert names(fresh.ask("tools/list")) == before
    assert fresh.exchange(call("grown", id_="gone"))[-1]["error"]["code"] == -32602


@requirement("TOOL-03", "PROMPT-03", "RES-03")
@pytest.mark.parametrize(
    "method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
)
def test_a_list_is_the_same_on_every_connection(http: Http, method: str) -> None:
    first = http.ask(method)["result"]
    http.send(call("echo", text="hi", _fields={"clientInfo": {"name": "a", "version": "1"}}))
    http.send(call("crash"))
    http.send(request("prompts/get", {"name": "review", "arguments": {"code": "x"}}))
    again = http.ask(method, clientInfo={"name": "b", "version": "2"})["result"]
    capable = http.ask(method, clientCapabilities={"sampling": {}, "elicitation": {}})["result"]
    with httpx2.Client(trust_env=False) as other:
        elsewhere = Http(http.url, other).ask(method)["result"]
    assert first == again == capable == elsewhere


@requirement("TOOL-05")
def test_every_input_schema_is_a_valid_schema_of_an_object(http: Http) -> None:
    for tool in http.ask("tools/list")["result"]["tools"]:
        schema = tool["inputSchema"]
        assert isinstance(schema, dict), tool["name"]
        assert schema["type"] == "object"
        jsonschema_rs.Draft202012Validator(schema)
        assert jsonschema_rs.meta.is_valid(schema)


@requirement("TOOL-05")
def test_a_tool_without_parameters_has_a_schema_all_the_same(http: Http) -> None:
    (runs,) = [tool for tool in http.ask("tools/list")["result"]["tools"] if tool["name"] == "runs"]
    assert runs["inputSchema"]["type"] == "object"
    assert jsonschema_rs.is_valid(runs["inputSchema"], {})


@requirement("TOOL-06")
@pytest.mark.parametrize(
    ("tool", "arguments", "value"),
    [("measure", {"good": True}, {"n": 1}), ("numbers", {}, [1, 2, 3]), ("seven", {}, 7)],
)
def test_structured_content_conforms_to_the_output_schema(
    http: Http, tool: str, arguments: Message, value: Any
) -> None:
    (listed,) = [item for item in http.ask("tools/list")["result"]["tools"] if item["name"] == tool]
    result = http.send(call(tool, **arguments)).last["result"]
    assert result["structuredContent"] == value
    assert jsonschema_rs.is_valid(listed["outputSchema"], result["structuredContent"])
    assert result["content"][0]["type"] == "text"


@requirement("TOOL-06")
def test_output_that_does_not_conform_does_not_leave(http: Http) -> None:
    answer = http.send(call("measure", good=False)).last
    assert is_error(answer)
    assert "structuredContent" not in answer.get("result", {})


@requirement("TOOL-07")
@pytest.mark.parametrize("name", ["no_such_tool", "Echo", "", "echo "])
def test_an_unknown_tool_is_a_protocol_error(stdio: Stdio, name: str) -> None:
    assert stdio.ask("tools/call", {"name": name, "arguments": {}})["error"]["code"] == -32602


@requirement("TOOL-07")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": None},
        {"name": 7},
        {"name": ["echo"]},
        {"name": "echo", "arguments": "hi"},
        {"name": "echo", "arguments": ["hi"]},
        {"name": "runs", "arguments": 7},
    ],
)
def test_a_malformed_call_is_a_protocol_error(stdio: Stdio, params: Message) -> None:
    assert stdio.ask("tools/call", params)["error"]["code"] == -32602


@requirement("TOOL-08")
@pytest.mark.parametrize("tool", ["refuse", "crash"])
def test_what_goes_wrong_inside_a_tool_is_a_result(http: Http, tool: str) -> None:
    result = http.send(call(tool)).last["result"]
    assert result["isError"] is True
    assert result["resultType"] == "complete"
    assert result["content"][0]["type"] == "text"


@requirement("TOOL-08")
def test_a_tool_error_tells_what_its_author_wrote(http: Http) -> None:
    assert http.send(call("refuse")).last["result"]["content"][0]["text"] == "Not today."


@requirement("TOOL-09")
@pytest.mark.parametrize(
    "arguments", [{}, {"n": "7"}, {"n": None}, {"n": 1.5}, {"n": [7]}, {"n": True}, {"n": 7, "m": 8}]
)
def test_a_tool_does_not_run_with_arguments_that_its_schema_forbids(http: Http, arguments: Message) -> None:
    (count,) = [tool for tool in http.ask("tools/list")["result"]["tools"] if tool["name"] == "count"]
    assert not jsonschema_rs.is_valid(count["inputSchema"], arguments)
    before = http.send(call("runs")).last["result"]["structuredContent"]
    assert is_error(http.send(call("count", **arguments)).last)
    assert http.send(call("runs")).last["result"]["structuredContent"] == before


@requirement("TOOL-09")
def test_a_call_may_leave_out_arguments_that_are_all_optional(http: Http) -> None:
    assert "structuredContent" in http.ask("tools/call", {"name": "runs"})["result"]
