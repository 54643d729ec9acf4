"""Scripts: which answer belongs to which question.

A script maps a question to its answer. The question is named by its key, or by its message (the
whole of it, or a part that no other entry matches). The answer is written short: a dict or a single
value fills in a form, `DECLINE` and `CANCEL` say no, a string is what the model wrote, a list of
strings is the roots. A dict with an `action`, a `role` or `roots` is sent as it is.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from ekiden.client.scripted import find_entries, question_text, spell_answer
from ekiden.errors import Unanswered
from ekiden.wire.json import JsonObject, is_object

__all__ = ["CANCEL", "DECLINE", "Script", "respond"]


class _No(Enum):
    DECLINE = "decline"
    CANCEL = "cancel"


DECLINE: Final[Literal[_No.DECLINE]] = _No.DECLINE
CANCEL: Final[Literal[_No.CANCEL]] = _No.CANCEL

Script: TypeAlias = Mapping[str, Any] | Callable[[str, JsonObject], Any]
"""Answers by key or message, or a function from a key and its request to the answer."""


def respond(script: Script, key: str, request: JsonObject) -> JsonObject:
    """The response to one input request."""
    answer = script(key, request) if callable(script) else _look_up(script, key, request)
    if is_object(answer) and not {"action", "role", "roots"}.isdisjoint(answer):
        return answer
    return spell_answer(answer, request, model="scripted", elicited=_elicited)


def _look_up(script: Mapping[str, Any], key: str, request: JsonObject) -> Any:
    message = question_text(request)
    names = find_entries(script, key, message)
    if len(names) == 1:
        return script[names[0]]
    found = f"several answers ({', '.join(map(repr, names))})" if names else "no answer"
    raise Unanswered(f"The script has {found} to {message!r} (key {key!r})")


def _elicited(answer: Any, params: Mapping[str, Any]) -> JsonObject:
    if isinstance(answer, _No):
        return {"action": answer.value}
    if answer is None:
        return {"action": "accept"}
    return {"action": "accept", "content": answer if is_object(answer) else {"value": answer}}
