"""Whose question it is, where a channel does not say."""

import asyncio
import contextlib
from typing import Any

import pytest

from ekiden.errors import CannotAnswer, InternalError, ServerError
from ekiden.gateway import turnstile
from ekiden.gateway.turnstile import Turnstile
from tests.serving import soon


def _answers(name: str) -> Any:
    async def answer(key: str, question: dict[str, Any]) -> dict[str, Any]:
        return {"by": name, "to": question["n"]}

    return answer


def _ignore(_: dict[str, Any]) -> None:
    """Drop a log message."""


async def test_the_only_call_that_runs_gets_the_question() -> None:
    gate = Turnstile("t")
    async with gate.call(_answers("a"), _ignore):
        assert await soon(gate.ask("1", {"n": 1})) == {"by": "a", "to": 1}


async def test_a_question_waits_until_the_other_calls_have_ended() -> None:
    gate = Turnstile("t")
    async with gate.call(_answers("a"), _ignore):
        async with gate.call(_answers("b"), _ignore):
            asked = asyncio.create_task(gate.ask("1", {"n": 1}))
            await asyncio.sleep(0)
            assert not asked.done()
        assert await soon(asked) == {"by": "a", "to": 1}


async def test_questions_that_nobody_can_tell_apart_are_refused() -> None:
    gate = Turnstile("t")
    async with gate.call(_answers("a"), _ignore), gate.call(_answers("b"), _ignore):
        asked = await soon(asyncio.gather(gate.ask("1", {}), gate.ask("2", {}), return_exceptions=True))
        assert [type(each) for each in asked] == [CannotAnswer, CannotAnswer]


async def test_a_question_outside_of_every_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotAnswer):
        await soon(Turnstile("t").ask("1", {}))
    monkeypatch.setattr(turnstile, "_TELL_SECONDS", 0.01)
    gate = Turnstile("t")
    async with gate.call(_answers("a"), _ignore), gate.call(_answers("b"), _ignore):
        with pytest.raises(CannotAnswer):
            await soon(gate.ask("1", {}))


async def test_a_server_that_asks_gets_one_call_at_a_time() -> None:
    gate = Turnstile("t")
    async with gate.call(_answers("a"), _ignore):
        await soon(gate.ask("1", {"n": 1}))
    running: list[str] = []

    async def call(name: str) -> None:
        async with gate.call(_answers(name), _ignore):
            running.append(name)
            assert await gate.ask("1", {"n": 2}) == {"by": name, "to": 2}
            assert running == [name]
            running.clear()

    await soon(asyncio.gather(*(call(name) for name in "abc")))


async def test_a_question_outside_of_every_call_does_not_slow_the_calls_down() -> None:
    gate = Turnstile("t")
    with pytest.raises(CannotAnswer):
        await soon(gate.ask("1", {}))
    async with gate.call(_answers("a"), _ignore), asyncio.timeout(5), gate.call(_answers("b"), _ignore):
        assert not gate.is_alone


async def test_a_log_message_goes_only_to_a_call_that_runs_alone() -> None:
    gate, heard = Turnstile("t"), list[Any]()
    async with gate.call(_answers("a"), heard.append):
        gate.log({"n": 1})
        async with gate.call(_answers("b"), heard.append):
            gate.log({"n": 2})
    assert heard == [{"n": 1}]


async def test_what_a_call_that_was_given_up_still_asks_or_says_reaches_no_other_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its server may ignore that it was cancelled: the question may hold what the first client said."""
    endings: list[BaseException] = [asyncio.CancelledError(), InternalError("took too long"), TimeoutError()]
    for ending in endings:
        gate, heard = Turnstile("t"), list[dict[str, Any]]()
        with contextlib.suppress(type(ending)):
            async with gate.call(_answers("a"), _ignore):
                raise ending
        async with gate.call(_answers("b"), heard.append):
            with pytest.raises(CannotAnswer):
                await soon(gate.ask("1", {"n": "a's account"}))
            gate.log({"data": "a's account"})
        assert heard == []
    monkeypatch.setattr(turnstile, "_DOUBT_SECONDS", 0.0)
    gate = Turnstile("t")
    with contextlib.suppress(asyncio.CancelledError):
        async with gate.call(_answers("a"), _ignore):
            raise asyncio.CancelledError
    async with gate.call(_answers("b"), _ignore):
        assert await soon(gate.ask("1", {"n": 1})) == {"by": "b", "to": 1}


async def test_a_call_that_was_answered_with_an_error_leaves_no_doubt() -> None:
    gate = Turnstile("t")
    with contextlib.suppress(ServerError):
        async with gate.call(_answers("a"), _ignore):
            raise ServerError("no such order", code=-32602)
    async with gate.call(_answers("b"), _ignore):
        assert await soon(gate.ask("1", {"n": 1})) == {"by": "b", "to": 1}


# Calls of callers who cannot be told apart for certain


async def _run(gate: Turnstile, owner: str) -> None:
    async with gate.call(_answers("before"), _ignore, owner):
        """A call that ends normally."""


async def test_on_a_shared_channel_the_call_that_is_left_is_not_taken_for_the_one_that_asks() -> None:
    gate, heard = Turnstile("t", is_shared=True), list[dict[str, Any]]()
    async with gate.call(_answers("left"), heard.append, "ada"):
        async with gate.call(_answers("ended"), _ignore, "ada"):
            with pytest.raises(CannotAnswer):  # At once: no waiting would tell.
                await soon(gate.ask("1", {"n": 1}))
        with pytest.raises(CannotAnswer):
            await soon(gate.ask("2", {"n": 2}))
        gate.log({"n": 3})
    assert heard == []


async def test_on_a_shared_channel_what_comes_soon_after_the_call_of_another_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, heard = Turnstile("t", is_shared=True), list[dict[str, Any]]()
    for before in (["bob"], ["bob", "ada"], ["ada", "bob", "ada", "ada"]):
        for owner in before:
            await _run(gate, owner)
        async with gate.call(_answers("ada"), heard.append, "ada"):
            with pytest.raises(CannotAnswer):
                await soon(gate.ask("1", {"n": 1}))
            gate.log({"n": 1})
    assert heard == []
    monkeypatch.setattr(turnstile, "_DOUBT_SECONDS", 0.0)
    async with gate.call(_answers("ada"), heard.append, "ada"):
        gate.log({"n": 2})
        assert await soon(gate.ask("1", {"n": 2})) == {"by": "ada", "to": 2}
    assert heard == [{"n": 2}]


async def test_on_a_shared_channel_the_calls_of_one_caller_follow_each_other_without_doubt() -> None:
    gate, heard = Turnstile("t", is_shared=True), list[dict[str, Any]]()
    for number in range(3):
        async with gate.call(_answers("ada"), heard.append, "ada"):
            assert await soon(gate.ask("1", {"n": number})) == {"by": "ada", "to": number}
            gate.log({"n": number})
    assert heard == [{"n": 0}, {"n": 1}, {"n": 2}]
