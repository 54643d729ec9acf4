"""Resources, pages and hints for caches."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from ekiden import CacheHint, EkidenError, Server

from .marks import requirement
from .messages import Message, call, request
from .over_http import Http, http_server
from .over_stdio import Stdio

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@pytest.fixture(scope="module")
def paged() -> Iterator[Http]:
    """A client for a server whose lists have several pages."""
    with http_server("paged") as (client, _):
        yield client


def pages(http: Http, method: str) -> list[Message]:
    """All pages of a list, from cursor to cursor."""
    found = [http.ask(method)["result"]]
    while "nextCursor" in found[-1]:
        assert isinstance(found[-1]["nextCursor"], str)
        assert len(found) < 20
        found.append(http.ask(method, {"cursor": found[-1]["nextCursor"]})["result"])
    return found


@requirement("RES-01")
def test_a_server_with_resources_declares_them(http: Http) -> None:
    assert isinstance(http.ask("server/discover")["result"]["capabilities"]["resources"], dict)


@requirement("RES-01", "MSG-08")
def test_a_server_without_resources_neither_declares_nor_serves_them(bare: Stdio) -> None:
    assert "resources" not in bare.ask("server/discover")["result"]["capabilities"]
    for method in ("resources/list", "resources/templates/list", "resources/read"):
        assert bare.ask(method, {"uri": "memo://watched"})["error"]["code"] == -32601


@requirement("RES-02")
def test_the_list_holds_the_resources_there_are_now(fresh: Stdio) -> None:
    def uris() -> set[str]:
        return {resource["uri"] for resource in fresh.ask("resources/list")["result"]["resources"]}

    before = uris()
    assert before == {"memo://watched", "memo://bytes", "memo://broken"}
    fresh.exchange(call("grow", id_="grow", kind="resource", name="grown"))
    assert uris() == {*before, "memo://grown"}
    fresh.exchange(call("shrink", id_="shrink", kind="resource", name="grown"))
    assert uris() == before


@requirement("RES-02")
def test_templates_are_listed_apart(http: Http) -> None:
    templates = http.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert [template["uriTemplate"] for template in templates] == ["memo://items/{key}"]
    assert http.ask("resources/read", {"uri": "memo://items/7"})["result"]["contents"][0]["text"] == "item 7"


@requirement("RES-06")
@pytest.mark.parametrize(
    "uri", ["no scheme", "/path", "", "1memo://x", "me mo://x", "mémo://x", "memo://a b", "memo://%zz"]
)
def test_a_resource_whose_uri_is_none_is_not_registered(uri: str) -> None:
    with pytest.raises(EkidenError):
        Server("uris").add_resource(uri, lambda: "", name="x")


@requirement("RES-06")
@pytest.mark.parametrize("uri", ["memo://x", "a+b-c.1:x", "urn:isbn:0451450523", "file:///a/b%20c?q#f", "x:"])
def test_a_scheme_of_one_s_own_can_be_used(uri: str) -> None:
    Server("uris").add_resource(uri, lambda: "", name="x")


@requirement("RES-07", "RES-09", "MSG-10")
@pytest.mark.parametrize(
    "uri", ["memo://no/such", "memo://WATCHED", "file:///etc/passwd", "memo://items/a/b"]
)
def test_a_resource_that_does_not_exist_is_refused(http: Http, uri: str) -> None:
    reply = http.send(request("resources/read", {"uri": uri}))
    assert reply.code == -32602
    assert "result" not in reply.last


@requirement("RES-08")
def test_a_resource_that_breaks_is_an_internal_error(http: Http) -> None:
    assert http.send(request("resources/read", {"uri": "memo://broken"})).code == -32603


@requirement("RES-10")
@pytest.mark.parametrize("params", [{}, {"uri": None}, {"uri": 7}, {"uri": ["memo://watched"]}, {"uri": ""}])
def test_a_uri_that_is_none_is_refused(stdio: Stdio, params: Message) -> None:
    assert stdio.ask("resources/read", params)["error"]["code"] == -32602


@requirement("RES-10")
@pytest.mark.parametrize(
    "uri", ["not a uri", "memo://items/a b", "memo://items/\n", "memo://items/%zz", "memo://items/"]
)
def test_a_uri_that_is_not_well_formed_matches_no_template(stdio: Stdio, uri: str) -> None:
    assert stdio.ask("resources/read", {"uri": uri})["error"]["code"] == -32602


@requirement("RES-11")
def test_binary_data_goes_out_as_base64(http: Http) -> None:
    (content,) = http.ask("resources/read", {"uri": "memo://bytes"})["result"]["contents"]
    assert base64.b64decode(content["blob"], validate=True) == bytes(range(256))
    assert (content["uri"], content["mimeType"]) == ("memo://bytes", "application/octet-stream")
    assert "text" not in content


@requirement("PAGE-01")
@pytest.mark.parametrize("method", LISTS)
def test_the_pages_of_a_list_hold_each_item_once(paged: Http, method: str) -> None:
    found = pages(paged, method)
    assert len(found) > 1
    names = [item["name"] for page in found for item in page[LISTS[method]]]
    assert len(names) == 5
    assert len(set(names)) == 5


@requirement("PAGE-01")
def test_a_list_that_is_sent_whole_has_no_cursor(http: Http) -> None:
    assert all("nextCursor" not in http.ask(method)["result"] for method in LISTS)


@requirement("PAGE-02")
@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", ["no such cursor", "AAAA", "-1", "999999", 7, ["x"], {}])
def test_a_cursor_that_was_never_given_is_refused(paged: Http, method: str, cursor: Any) -> None:
    assert paged.send(request(method, {"cursor": cursor})).code == -32602


@requirement("PAGE-02")
@pytest.mark.parametrize("method", LISTS)
def test_a_server_without_pages_refuses_every_cursor(http: Http, method: str) -> None:
    assert http.send(request(method, {"cursor": "no such cursor"})).code == -32602


@requirement("CACHE-01", "CACHE-02")
@pytest.mark.parametrize("method", [*LISTS, "server/discover", "resources/read"])
def test_what_can_be_cached_says_for_how_long_and_by_whom(http: Http, method: str) -> None:
    params = {"uri": "memo://watched"} if method == "resources/read" else {}
    result = http.ask(method, params)["result"]
    assert type(result["ttlMs"]) is int
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in {"public", "private"}


@requirement("CACHE-01")
def test_the_hints_are_those_the_author_gave(paged: Http) -> None:
    page = paged.ask("tools/list")["result"]
    assert (page["ttlMs"], page["cacheScope"]) == (60_000, "public")


@requirement("CACHE-02")
def test_a_negative_time_to_live_is_refused_where_it_is_written() -> None:
    with pytest.raises((EkidenError, ValueError)):
        Server("negative", cache={"tools/list": CacheHint(-1)})


@requirement("CACHE-03")
@pytest.mark.parametrize("method", LISTS)
def test_all_pages_have_the_same_scope(paged: Http, method: str) -> None:
    assert {page["cacheScope"] for page in pages(paged, method)} == {"public"}
