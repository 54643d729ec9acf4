"""What went over the wire, seen from between a client and a server."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httptools

from scripts.ports import free_port
from tests.peers import running

Json = dict[str, Any]

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def _can_be_asked(capabilities: Json) -> bool:
    """Whether a client declares more than extensions, which ask it nothing by themselves."""
    return bool(capabilities.keys() - {"extensions"})


class Recording:
    """The messages of both sides."""

    def __init__(self) -> None:
        self.from_client: list[Json] = []
        self.from_server: list[Json] = []

    def requests_for(self, step: Json, *, able: bool | None = True) -> list[Json]:
        """The parameters of all requests that a step led to; `able` tells modern clients apart.

        In the order of their ids: a client may use several connections, which are read one after the other.
        """
        method = {"call": "tools/call", "get": "prompts/get", "read": "resources/read"}[step["do"]]
        return [
            message["params"]
            for message in sorted(self.from_client, key=lambda message: str(message.get("id", "")).zfill(12))
            if message.get("method") == method
            and all(message["params"].get(field) == step.get(field) for field in ("name", "uri", "arguments"))
            and (able is None or _can_be_asked(message["params"]["_meta"][CAPABILITIES]) == able)
        ]

    @property
    def asked_by_server(self) -> list[Json]:
        """The requests of the server."""
        return [message for message in self.from_server if "method" in message and "id" in message]

    @property
    def told_by_server(self) -> list[Json]:
        """The notifications of the server."""
        return [message for message in self.from_server if "method" in message and "id" not in message]

    @property
    def results(self) -> list[tuple[str, Json]]:
        """The results of the server, each with the method of its request.

        Ids begin anew with every session, but one session follows the other.
        """
        methods: dict[Any, list[str]] = {}
        for message in self.from_client:
            if "method" in message and "id" in message:
                methods.setdefault(message["id"], []).append(message["method"])
        return [
            (methods[message["id"]].pop(0), message["result"])
            for message in self.from_server
            if "result" in message
        ]


# stdio


def read_tee(record: Path) -> Recording:
    """What `tee.py` kept."""
    recording = Recording()
    recording.from_client = _lines(record.with_suffix(".in"))
    recording.from_server = _lines(record.with_suffix(".out"))
    return recording


def _lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


# HTTP


class Proxy:
    """Relays connections to a server, byte by byte, and keeps the bytes."""

    def __init__(self, server_port: int) -> None:
        self.port = free_port()
        self._server_port = server_port
        self._connections: list[tuple[bytearray, bytearray]] = []
        self._relays: set[asyncio.Task[None]] = set()

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Relay until told to stop."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        async with server:
            ready.set()
            await stop.wait()
            for relay in self._relays:
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent, received = bytearray(), bytearray()
        self._connections.append((sent, received))
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            await asyncio.gather(_pump(reader, server_writer, sent), _pump(server_reader, writer, received))
        finally:
            writer.close()
            server_writer.close()

    def recording(self) -> Recording:
        """The messages among the bytes."""
        recording = Recording()
        for sent, received in self._connections:
            recording.from_client += messages_in(httptools.HttpRequestParser, sent)
            recording.from_server += messages_in(httptools.HttpResponseParser, received)
        return recording


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(65536):
            record += chunk
            writer.write(chunk)
            await writer.drain()
    writer.close()  # Whoever ends a connection here ends all of it.


def messages_in(parser: Any, data: bytes | bytearray) -> list[Json]:
    """The JSON-RPC messages in the bodies of one direction of a connection."""
    bodies = _Bodies()
    parser(bodies).feed_data(bytes(data))
    bodies.end()
    return bodies.messages


class _Bodies:
    """Called by a parser of httptools."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self._body = b""
        self._type = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._type = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def end(self) -> None:
        """The connection is over; what came on a stream that was still open came nevertheless."""
        if self._type.startswith(b"text/event-stream"):
            self._body, _, _ = self._body.rpartition(b"\n")
            self.on_message_complete()

    def on_message_complete(self) -> None:
        if self._type.startswith(b"text/event-stream"):
            lines = [line for line in self._body.splitlines() if line.startswith(b"data:")]
            events = [data for line in lines if (data := line.removeprefix(b"data:").strip())]
            self.messages += [json.loads(data) for data in events]  # An event without data is but a mark.
        elif self._body:
            self.messages.append(json.loads(self._body))
        self._body = self._type = b""


@contextlib.contextmanager
def proxy(server_port: int) -> Iterator[Proxy]:
    """A proxy in a thread of its own."""
    made = Proxy(server_port)
    ready = threading.Event()
    with asyncio.Runner() as runner:
        stop = asyncio.Event()
        thread = threading.Thread(target=runner.run, args=(made.serve(ready, stop),))
        loop = runner.get_loop()
        thread.start()
        try:
            assert ready.wait(running.START_SECONDS)
            yield made
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(running.STOP_SECONDS)
            assert not thread.is_alive()
