"""Scripts: which answer belongs to which question.

A script maps a question to its answer. The question is named by its key, or by its message (the
whole of it, or a part that no other entry matches). The answer is written short: a dict or a single
value fills in a form, `DECLINE` and `CANCEL` say no, a string is what the model wrote, a list of
strings is the roots. A dict with an `action`, a `role` or `roots` goes out as it is.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from ekiden.errors import Unanswered
from ekiden.rounds.asks import ELICIT, SAMPLE
from ekiden.wire.json import is_object

__all__ = ["CANCEL", "DECLINE", "Script", "respond"]


class _No(Enum):
    DECLINE = "decline"
    CANCEL = "cancel"


DECLINE: Final[Literal[_No.DECLINE]] = _No.DECLINE
CANCEL: Final[Literal[_No.CANCEL]] = _No.CANCEL

Script: TypeAlias = Mapping[str, Any] | Callable[[str, dict[str, Any]], Any]
"""Answers by key or message, or a function from a key and its request to the answer."""


def respond(script: Script, key: str, request: dict[str, Any]) -> dict[str, Any]:
    """The response to one input request."""
    answer = script(key, request) if callable(script) else _look_up(script, key, request)
    return _spelled(answer, request)


def _look_up(script: Mapping[str, Any], key: str, request: dict[str, Any]) -> Any:
    message = question_text(request)
    for name in (key, message):
        if name in script:
            return script[name]
    parts = [name for name in script if name and name in message]
    if len(parts) == 1:
        return script[parts[0]]
    raise Unanswered(f"The script has no answer to {message!r} (key {key!r})")


def question_text(request: dict[str, Any]) -> str:
    """What a request asks, in words."""
    params: dict[str, Any] = request.get("params") or {}
    if request["method"] == ELICIT:
        return str(params["message"])
    if request["method"] == SAMPLE:
        content: Any = params["messages"][-1]["content"]
        return str(content.get("text", "")) if is_object(content) else ""
    return "roots"


def _spelled(answer: Any, request: dict[str, Any]) -> dict[str, Any]:
    if is_object(answer) and not {"action", "role", "roots"}.isdisjoint(answer):
        return answer
    if request["method"] == ELICIT:
        return _elicited(answer)
    if request["method"] == SAMPLE:
        return {"role": "assistant", "model": "scripted", "content": {"type": "text", "text": str(answer)}}
    return {"roots": [{"uri": uri} for uri in answer]}


def _elicited(answer: Any) -> dict[str, Any]:
    if isinstance(answer, _No):
        return {"action": answer.value}
    if answer is None:
        return {"action": "accept"}
    return {"action": "accept", "content": answer if is_object(answer) else {"value": answer}}
