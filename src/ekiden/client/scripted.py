"""Answers that were written down beforehand: which one belongs to a question, and how it is spelled.

A question is named by its key, by its message, or by a part of the message. The scripts of `ekiden.testing`
and of `ekiden call` are read by this rule; each adds short forms of its own for the answer to a form.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ekiden.rounds.asks import ELICIT, SAMPLE
from ekiden.wire.json import JsonObject, is_array, is_object

__all__ = ["find_entries", "model_reply", "question_text", "spell_answer"]


def question_text(request: Mapping[str, Any]) -> str:
    """What an input request asks, in words: its message, the last message to the model, or `roots`."""
    params: JsonObject = request.get("params") or {}
    if request.get("method") == ELICIT:
        return str(params.get("message", ""))
    if request.get("method") == SAMPLE:
        messages = params.get("messages")
        last = messages[-1] if is_array(messages) and messages else None
        content = last.get("content") if is_object(last) else None
        blocks: list[Any] = content if is_array(content) else [content]
        return " ".join(str(block.get("text", "")) for block in blocks if is_object(block))
    return "roots"


def find_entries(names: Iterable[str], key: str | None, message: str) -> list[str]:
    """The entries of a script that fit a question: the one named by key or message, else all by a part."""
    listed = list(names)
    for name in (key, message):
        if name is not None and name in listed:
            return [name]
    return [name for name in listed if name and name in message]


def spell_answer(
    answer: Any,
    request: Mapping[str, Any],
    *,
    model: str,
    elicited: Callable[[Any, Mapping[str, Any]], JsonObject],
) -> JsonObject:
    """A short answer as the result that the protocol wants; `elicited` spells that of a form or page."""
    if request.get("method") == ELICIT:
        return elicited(answer, request.get("params") or {})
    if request.get("method") == SAMPLE:
        return answer if is_object(answer) and "role" in answer else model_reply(str(answer), model)
    if is_object(answer) and "roots" in answer:
        return answer
    roots: list[Any] = answer if is_array(answer) else [answer]
    return {"roots": [{"uri": str(root)} for root in roots]}


def model_reply(text: str, model: str) -> JsonObject:
    """A `CreateMessageResult` with this text; `model` says who wrote it, which the spec wants."""
    return {"role": "assistant", "model": model, "content": {"type": "text", "text": text}}
