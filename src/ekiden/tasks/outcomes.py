"""How the row of a task keeps what its handler ended with: as the JSON of the wire."""

import logging
from typing import Any, Final

from ekiden.errors import InternalError, ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Outcome, too_large
from ekiden.tasks.moves import Ending
from ekiden.wire.json import ENCODE_ERRORS, encode

__all__ = ["EXPIRED", "WHY_EXPIRED", "ending_of", "failed", "spell_error"]

_log = logging.getLogger(__name__)

_LONGEST_WHY: Final = 1000
"""Letters of what a tool says of its failure, in a list of tasks."""


def ending_of(outcome: Outcome, most_bytes: int) -> Ending:
    """An outcome as the row keeps it."""
    if isinstance(outcome, Complete):
        result = outcome.as_dict()
        try:
            kept = encode(result)
        except ENCODE_ERRORS:
            _log.exception("A task's result cannot be kept")
            return failed(InternalError("The result cannot be sent as JSON"))
        if len(kept) > most_bytes:
            return failed(too_large(len(kept), most_bytes))
        if result.get("isError") is True:
            return Ending(result=kept, tool_failed=True, why=_text_of(result))
        return Ending(result=kept)
    assert isinstance(outcome, Failed), f"a task cannot end with {type(outcome).__name__}"
    return failed(outcome.error)


def failed(error: ProtocolError) -> Ending:
    """The end of a task that has failed."""
    return Ending(error=spell_error(error), why=error.message)


def _text_of(result: dict[str, Any]) -> str:
    texts = (block["text"] for block in result.get("content", ()) if block.get("type") == "text")
    return " ".join(texts)[:_LONGEST_WHY]


def spell_error(error: ProtocolError) -> bytes:
    """An error as a task keeps it."""
    spelled: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        spelled["data"] = error.data
    return encode(spelled)


EXPIRED: Final = spell_error(InternalError("The task expired"))
"""The error of a task whose time to live is over."""
WHY_EXPIRED: Final = "The task's time to live is over."
