"""How the row of a task keeps what its handler ended with: as the JSON of the wire."""

import logging
from typing import Any

from ekiden.errors import InternalError, ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Outcome, too_large
from ekiden.tasks.moves import Ending
from ekiden.wire.json import ENCODE_ERRORS, encode

__all__ = ["ending_of", "spell_error"]

_log = logging.getLogger(__name__)


def ending_of(outcome: Outcome, most_bytes: int) -> Ending:
    """An outcome as the row keeps it."""
    if isinstance(outcome, Complete):
        result = outcome.as_dict()
        try:
            kept = encode(result)
        except ENCODE_ERRORS:
            _log.exception("A task's result cannot be kept")
            return Ending(error=spell_error(InternalError("The result cannot be sent as JSON")))
        if len(kept) > most_bytes:
            return Ending(error=spell_error(too_large(len(kept), most_bytes)))
        return Ending(result=kept, tool_failed=result.get("isError") is True)
    assert isinstance(outcome, Failed), f"a task cannot end with {type(outcome).__name__}"
    return Ending(error=spell_error(outcome.error))


def spell_error(error: ProtocolError) -> bytes:
    """An error as a task keeps it."""
    spelled: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        spelled["data"] = error.data
    return encode(spelled)
