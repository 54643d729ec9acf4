"""Whose a name or a URI is, where the prefixes of mounted servers begin alike."""

from typing import Any

import pytest

from ekiden import Client, RegistrationError, Server, ServerError


def _server(name: str) -> Server:
    server = Server(name)
    server.add_tool(lambda: name, name="own")
    return server


def _take(server: Server, key: str) -> None:
    """Register something later, as a server behind a gateway does."""
    if "://" in key:
        server.resource(key)(lambda: server.name)
    else:
        server.add_tool(lambda: server.name, name=key)


# The prefix of who wants it, what is registered there, what that is called around it, and the other prefix.
FOREIGN = [
    ("a", "b_pay", "a_b_pay", "a_b"),
    ("a", "b_c_pay", "a_b_c_pay", "a_b"),
    (None, "notes_pay", "notes_pay", "notes"),
    (None, "notes+config://app", "notes+config://app", "notes"),
]


@pytest.mark.parametrize("mounted_first", [True, False])
@pytest.mark.parametrize(("prefix", "key", "spelled", "other"), FOREIGN)
async def test_what_begins_with_a_longer_prefix_belongs_to_the_server_that_has_it(
    prefix: str | None,
    key: str,
    spelled: str,
    other: str,
    mounted_first: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outer, wants, has = Server("outer"), _server("wants"), _server("has")
    mounts: list[tuple[Server, str | None]] = [(wants, prefix), (has, other)]
    for inner, its_prefix in mounts if mounted_first else reversed(mounts):
        outer.mount(inner, prefix=its_prefix)
    _take(wants, key)
    assert f"{spelled!r} belongs to the prefix {other!r}" in caplog.text
    async with Client(outer) as client:
        reach: Any = client.read_resource if "://" in key else client.call_tool
        with pytest.raises(ServerError, match=r"Unknown tool|not found"):
            await reach(spelled)
        _take(has, spelled.removeprefix(f"{other}_").removeprefix(f"{other}+"))
        told = await reach(spelled)
    assert "has" in str(told)


@pytest.mark.parametrize(("prefix", "key", "spelled", "other"), FOREIGN)
def test_a_prefix_with_which_names_of_another_begin_is_refused_and_so_are_such_names(
    prefix: str | None, key: str, spelled: str, other: str
) -> None:
    for reverse in (False, True):
        outer, wants = Server("outer"), _server("wants")
        _take(wants, key)
        mounts: list[tuple[Server, str | None]] = [(wants, prefix), (_server("has"), other)]
        (first, its_prefix), (second, other_prefix) = reversed(mounts) if reverse else mounts
        outer.mount(first, prefix=its_prefix)
        before = [tool.key for tool in outer.endpoint.registry.tools]
        with pytest.raises(RegistrationError, match="another prefix="):
            outer.mount(second, prefix=other_prefix)
        assert [tool.key for tool in outer.endpoint.registry.tools] == before


async def test_names_of_a_shorter_prefix_are_its_own_where_no_longer_one_is_mounted() -> None:
    outer, inner = Server("outer"), _server("inner")
    outer.mount(inner, prefix="a")
    outer.mount(_server("other"), prefix="ab")
    _take(inner, "b_pay")
    async with Client(outer) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a_own", "ab_own", "a_b_pay"]
