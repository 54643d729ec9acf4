"""The client's side of Streamable HTTP, over an HTTP that the test makes up."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from ekiden import TransportError
from ekiden.transports.client.link import Outgoing
from ekiden.transports.client.streamable import StreamableLink

BROKEN_OFF = b"id: 1\nretry: 0\ndata: \n\n"


class Broken:
    """A stream that breaks off where it could be resumed."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self) -> None:
        self.closed = False

    async def read(self) -> bytes:
        return BROKEN_OFF

    async def chunks(self) -> AsyncIterator[bytes]:
        yield BROKEN_OFF

    async def close(self) -> None:
        self.closed = True


class BrokenHttp:
    """Answers everything with such a stream."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.responses: list[Broken] = []

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> Broken:
        self.sent.append(method)
        self.responses.append(Broken())
        return self.responses[-1]

    async def close(self) -> None:
        """Nothing is open."""


class Deaf:
    """Hears nothing."""

    def on_notification(self, message: dict[str, Any]) -> None:
        raise AssertionError("nothing was said")

    async def on_request(self, message: dict[str, Any]) -> None:
        raise AssertionError("nothing was asked")


async def test_a_stream_that_always_breaks_off_is_given_up_and_every_response_closed() -> None:
    http = BrokenHttp()
    link = StreamableLink(http, message_limit=1000, stream_limit=1000)
    with pytest.raises(TransportError, match="ended before the response came"):
        await link.request(Outgoing(1, "tools/call", b"{}"), Deaf())
    assert http.sent == ["POST", *["GET"] * 5]
    assert all(response.closed for response in http.responses)
