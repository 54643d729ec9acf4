"""Scripts: which answer belongs to which question, and whether it can be one.

A script maps a question to its answer. The question is named by its key, or by its message (the
whole of it, or a part that no other entry matches). The answer is written short: a dict or a single
value fills in a form, `DECLINE` and `CANCEL` say no, None agrees to a page, a string is what the model
wrote, a list of strings is the roots. An answer that does not fit its question raises `WrongAnswer`. A
whole result (a dict with an `action`, for models with a `role`, for roots with `roots`) is sent as it is.
"""

import difflib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from ekiden.client.checking import check_response
from ekiden.client.scripted import find_entries, question_text, spell_answer
from ekiden.errors import CallFailed, Mistyped, Unanswered, WrongAnswer
from ekiden.rounds.asks import ELICIT, SAMPLE
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["CANCEL", "DECLINE", "Script", "check_accepted", "respond"]


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
    if _is_whole(answer, request):
        whole: JsonObject = answer
        return whole
    try:
        if request.get("method") != ELICIT:
            _check_kind(answer, str(request.get("method")))
        response = spell_answer(answer, request, model="scripted", elicited=_elicited)
    except Mistyped as problem:
        raise WrongAnswer(key, question_text(request), str(problem)) from None
    return check_response(key, request, response)


def check_accepted(script: Script, request: JsonObject, before: JsonObject, response: JsonObject) -> None:
    """Raise if the server asks a form again, word for word, that the script can only answer as before."""
    is_form = request.get("method") == ELICIT and "requestedSchema" in (request.get("params") or {})
    if is_form and not callable(script) and before == response:
        raise CallFailed(
            f"The server asks {question_text(request)!r} again: it did not accept {response.get('content')!r}"
        )


def _look_up(script: Mapping[str, Any], key: str, request: JsonObject) -> Any:
    message = question_text(request)
    names = find_entries(script, key, message)
    if len(names) == 1:
        return script[names[0]]
    if names:
        found = f"several answers ({', '.join(map(repr, names))})"
        raise Unanswered(f"The script has {found} to {message!r} (key {key!r})")
    near = difflib.get_close_matches(key, script, 1) or difflib.get_close_matches(message, script, 1)
    hint = f"; did you mean it by {near[0]!r}?" if near else ""
    raise Unanswered(f"The script has no answer to {message!r} (key {key!r}){hint}")


def _is_whole(answer: Any, request: JsonObject) -> bool:
    """Whether an answer is a whole result. A form may have a field of the same name."""
    params: JsonObject = request.get("params") or {}
    schema: JsonObject = params.get("requestedSchema") or {}
    fields: JsonObject = schema.get("properties") or {}
    return is_object(answer) and any(
        name in answer and name not in fields for name in ("action", "role", "roots")
    )


def _check_kind(answer: Any, method: str) -> None:
    if method == SAMPLE:
        if not isinstance(answer, str):
            raise Mistyped(f"a model answers with text, not {answer!r}")
        return
    roots: list[Any] = answer if is_array(answer) else [answer]
    if not all(isinstance(root, str) and "://" in root for root in roots):
        raise Mistyped(f"roots are URIs such as 'file:///home', not {answer!r}")


def _elicited(answer: Any, params: Mapping[str, Any]) -> JsonObject:
    if isinstance(answer, _No):
        return {"action": answer.value}
    if params.get("mode", "form") == "url":
        if answer is None or answer is True:
            return {"action": "accept"}
        raise Mistyped(f"a page is answered by None, DECLINE or CANCEL, not {answer!r}")
    schema: JsonObject = params.get("requestedSchema") or {}
    content = _filled_in(answer, list(schema.get("properties") or ()))
    return {"action": "accept"} if answer is None else {"action": "accept", "content": content}


def _filled_in(answer: Any, fields: list[str]) -> JsonObject:
    """The content of a form: a dict, or the value of its only field."""
    if answer is None:
        return {}
    if is_object(answer):
        if unknown := [name for name in answer if name not in fields]:
            raise Mistyped(f"the form has no field {unknown[0]!r}; it has {', '.join(fields) or 'none'}")
        return answer
    if len(fields) != 1:
        raise Mistyped(f"the form has the fields {', '.join(fields) or 'none'}: give a dict, not {answer!r}")
    return {fields[0]: answer}
