"""Calls that wait for answers: plain data, so that another process can go on with them."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ekiden.client.answering import Answerer
from ekiden.client.results import read_questions
from ekiden.errors import InvalidResult, ParseError, TooManyRounds, UsageError
from ekiden.wire.json import JsonObject, decode, encode, is_object
from ekiden.wire.meta import TRACE_LINK

__all__ = ["PendingCall", "pace", "read_pending", "respond"]

_FORMAT: Final = 1


class PendingCall(msgspec.Struct):
    """A call that waits for answers. Store it with `to_json`, and resume it in any process."""

    method: str
    params: JsonObject
    """The original parameters."""
    requests: dict[str, JsonObject]
    """What the server asks, by key. Empty if it only wants to be called again."""
    state: str | None
    """The server's `requestState`: sent back exactly as it came, never read."""
    rounds: int = 1
    """Interim results so far."""
    idle_rounds: int = 0
    """How many of the last ones in a row asked nothing."""
    trace: str | None = None
    """The `traceparent` that the first round was sent with, if the client traced it."""

    @property
    def name(self) -> str:
        """What is called: a tool, a prompt, a URI."""
        name = self.params.get("uri" if self.method == "resources/read" else "name")
        if not isinstance(name, str):
            raise UsageError(f"this pending call does not say what it calls: {self.method}")
        return name

    def retry(self, responses: Mapping[str, Any]) -> JsonObject:
        """The parameters of the next round."""
        params = dict(self.params)
        if self.requests:
            params["inputResponses"] = dict(responses)
        if self.state is not None:
            params["requestState"] = self.state
        if self.trace is not None:
            params["_meta"] = {**(params.get("_meta") or {}), TRACE_LINK: self.trace}
        return params

    def to_json(self) -> str:
        """The call as text, with its arguments and the server's state: protect it as you protect those."""
        fields = {"format": _FORMAT, **msgspec.to_builtins(self)}
        return encode(fields).decode()

    @classmethod
    def from_json(cls, text: str) -> "PendingCall":
        """A call that `to_json` wrote."""
        try:
            fields = decode(text.encode())
            if not is_object(fields) or "format" not in fields:
                raise UsageError("this is not a pending call")
            if fields.pop("format") != _FORMAT:
                raise UsageError("this pending call was written by another version of ekiden")
            pending = msgspec.convert(fields, cls)
        except (ParseError, msgspec.ValidationError, UnicodeEncodeError) as error:
            raise UsageError(f"this is not a pending call: {error}") from None
        if not _can_be_sent(pending):
            raise UsageError("this is not a pending call: its parameters are malformed")
        return pending


def _can_be_sent(pending: PendingCall) -> bool:
    """Whether what is looked into before the next round is what it must be."""
    params = pending.params
    has_arguments = pending.method != "tools/call" or is_object(params.get("arguments"))
    return has_arguments and is_object(params.get("_meta", {}))


def read_pending(
    method: str,
    params: JsonObject,
    result: Mapping[str, Any],
    before: PendingCall | None,
    most_state: int,
) -> PendingCall:
    """The pending call after an interim result."""
    requests, state = read_questions(result, most_state, "interim result")
    if not requests and state is None:
        raise InvalidResult("The server's interim result has neither questions nor state")
    rounds = 1 if before is None else before.rounds + 1
    idle = 0 if requests else 1 if before is None else before.idle_rounds + 1
    return PendingCall(method, params, requests, state, rounds, idle)


async def respond(pending: PendingCall, answerer: Answerer, max_rounds: int) -> JsonObject:
    """The answers of one round, from the callbacks; limits are checked before the user is asked."""
    if pending.rounds > max_rounds:
        raise TooManyRounds(f"The call did not end within {max_rounds} rounds")
    if not pending.requests:
        await asyncio.sleep(pace(pending.idle_rounds))
        return {}
    return await answerer.answer_all(pending.requests)


def pace(idle_rounds: int) -> float:
    """Seconds to wait before a round without questions; longer each time, to spare a busy server."""
    return min(1.0, 0.02 * 2.0 ** min(idle_rounds - 1, 10))  # From ten on it is a second anyway.
