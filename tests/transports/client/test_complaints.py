"""What a server does wrong is logged in a few short lines, however often it does it."""

import asyncio
import itertools
import json
import logging

import pytest

from ekiden.client.answering import MOST_ASKS, Answerer
from ekiden.client.sessions.legacy import LegacySession
from ekiden.client.sessions.session import Hooks
from ekiden.client.tools import KnownTools
from ekiden.transports.client import complaints
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.complaints import Complaints

ODD = "\x1b[31m\nERROR root: forged " + "x" * 10_000


async def _silent(_: bytes) -> None:
    await asyncio.sleep(3600)


def _is_small(caplog: pytest.LogCaptureFixture) -> bool:
    lines = [record.getMessage() for record in caplog.records]
    return 0 < len(lines) < 30 and all(line.isprintable() and len(line) < 1000 for line in lines)


async def test_errors_that_belong_to_no_request_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    link = ChannelLink(_silent)
    error = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": ODD}}).encode()
    for _ in range(500):
        link.received(error)
    assert _is_small(caplog)


async def test_questions_beyond_the_limit_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    session = LegacySession(ChannelLink(_silent), Answerer(), {}, ids=itertools.count())
    for number in range(MOST_ASKS + 500):
        session.answer({"id": f"{number}{ODD}", "method": "ping"}, None, Hooks())
    assert _is_small(caplog)
    await session.abandon()


def test_tools_that_cannot_be_used_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broken = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": ODD}}}
    assert KnownTools(mirrors=True).learn([{"name": ODD, "inputSchema": broken}] * 500) == []
    assert _is_small(caplog)


def test_a_minute_later_there_are_warnings_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    complain = Complaints(logging.getLogger("test"), about="50% of them")
    for _ in range(100):
        complain("%d is too %s", 7, "odd")
    before = len(caplog.records)
    assert caplog.records[0].getMessage() == "50% of them: 7 is too odd"
    monkeypatch.setattr(complaints, "_SECONDS", 0.0)
    complain("more")
    assert len(caplog.records) == before + 1


def test_tools_that_are_not_listed_any_more_are_forgotten() -> None:
    tools = KnownTools(mirrors=False)
    tools.learn([{"name": "a", "inputSchema": {}, "outputSchema": {"type": "object"}}])
    tools.learn([{"name": "b", "inputSchema": {}}])
    assert (tools.knows("a"), tools.knows("b")) == (False, True)
    tools.check("a", {})
