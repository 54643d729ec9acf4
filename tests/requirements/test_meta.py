"""`_meta`, versions, and that each request stands alone."""

import json
import re
from typing import Any

import pytest

from .marks import requirement
from .messages import PREFIX, Message, call, listen, meta, request
from .over_http import Http
from .over_stdio import Stdio
from .shapes import VERSION, key_is_well_formed

REQUIRED = (PREFIX + "protocolVersion", PREFIX + "clientCapabilities")
TRACE = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"),
    "tracestate": re.compile(r"[^=,]+=[^,]*(,[^=,]+=[^,]*)*"),
    "baggage": re.compile(r"[^=,;]+=[^,]*(,[^=,;]+=[^,]*)*"),
}


def lacking(key: str) -> Message:
    """A request whose `_meta` lacks a key."""
    message = request("tools/list")
    del message["params"]["_meta"][key]
    return message


def metas(found: Any) -> list[Message]:
    """Every `_meta` anywhere in a message."""
    if isinstance(found, list):
        return [inner for item in found for inner in metas(item)]
    if not isinstance(found, dict):
        return []
    here = [found["_meta"]] if "_meta" in found else []
    return here + [inner for key, item in found.items() if key != "_meta" for inner in metas(item)]


@requirement("META-04", "META-05")
@pytest.mark.parametrize("key", REQUIRED)
def test_a_request_over_http_that_lacks_a_required_field_is_refused(http: Http, key: str) -> None:
    reply = http.send(lacking(key))
    assert reply.status == 400
    assert reply.code == -32602


@requirement("META-04", "META-05")
@pytest.mark.parametrize("params", [None, {}, {"_meta": {}}, {"_meta": None}, []])
def test_a_request_over_http_without_meta_is_refused(http: Http, params: Any) -> None:
    message: Message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    reply = http.send(message | ({} if params is None else {"params": params}))
    assert reply.status == 400
    assert reply.code in ({-32602, -32600} if params == [] else {-32602})


@requirement("META-04")
def test_a_request_over_stdio_that_lacks_a_required_field_is_refused(stdio: Stdio) -> None:
    for key in REQUIRED:
        assert stdio.exchange(lacking(key))[-1]["error"]["code"] == -32602
    whole: Message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert stdio.exchange(whole)[-1]["error"]["code"] == -32602
    assert stdio.exchange(whole | {"params": {}})[-1]["error"]["code"] == -32602


@requirement("META-04")
@pytest.mark.parametrize("fields", [{"protocolVersion": 20260728}, {"clientCapabilities": "none"}])
def test_a_required_field_of_the_wrong_type_is_refused(stdio: Stdio, fields: Message) -> None:
    assert stdio.ask("tools/list", **fields)["error"]["code"] == -32602


@requirement("META-04")
def test_the_client_need_not_say_who_it_is(http: Http) -> None:
    assert PREFIX + "clientInfo" not in meta()
    assert "result" in http.ask("tools/list")


@requirement("META-01")
def test_unknown_keys_may_hold_anything(http: Http) -> None:
    odd = {"io.modelcontextprotocol/unheardOf": [1, None], "com.example/x": None, "dev.mcp/y": {"a": "b"}}
    reply = http.send(call("who", _fields=odd))
    assert reply.status == 200
    assert reply.last["result"]["structuredContent"]["fields"].items() >= odd.items()


@requirement("META-01")
@pytest.mark.parametrize("value", ["nonsense", "", None, 5, {}])
def test_a_trace_context_that_is_none_does_not_hurt_the_request(http: Http, value: Any) -> None:
    message = request("tools/list")
    message["params"]["_meta"] |= {"traceparent": value, "tracestate": value, "baggage": value}
    assert "result" in http.send(message).last


@requirement("META-02", "META-03", "META-09")
def test_the_meta_keys_that_the_server_writes_are_well_formed(fresh: Stdio) -> None:
    fresh.send(listen("stream", toolsListChanged=True))
    seen = [fresh.receive()]
    seen += fresh.exchange(call("talk", id_=2, _fields={"logLevel": "debug", "progressToken": "t"}))
    seen += fresh.exchange(call("grow", id_=3, kind="tool", name="grown"))
    for number, method in enumerate(("server/discover", "tools/list", "prompts/list", "resources/list")):
        seen += fresh.exchange(request(method, id_=10 + number))
    written = [(key, value) for holder in metas(seen) for key, value in holder.items()]
    assert written
    for key, value in written:
        assert key_is_well_formed(key), key
        assert key not in TRACE or TRACE[key].fullmatch(value), (key, value)


@requirement("META-06", "META-07")
def test_a_missing_capability_is_named_and_has_status_400(http: Http) -> None:
    reply = http.send(call("sampler"))
    assert reply.status == 400
    assert reply.code == -32021
    assert reply.last["error"]["data"]["requiredCapabilities"] == {"sampling": {}}


@requirement("META-06", "STATE-01")
def test_capabilities_of_an_earlier_request_do_not_count(http: Http, stdio: Stdio) -> None:
    able = call("sampler", _fields={"clientCapabilities": {"sampling": {}}})
    assert http.send(able).last["result"]["content"][0]["text"] == "sampled"
    assert http.send(call("sampler")).code == -32021
    assert "result" in stdio.exchange(able)[-1]
    assert stdio.exchange(call("sampler"))[-1]["error"]["code"] == -32021


@requirement("STATE-01")
def test_the_client_of_an_earlier_request_is_forgotten(stdio: Stdio) -> None:
    info = {"name": "first", "version": "1"}
    named = stdio.exchange(call("who", _fields={"clientInfo": info}))[-1]["result"]
    assert named["structuredContent"]["client"] == info
    nameless = stdio.exchange(call("who"))[-1]["result"]
    assert nameless["structuredContent"]["client"] is None


@requirement("STATE-01")
def test_the_version_of_an_earlier_request_is_forgotten(stdio: Stdio) -> None:
    assert stdio.ask("tools/list", protocolVersion="1900-01-01")["error"]["code"] == -32022
    assert "result" in stdio.ask("tools/list")
    assert stdio.exchange(lacking(REQUIRED[0]))[-1]["error"]["code"] == -32602


@requirement("STATE-01")
def test_no_request_needs_another_one_before_it(fresh: Stdio) -> None:
    assert "result" in fresh.exchange(call("echo", text="first"))[-1]


@requirement("VER-01")
@pytest.mark.parametrize("version", ["1900-01-01", "2099-12-31", "", "latest"])
def test_an_unsupported_version_is_told_which_are_supported(stdio: Stdio, version: str) -> None:
    for method in ("server/discover", "tools/list"):
        error = stdio.ask(method, protocolVersion=version)["error"]
        assert error["code"] == -32022
        assert error["data"]["requested"] == version
        assert VERSION in error["data"]["supported"]


@requirement("VER-02", "DISC-01")
def test_discovery_tells_versions_capabilities_and_instructions(http: Http) -> None:
    result = http.ask("server/discover")["result"]
    assert VERSION in result["supportedVersions"]
    assert set(result["capabilities"]) >= {"tools", "prompts", "resources", "completions"}
    assert result["instructions"] == "Read the table."
    assert result["_meta"][PREFIX + "serverInfo"] == {"name": "requirements", "version": "1.0"}


@requirement("VER-02", "DISC-01")
def test_a_server_without_instructions_sends_none(bare: Stdio) -> None:
    result = bare.ask("server/discover")["result"]
    assert "instructions" not in result
    assert "tools" in result["capabilities"]
    assert not {"prompts", "resources", "completions"} & set(result["capabilities"])


@requirement("VER-03")
def test_advertised_extensions_have_a_prefix(http: Http) -> None:
    capabilities = http.ask("server/discover")["result"]["capabilities"]
    for name, settings in capabilities.get("extensions", {}).items():
        assert key_is_well_formed(name)
        assert "/" in name
        assert isinstance(settings, dict)


@requirement("VER-04")
def test_a_client_with_an_unknown_extension_is_served_by_the_core_protocol(http: Http) -> None:
    capabilities = {"extensions": {"com.example/unheard-of": {"level": 11}}}
    answer = http.send(call("echo", text="hi", _fields={"clientCapabilities": capabilities})).last
    assert answer["result"]["resultType"] == "complete"


@requirement("VER-05")
def test_the_old_handshake_over_stdio_selects_the_old_era_for_good(fresh: Stdio) -> None:
    assert fresh.ask("tools/list")["result"]["resultType"] == "complete"
    fresh.send(handshake())
    assert json.loads(fresh.line() or b"")["result"]["protocolVersion"] == "2025-11-25"
    fresh.send(request("tools/list"))
    assert "resultType" not in json.loads(fresh.line() or b"")["result"]


@requirement("VER-05")
def test_the_old_handshake_over_http_selects_the_old_era_for_its_session(http: Http) -> None:
    headers = {"accept": "application/json, text/event-stream"}
    welcome = http.client.post(http.url, headers=headers, json=handshake())
    assert welcome.json()["result"]["protocolVersion"] == "2025-11-25"
    named = {**headers, "mcp-session-id": welcome.headers["mcp-session-id"]}
    listed = http.client.post(
        http.url, headers=named, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    )
    assert "resultType" not in listed.json()["result"]
    assert http.ask("tools/list")["result"]["resultType"] == "complete"


def handshake() -> Message:
    """What clients of earlier versions begin with."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
