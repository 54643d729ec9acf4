"""Byte streams that a client might send on one HTTP/1.1 connection, good and bad, made of a seed."""

import json
import random
from typing import Any

from tests.serving import VERSION, call, headers_for, meta, request

_TARGETS = ["/mcp", "/mcp?a=b", "/%6dcp", "/other", "*", "http://127.0.0.1/mcp", "http://evil.example/mcp"]
_TARGETS += [
    "//evil.example/mcp",
    "https://127.0.0.1:1/mcp",
    "mcp",
    "/mcp#x",
    "ftp://127.0.0.1/mcp",
    "/" + "a" * 300,
]
_METHODS = ["POST"] * 8 + ["GET", "DELETE", "OPTIONS", "PUT", "CONNECT", "post", "PRI"]
_EXTRA = [
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Upgrade\r\nUpgrade: h2c",
    "Connection: upgrade, close\r\nUpgrade: websocket",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk",
    "Upgrade: h2c",
    "Expect: 100-continue",
    "Expect: 200-maybe",
    "Host: evil.example",
    "Origin: https://evil.example",
    "Origin: http://localhost:3000",
    "Content-Type: text/plain",
    "Mcp-Session-Id: nobody",
    "Mcp-Session-Id: a\r\nMcp-Session-Id: b",
    "X-Long: " + "a" * 3000,
    "X-Folded: a\r\n b",
    "X-Spaced : a",
    ": no name",
    "X-Nul: a\0b",
    "X-Latin: \xe9",
    "Content-Length: 5",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Trailer: X-After",
    "no colon at all",
    "",
]
_BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"[" * 300,
    b"\xff\xfe",
    b'{"jsonrpc":"2.0"}',
    b"{" * 10,
    b"1e400",
    b'"\\ud800"',
]


def _message(rng: random.Random) -> dict[str, Any]:
    kind = rng.randrange(6)
    if kind == 0:
        return request("tools/list", request_id=rng.randrange(100))
    if kind == 1:
        return request(rng.choice(["server/discover", "nothing/here", "tasks/get", "subscriptions/listen"]))
    if kind == 2:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "f", "version": "1"},
        }
        return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    if kind == 3:
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"_meta": meta()}}
    return call(rng.choice(["greet", "slowly", "unknown"]), {"name": "x" * rng.choice([1, 10, 5000])})


def _chunked(rng: random.Random, body: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        size = rng.choice([1, 2, 7, 100, 4096])
        piece = body[at : at + size]
        extension = rng.choice([b"", b"", b"", b";a=b", b';a="b"'])
        parts.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
        at += size
    trailers = rng.choice([b"", b"", b"X-After: y\r\n", b"Host: evil.example\r\nContent-Length: 3\r\n"])
    return b"".join(parts) + b"0\r\n" + trailers + b"\r\n"


def _request(rng: random.Random) -> bytes:
    message = _message(rng)
    body = rng.choice(_BODIES) if rng.random() < 0.15 else json.dumps(message).encode()
    method = rng.choice(_METHODS) if rng.random() < 0.3 else "POST"
    target = rng.choice(_TARGETS) if rng.random() < 0.3 else "/mcp"
    version = rng.choice(["1.0", "1.1", "2.0", "1.1 ", "0.9"]) if rng.random() < 0.1 else "1.1"
    host = (
        rng.choice(["evil.example", "localhost:80", "", "127.0.0.1"]) if rng.random() < 0.1 else "127.0.0.1"
    )
    lines = [f"{method} {target} HTTP/{version}", f"Host: {host}"]
    headers = headers_for(message) if rng.random() < 0.95 else {"mcp-protocol-version": VERSION}
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [rng.choice(_EXTRA) for _ in range(rng.choice([0, 0, 0, 1, 1, 2]))]
    if rng.random() < 0.25:
        lines.append("Transfer-Encoding: chunked")
        body = _chunked(rng, body)
    elif body and rng.random() < 0.97:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """The same with one small mistake somewhere."""
    at = rng.randrange(len(data) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6))) + data[at:]
    if kind == 3:
        return data.replace(b"\r\n", b"\n", rng.randrange(1, 4))
    return data[:at] + data[at + rng.randrange(1, 20) :]


def stream(seed: int) -> bytes:
    """What a client sends until it sends no more."""
    rng = random.Random(seed)
    data = b"".join(_request(rng) for _ in range(rng.choice([1, 1, 2, 3, 5, 20])))
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        data = _damaged(rng, data)
    return data


def pieces(data: bytes, seed: int) -> list[bytes]:
    """The same bytes as they may arrive."""
    rng = random.Random(seed)
    most = rng.choice([1, 3, 50, 1000])
    cut: list[bytes] = []
    while data:
        size = rng.randrange(1, most + 1)
        cut.append(data[:size])
        data = data[size:]
    return cut
