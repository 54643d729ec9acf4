import base64
from datetime import date
from enum import Enum
from typing import Any

import pytest
from mcp_types import Annotations, BlobResourceContents, ReadResourceResult, TextResourceContents

from ekiden import CacheHint, Context, RegistrationError, ResourceNotFound, Server, UsageError
from tests.eras.old_client import old_client, request
from tests.serving import error_of, result_of, served


async def read(server: Server, uri: str) -> dict[str, Any]:
    return await result_of(server, "resources/read", {"uri": uri})


async def contents_of(value: Any, **options: Any) -> list[dict[str, Any]]:
    server = Server("s")

    async def resource() -> Any:
        return value

    server.add_resource("a://b", resource, **options)
    contents: list[dict[str, Any]] = (await read(server, "a://b"))["contents"]
    return contents


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text", {"mimeType": "text/plain", "text": "text"}),
        (
            b"\xff\x00",
            {"mimeType": "application/octet-stream", "blob": base64.b64encode(b"\xff\x00").decode()},
        ),
        ({"a": date(2026, 7, 28)}, {"mimeType": "application/json", "text": '{"a":"2026-07-28"}'}),
        ([1, 2], {"mimeType": "application/json", "text": "[1,2]"}),
        (None, {"mimeType": "application/json", "text": "null"}),
    ],
)
async def test_what_a_resource_returns_becomes_contents(value: Any, contents: dict[str, Any]) -> None:
    assert await contents_of(value) == [{"uri": "a://b", **contents}]


@pytest.mark.parametrize("value", ["<a/>", b"<a/>", {"a": 1}])
async def test_a_given_mime_type_wins(value: Any) -> None:
    assert (await contents_of(value, mime_type="image/svg+xml"))[0]["mimeType"] == "image/svg+xml"


async def test_contents_are_sent_as_they_are() -> None:
    text = TextResourceContents(uri="a://c", text="t", mime_type="text/x")
    blob = BlobResourceContents(uri="a://d", blob="aQ==")
    assert await contents_of(text) == [{"uri": "a://c", "mimeType": "text/x", "text": "t"}]
    assert await contents_of([text, blob, "more"]) == [
        {"uri": "a://c", "mimeType": "text/x", "text": "t"},
        {"uri": "a://d", "blob": "aQ=="},
        {"uri": "a://b", "mimeType": "text/plain", "text": "more"},
    ]


async def test_a_result_says_for_how_long_it_may_be_kept() -> None:
    server = Server("s")

    @server.resource("a://default")
    async def default() -> str:
        return ""

    @server.resource("a://kept", cache=CacheHint(5000, "public"))
    async def kept() -> str:
        return ""

    @server.resource("a://chosen", cache=CacheHint(5000, "public"))
    async def chosen() -> ReadResourceResult:
        return ReadResourceResult(contents=[], ttl_ms=7)

    result = await read(server, "a://default")
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    result = await read(server, "a://kept")
    assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")
    result = await read(server, "a://chosen")
    assert (result["contents"], result["ttlMs"], result["cacheScope"]) == ([], 7, "public")


async def test_a_negative_time_to_live_is_refused() -> None:
    with pytest.raises(UsageError, match="must not be negative"):
        CacheHint(-1)


async def test_all_that_is_said_about_a_resource_is_listed() -> None:
    server = Server("s")

    @server.resource(
        "a://b",
        name="named",
        title="Title",
        mime_type="text/x",
        size=3,
        annotations=Annotations(audience=["user"], priority=0.5),
        meta={"k": 1},
    )
    async def resource() -> str:
        """Described."""
        return ""

    @server.resource("a://{x}")
    async def template(x: str) -> str:
        """Described too."""
        return x

    (listed,) = (await result_of(server, "resources/list"))["resources"]
    assert listed == {
        "uri": "a://b",
        "name": "named",
        "title": "Title",
        "description": "Described.",
        "mimeType": "text/x",
        "size": 3,
        "annotations": {"audience": ["user"], "priority": 0.5},
        "_meta": {"k": 1},
    }
    (listed,) = (await result_of(server, "resources/templates/list"))["resourceTemplates"]
    assert listed == {"uriTemplate": "a://{x}", "name": "template", "description": "Described too."}


class Kind(Enum):
    DAY = "day"
    WEEK = "week"


def typed() -> Server:
    server = Server("s")

    @server.resource("log://{kind}/{number}{?since,limit}")
    async def log(kind: Kind, number: int, ctx: Context, since: date | None = None, limit: int = 10) -> str:
        return repr((kind, number, since, limit))

    return server


async def test_variables_become_what_the_hints_say() -> None:
    contents = (await read(typed(), "log://day/3"))["contents"]
    assert contents[0]["text"] == "(<Kind.DAY: 'day'>, 3, None, 10)"
    assert contents[0]["uri"] == "log://day/3"


async def test_query_variables_are_optional_and_typed() -> None:
    contents = (await read(typed(), "log://week/3?limit=5&since=2026-07-28&other=x"))["contents"]
    assert contents[0]["text"] == "(<Kind.WEEK: 'week'>, 3, datetime.date(2026, 7, 28), 5)"


@pytest.mark.parametrize(
    "uri",
    [
        "log://month/3",
        "log://day/x",
        "log://day/3?limit=x",
        "log://day",
        "log://day/3/4",
        "other://day/3",
        "x",
        "",
    ],
)
async def test_a_uri_that_names_nothing_is_invalid_params_with_the_uri(uri: str) -> None:
    error = await error_of(typed(), "resources/read", {"uri": uri})
    assert error["code"] == -32602
    assert error["data"] == {"uri": uri}


async def test_a_static_resource_goes_before_a_template_and_templates_go_in_order() -> None:
    server = Server("s")

    @server.resource("a://{x}")
    async def first(x: str) -> str:
        return f"first {x}"

    @server.resource("a://{+y}")
    async def second(y: str) -> str:
        return f"second {y}"

    @server.resource("a://fixed")
    async def fixed() -> str:
        return "fixed"

    for uri, text in (("a://fixed", "fixed"), ("a://other", "first other"), ("a://o/p", "second o/p")):
        assert (await read(server, uri))["contents"][0]["text"] == text


async def test_a_resource_needs_a_scheme_and_fitting_parameters() -> None:
    async def none() -> str:
        return ""

    async def one(x: str) -> str:
        return x

    server = Server("s")
    with pytest.raises(RegistrationError, match="is not a URI"):
        server.add_resource("config", none)
    with pytest.raises(RegistrationError, match="differ in x"):
        server.add_resource("a://b", one)
    with pytest.raises(RegistrationError, match="differ in x"):
        server.add_resource("a://{x}", none)
    with pytest.raises(RegistrationError, match="differ in x, y"):
        server.add_resource("a://{y}", one)
    with pytest.raises(RegistrationError, match="query variables need defaults: x"):
        server.add_resource("a://b{?x}", one)
    with pytest.raises(RegistrationError, match=r"is not a URI|unbalanced braces"):
        server.add_resource("a://{x", one)


async def test_resources_and_templates_can_be_taken_back() -> None:
    server = Server("s")

    @server.resource("a://b")
    async def resource() -> str:
        return ""

    @server.resource("a://{x}/c")
    async def template(x: str) -> str:
        return ""

    with pytest.raises(RegistrationError, match="Resource 'a://b' is registered already"):
        server.add_resource("a://b", resource)
    server.remove_resource("a://b")
    server.remove_resource("a://{x}/c")
    for uri in ("a://b", "a://1/c"):
        assert (await error_of(server, "resources/read", {"uri": uri}))["code"] == -32602
    with pytest.raises(UsageError, match="no resource 'a://b' to remove"):
        server.remove_resource("a://b")


async def test_a_plain_function_can_be_a_resource() -> None:
    server = Server("s")

    @server.resource("a://b")
    def resource() -> str:
        return "plain"

    assert (await read(server, "a://b"))["contents"][0]["text"] == "plain"


async def test_a_handler_can_say_that_a_resource_of_its_template_does_not_exist() -> None:
    server = Server("s")

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        raise ResourceNotFound(f"note://{name}")

    error = await error_of(server, "resources/read", {"uri": "note://absent"})
    assert error == {
        "code": -32602,
        "message": "Resource not found: note://absent",
        "data": {"uri": "note://absent"},
    }
    async with served(server) as base, old_client(base) as client:
        *_, reply = await client.talk(request("resources/read", {"uri": "note://absent"}))
        assert reply["error"]["code"] == -32002
