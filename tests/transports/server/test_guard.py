import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.transports.server.guard import LOCALHOST, Guard


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"localhost:8000",
        b"LocalHost:8000",
        b"127.0.0.1",
        b"127.0.0.1:1",
        b"[::1]",
        b"[::1]:65535",
        b" localhost ",
    ],
)
def test_by_default_this_machine_is_allowed_on_every_port(host: bytes) -> None:
    assert Guard().allows_host(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        b"",
        b"evil.example",
        b"evil.example:8000",
        b"localhost.evil.example",
        b"evil-localhost",
        b"127.0.0.1.evil.example",
        b"127.0.0.2",
        b"localhost:",
        b"localhost:port",
        b"localhost:-1",
        b"localhost:8000:",
        b"localhost@evil.example",
        b"evil.example@localhost",
        b"::1",
        b"[::1",
        b"[::2]:8000",
        b"[::1].evil.example",
        b"localhost\xb2",
        b"localhost:\xb2",
        b"0.0.0.0",
        b"*",
    ],
)
def test_by_default_every_other_host_is_refused(host: bytes | None) -> None:
    assert not Guard().allows_host(host)


def test_a_host_given_with_a_port_is_allowed_on_that_port_only() -> None:
    guard = Guard(["mcp.example:8443", "[2001:db8::1]:9000"])
    assert guard.allows_host(b"mcp.example:8443")
    assert guard.allows_host(b"[2001:DB8::1]:9000")
    assert not guard.allows_host(b"mcp.example")
    assert not guard.allows_host(b"mcp.example:8444")
    assert not guard.allows_host(b"[2001:db8::1]")
    assert not guard.allows_host(b"localhost")


def test_the_allowlist_is_read_without_regard_to_case() -> None:
    assert Guard(["MCP.Example"]).allows_host(b"mcp.example:443")


@pytest.mark.parametrize("host", [None, b"", b"anything.example", b"[::1]:80", b"\xff"])
def test_a_star_allows_every_host_even_none(host: bytes | None) -> None:
    assert Guard(["*"]).allows_host(host)


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost",
        b"https://localhost:3000",
        b"HTTP://LOCALHOST:3000",
        b"http://127.0.0.1:6274",
        b"http://[::1]:5173",
    ],
)
def test_by_default_pages_of_allowed_hosts_may_talk_to_the_server(origin: bytes) -> None:
    assert Guard().allows_origin(origin)


@pytest.mark.parametrize(
    "origin",
    [
        b"null",
        b"",
        b"localhost",
        b"http://",
        b"http://evil.example",
        b"https://localhost.evil.example",
        b"http://evil.example:3000",
        b"file://localhost",
        b"ftp://localhost",
        b"chrome-extension://localhost",
        b"http://localhost/",
        b"http://localhost:3000/path",
        b"http://user@localhost",
        b"http://localhost:3000 http://evil.example",
        b"http://localhost\x00.evil.example",
        b"javascript://localhost",
    ],
)
def test_by_default_every_other_origin_is_refused(origin: bytes) -> None:
    assert not Guard().allows_origin(origin)


def test_given_origins_are_whole_and_replace_the_default() -> None:
    guard = Guard(LOCALHOST, ["https://App.example", "http://other.example:8080"])
    assert guard.allows_origin(b"https://app.example")
    assert guard.allows_origin(b"http://other.example:8080")
    assert not guard.allows_origin(b"http://app.example")
    assert not guard.allows_origin(b"https://app.example:444")
    assert not guard.allows_origin(b"http://other.example")
    assert not guard.allows_origin(b"http://localhost")
    assert not guard.allows_origin(b"null")


def test_no_origins_at_all_keeps_every_page_out() -> None:
    assert not Guard(LOCALHOST, []).allows_origin(b"http://localhost")


def test_the_null_origin_is_allowed_only_by_name_or_by_a_star() -> None:
    assert Guard(origins=["null"]).allows_origin(b"null")
    assert Guard(origins=["*"]).allows_origin(b"null")
    assert not Guard(["*"]).allows_origin(b"null")
    assert not Guard().allows_origin(b"null")


def test_a_star_among_the_hosts_opens_no_origin() -> None:
    guard = Guard(["*", "mcp.example"])
    assert guard.allows_origin(b"https://mcp.example")
    for origin in b"https://evil.example", b"http://localhost", b"http://*", b"http://*:80", b"null":
        assert not guard.allows_origin(origin)


def test_a_star_among_the_origins_does_not_open_the_hosts() -> None:
    guard = Guard(origins=["*"])
    assert guard.allows_origin(b"https://anything.example")
    assert not guard.allows_host(b"anything.example")


def test_a_star_among_the_hosts_does_not_open_given_origins() -> None:
    guard = Guard(["*"], ["https://app.example"])
    assert not guard.allows_origin(b"https://evil.example")


@given(
    st.lists(st.sampled_from([b"localhost:1", b"evil.example", b"localhost:2", b"127.0.0.1:3"]), max_size=20)
)
def test_a_verdict_does_not_depend_on_what_was_asked_before(hosts: list[bytes]) -> None:
    guard = Guard()
    for host in hosts:
        assert guard.allows_host(host) == (host != b"evil.example")
        assert guard.allows_origin(b"http://" + host) == (host != b"evil.example")


def test_a_client_with_many_spellings_cannot_fill_the_memory() -> None:
    guard = Guard()
    for port in range(5000):
        assert guard.allows_host(b"localhost:%d" % port)
        assert guard.allows_origin(b"http://localhost:%d" % port)
    assert len(guard.good_hosts) <= 256
    assert len(guard._good_origins) <= 256
