"""A server process that speaks over stdin and stdout, and a client that hides nothing."""

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .messages import Message, request
from .processes import PATIENCE, Process, start
from .shapes import check


class Stdio:
    """A server process that speaks over stdin and stdout."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, message: Message | bytes) -> None:
        """Write one message, or some bytes as they are."""
        assert self.process.stdin is not None
        whole = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.process.stdin.write(whole)
        self.process.stdin.flush()

    def notify(self, method: str, params: Any = None) -> None:
        """Write a notification."""
        self.send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))

    def line(self) -> bytes | None:
        """The next line, or None at the end."""
        return self.lines.get(timeout=PATIENCE)

    def receive(self) -> Message:
        """The next message."""
        line = self.line()
        assert line is not None, "the server closed stdout"
        return check(json.loads(line))

    def until(self, id_: Any) -> list[Message]:
        """All messages up to the response to the request `id_`."""
        seen = [self.receive()]
        while seen[-1].get("id") != id_ or "method" in seen[-1]:
            seen.append(self.receive())
        return seen

    def exchange(self, message: Message) -> list[Message]:
        """Send a request; all messages up to its response."""
        self.send(message)
        return self.until(message["id"])

    def ask(self, method: str, params: Message | None = None, **fields: Any) -> Message:
        """The response to a request."""
        return self.exchange(request(method, params, **fields))[-1]

    def rest(self) -> list[Message]:
        """All messages until the server closes stdout."""
        return [check(json.loads(line)) for line in iter(self.line, None)]

    def hang_up(self) -> None:
        """Close stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def stdio_server(name: str = "full") -> Iterator[Stdio]:
    """A server process that speaks over stdin and stdout, and a client for it."""
    process = start("stdio", name, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client = Stdio(process)
    try:
        yield client
    finally:
        with suppress(BrokenPipeError):
            client.hang_up()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)
        client.reader.join(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
