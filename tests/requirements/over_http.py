"""A server process that serves HTTP, and a client that hides nothing."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from scripts.ports import free_port

from .messages import Message, mirrored, request
from .processes import PATIENCE, start, stop
from .shapes import check


class Reply:
    """An HTTP response, and the messages in it."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.body = response.content
        self.kind = response.headers.get("content-type", "").partition(";")[0]
        chunks = iter([self.body])
        self.messages = list(events(chunks)) if self.kind == "text/event-stream" else self._object()

    def _object(self) -> list[Message]:
        return [check(json.loads(self.body))] if self.kind == "application/json" else []

    @property
    def last(self) -> Message:
        """The response itself; before it there may have been notifications."""
        assert self.messages, (self.status, self.body)
        return self.messages[-1]

    @property
    def code(self) -> int | None:
        """The code of the error, if it was one."""
        return self.last["error"]["code"] if self.messages and "error" in self.last else None


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines of an event stream, as the bytes came."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        yield from whole


def events(chunks: Iterator[bytes]) -> Iterator[Message]:
    """The messages of an event stream, checked."""
    data: list[bytes] = []
    for line in lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield check(json.loads(b"\n".join(data)))
            data.clear()


class Http:
    """A client for a server that serves HTTP at `url`."""

    def __init__(self, url: str, client: httpx2.Client) -> None:
        self.url = url
        self.client = client

    def send(self, message: Message | bytes, *, without: tuple[str, ...] = (), **headers: str) -> Reply:
        """POST a message with its mirrored headers, less `without`; `headers` overrule them."""
        return Reply(self.client.post(self.url, **self._parts(message, without, headers)))

    def ask(self, method: str, params: Message | None = None, **fields: Any) -> Message:
        """The response to a request."""
        return self.send(request(method, params, **fields)).last

    @contextmanager
    def stream(self, message: Message, **headers: str) -> Iterator[tuple[httpx2.Response, Iterator[Message]]]:
        """POST a message, and read the stream of its response message by message."""
        with self.client.stream("POST", self.url, **self._parts(message, (), headers)) as response:
            assert response.headers["content-type"].startswith("text/event-stream"), response.status_code
            yield response, events(response.iter_raw())

    def _parts(self, message: Message | bytes, without: tuple[str, ...], extra: dict[str, str]) -> Message:
        if isinstance(message, bytes):
            headers, body = mirrored({"method": "tools/list"}), message
        else:
            headers, body = mirrored(message), json.dumps(message).encode()
        headers |= {name.replace("_", "-"): value for name, value in extra.items()}
        return {"headers": {name: headers[name] for name in headers if name not in without}, "content": body}


def raw(http: Http, head: bytes, message: Message | bytes = b"") -> tuple[int, bytes]:
    """Send a request byte by byte as it stands; status and body of the response."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    url = httpx2.URL(http.url)
    lead = head.rstrip() + f"\r\nHost: {url.netloc.decode()}\r\nContent-Length: {len(body)}\r\n".encode()
    with socket.create_connection((url.host, url.port), PATIENCE) as connection:
        connection.sendall(lead + b"Connection: close\r\n\r\n" + body)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    first, _, rest = received.partition(b"\r\n")
    return int(first.split()[1]), rest.partition(b"\r\n\r\n")[2]


def head(message: Message, *more: bytes, without: tuple[str, ...] = ()) -> bytes:
    """The head of a POST with the mirrored headers of a message, less `without`, and `more`."""
    pairs = [f"{name}: {value}".encode() for name, value in mirrored(message).items() if name not in without]
    return b"\r\n".join([b"POST /mcp HTTP/1.1", *pairs, *more])


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Whether the server came up; it did not if the port was taken after all."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
    return False


@contextmanager
def http_server(name: str = "full") -> Iterator[tuple[Http, "subprocess.Popen[bytes]"]]:
    """A server process that serves HTTP, and a client for it."""
    for _ in range(3):
        port = free_port()
        process = start("http", name, str(port))
        if _answers(process, port):
            break
        stop(process)
    else:
        raise AssertionError("the server does not come up")
    try:
        with httpx2.Client(timeout=PATIENCE, trust_env=False) as client:
            yield Http(f"http://127.0.0.1:{port}/mcp", client), process
    finally:
        stop(process)
