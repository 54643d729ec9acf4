"""Calls that wait for answers: plain data, so that another process can go on with them."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ekiden.client.answering import Answerer
from ekiden.errors import InvalidResult, ParseError, TooManyRounds, UsageError
from ekiden.wire.json import JsonObject, decode, encode, is_object

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

    def retry(self, responses: Mapping[str, Any]) -> JsonObject:
        """The parameters of the next round."""
        params = dict(self.params)
        if self.requests:
            params["inputResponses"] = dict(responses)
        if self.state is not None:
            params["requestState"] = self.state
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
            return msgspec.convert(fields, cls)
        except (ParseError, msgspec.ValidationError) as error:
            raise UsageError(f"this is not a pending call: {error}") from None


def read_pending(
    method: str,
    params: JsonObject,
    result: Mapping[str, Any],
    before: PendingCall | None,
    most_state: int,
) -> PendingCall:
    """The pending call after an interim result."""
    requests, state = result.get("inputRequests", {}), result.get("requestState")
    if not is_object(requests) or not (state is None or isinstance(state, str)):
        raise InvalidResult("The server's interim result is malformed")
    if not requests and state is None:
        raise InvalidResult("The server's interim result has neither questions nor state")
    if state is not None and len(state) > most_state:
        raise InvalidResult(
            f"The server's state has {len(state)} characters; at most {most_state} are allowed"
        )
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
    return float(min(1.0, 0.02 * 2 ** (idle_rounds - 1)))
