"""When a task ends, those who wait for it go on a few at a time, and share its result."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from ekiden.rounds.outcome import Complete
from ekiden.server.tasks.final import FinalResult
from ekiden.server.tasks.turns import Turns
from ekiden.tasks.record import TaskRecord
from ekiden.wire.json import decode, encode
from ekiden.wire.legacy import Legacy


def _ended(result: dict[str, Any]) -> FinalResult:
    return FinalResult(
        TaskRecord(
            id="t",
            flow="f",
            answers="",
            audience="s",
            tool="job",
            principal="",
            arguments={},
            meta={},
            started=0.0,
            created=0.0,
            updated=0.0,
            ttl=None,
            poll=1.0,
            result=encode(result),
        )
    )


class _Passes:
    """Counts the passes of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.count += 1
        self._loop.call_soon(self._next)


async def test_four_go_on_in_one_pass_of_the_event_loop() -> None:
    turns, passes, went = Turns(), _Passes(), Counter[int]()

    async def one() -> None:
        await turns.take()
        went[passes.count] += 1

    await asyncio.gather(*(one() for _ in range(101)))
    assert sum(went.values()) == 101
    assert max(went.values()) <= 4


async def test_who_was_cancelled_takes_nobodys_turn() -> None:
    turns = Turns()
    waiting = [asyncio.create_task(turns.take()) for _ in range(50)]
    await asyncio.sleep(0)
    for each in waiting[:49]:
        each.cancel()
    await asyncio.wait_for(waiting[49], 5)
    await asyncio.wait_for(turns.take(), 5)


def test_a_result_is_spelled_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    final, dialect, spelled = _ended({"content": [{"type": "text", "text": "x"}]}), Legacy("2025-11-25"), 0
    spell = dialect.result

    def counted(result: dict[str, Any]) -> dict[str, Any]:
        nonlocal spelled
        spelled += 1
        return spell(result)

    monkeypatch.setattr(dialect, "result", counted)
    responses = [final.outcome().render(dialect, number) for number in range(100)]
    assert spelled == 1
    assert [decode(each)["id"] for each in responses] == list(range(100))
    assert decode(responses[7])["result"] == {
        "content": [{"type": "text", "text": "x"}],
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t"}},
    }


def test_what_middleware_makes_of_a_result_is_sent_to_one_only() -> None:
    final, dialect = _ended({"content": []}), Legacy("2025-11-25")
    first, second = final.outcome(), final.outcome()
    assert isinstance(first, Complete)
    first.result = {"content": [{"type": "text", "text": "mine"}]}
    assert b"mine" in first.render(dialect, 1)
    assert b"mine" not in second.render(dialect, 2)
