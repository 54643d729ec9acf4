"""Heads that a connection brings again: known ones give what the parser would give, all others nothing."""

from collections.abc import Sequence

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ekiden.transports.server.http1.heads import Heads
from ekiden.transports.server.reply import Incoming

LIMIT = 1000
FIELDS = ("Host: 127.0.0.1", "Mcp-Method: tools/call", "Mcp-Name: greet", "Content-Type: application/json")


def head(length: int | str, *more: str, fields: Sequence[str] = FIELDS, at: int = 1) -> bytes:
    lines = [*fields[:at], f"Content-Length: {length}", *fields[at:], *more]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode()


def parsed(data: bytes) -> Incoming:
    """What a parser makes of a whole request."""

    class Reader:
        def __init__(self) -> None:
            self.pairs: list[tuple[bytes, bytes]] = []
            self.body = b""

        def on_header(self, name: bytes, value: bytes) -> None:
            self.pairs.append((name.lower(), value))

        def on_body(self, body: bytes) -> None:
            self.body += body

    reader = Reader()
    httptools.HttpRequestParser(reader).feed_data(data)
    headers = dict(reader.pairs)
    repeating = None if len(headers) == len(reader.pairs) else reader.pairs
    return Incoming("POST", "/mcp", headers, None, reader.body, repeating)


def taught(data: bytes) -> Heads:
    heads = Heads()
    assert heads.find(data, LIMIT) is None
    heads.learn(data, parsed(data))
    return heads


@pytest.mark.parametrize("at", range(len(FIELDS) + 1))
@pytest.mark.parametrize("body", [b"{}", b'{"id":1}', b"x" * LIMIT])
def test_a_known_head_needs_no_parser_whatever_the_length(at: int, body: bytes) -> None:
    heads = taught(head(5, at=at) + b"12345")
    data = head(len(body), at=at) + body
    assert heads.find(data, LIMIT) == parsed(data)


@pytest.mark.parametrize("said", ["keep-alive", "Keep-Alive"])
def test_a_client_that_says_what_holds_anyway_is_known_too(said: str) -> None:
    heads = taught(head(5, f"Connection: {said}") + b"12345")
    data = head(2, f"Connection: {said}") + b"{}"
    assert heads.find(data, LIMIT) == parsed(data)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=6), st.binary(min_size=1, max_size=60))
def test_what_is_found_is_what_the_parser_finds(names: list[str], body: bytes) -> None:
    heads = Heads()
    for name in (*names, "a"):
        data = head(len(body), f"Mcp-Param-{name}: {name}") + body
        found, expected = heads.find(data, LIMIT), parsed(data)
        assert found in (None, expected)
        if found is None:
            heads.learn(data, expected)
            assert heads.find(data, LIMIT) == expected


@pytest.mark.parametrize(
    "data",
    [
        head(5) + b"1234",
        head(5) + b"123456",
        head(5) + b"12345" + head(5) + b"12345",
        head("5 ") + b"12345",
        head("+5") + b"12345",
        head("0x5") + b"12345",
        head("5,5") + b"12345",
        head("") + b"12345",
        head(5).replace(b"\r\n\r\n", b"\r\n"),
        head(5, "X-More: 1") + b"12345",
        head(5).replace(b"POST", b"PUT ") + b"12345",
        b"\r\n" + head(5) + b"12345",
        head(LIMIT + 1) + b"x" * (LIMIT + 1),
        b"",
    ],
)
def test_whatever_differs_in_more_than_its_length_is_left_to_the_parser(data: bytes) -> None:
    assert taught(head(5) + b"12345").find(data, LIMIT) is None


@pytest.mark.parametrize(
    "more",
    [
        "Connection: close",
        "Connection: keep-alive, close",
        "Connection: Upgrade",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "Upgrade: h2c",
        "Mcp-Name: greet",
        f"X-Long: {'x' * 5000}",
    ],
)
def test_a_head_that_says_more_than_what_is_asked_is_not_remembered(more: str) -> None:
    data = head(5, more) + b"12345"
    heads = Heads()
    incoming = parsed(head(5) + b"12345")
    name, _, value = more.partition(": ")
    pairs = [*incoming.headers.items(), (name.lower().encode(), value.encode())]
    repeating = pairs if len(dict(pairs)) != len(pairs) else None
    heads.learn(data, Incoming("POST", "/mcp", dict(pairs), None, b"12345", repeating))
    assert heads.find(data, LIMIT) is None


def test_what_was_refused_is_not_remembered() -> None:
    data = head(5) + b"12345"
    heads = Heads()
    refused = parsed(data)
    refused.refusal = (421, "Host not allowed")
    heads.learn(data, refused)
    assert heads.find(data, LIMIT) is None


def test_the_newest_few_are_remembered() -> None:
    heads = Heads()
    requests = [head(5, f"Mcp-Param-N: {number}") + b"12345" for number in range(20)]
    for data in requests:
        heads.learn(data, parsed(data))
    known = [data for data in requests if heads.find(data, LIMIT) is not None]
    assert known == requests[-8:]


def test_one_request_does_not_see_the_headers_of_another() -> None:
    heads = taught(head(5) + b"12345")
    first = heads.find(head(2) + b"{}", LIMIT)
    second = heads.find(head(3) + b"{ }", LIMIT)
    assert first is not None
    assert second is not None
    assert first.headers is not second.headers
    assert (first.headers[b"content-length"], second.headers[b"content-length"]) == (b"2", b"3")
