"""Answers that were given beforehand: `--answers FILE` and `--answer KEY=VALUE`.

A question is named by its key, its message, or a part of the message that no other entry matches. The
answer is written short: an object fills in a form, any other value its only field, `@accept`,
`@decline` and `@cancel` say just that, a text is what the model wrote, a list is the roots. A whole
result (an object with `action`, for models with `role`, for roots with `roots`) is sent as it is.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ekiden.cli.arguments import read_json, split_pair, typed
from ekiden.cli.terminal.fields import fields_of
from ekiden.client.scripted import find_entries, question_text, spell_answer
from ekiden.errors import Mistyped, UsageError
from ekiden.wire.json import JsonObject, is_object

__all__ = ["MODEL", "GivenAnswers", "read_answers"]

MODEL: Final = "ekiden-cli"
"""The name that the spec wants for the model: here a person or a script wrote the reply."""

_ACTIONS: Final = {"@accept": "accept", "@decline": "decline", "@cancel": "cancel"}


class _Word(str):
    """A value from the command line; the form says which type it gets."""

    __slots__ = ()


def read_answers(file: Path | None, words: Iterable[str]) -> "GivenAnswers":
    """The answers of a file and of the command line; those of the command line win."""
    entries: JsonObject = {}
    if file is not None:
        try:
            entries = read_json(file.read_text())
        except (OSError, Mistyped) as error:
            raise UsageError(f"--answers {file}: {error}") from None
        if not is_object(entries):
            raise UsageError(f"--answers {file}: it must hold a JSON object, answers by key or message")
    for word in words:
        name, text, raw = split_pair(word)
        try:
            entries[name] = read_json(text) if raw else _Word(text)
        except Mistyped as error:
            raise UsageError(f"--answer {name!r} {error}") from None
    return GivenAnswers(entries)


class GivenAnswers:
    """The answers that were given beforehand, by the question's name."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = entries
        self._used: set[str] = set()

    def unused(self) -> str | None:
        """An answer that has fitted no question so far, if there is one."""
        return next((name for name in self._entries if name not in self._used), None)

    def respond(self, key: str | None, request: Mapping[str, Any]) -> JsonObject | None:
        """The response to a question, or None if there is no answer to it."""
        message = question_text(request)
        names = find_entries(self._entries, key, message)
        if not names:
            return None
        if len(names) > 1:
            raise UsageError(f"several answers fit {message!r}: {', '.join(map(repr, names))}")
        self._used.add(names[0])
        try:
            return spell_answer(self._entries[names[0]], request, model=MODEL, elicited=_elicited)
        except Mistyped as error:
            raise UsageError(f"the answer {names[0]!r} does not fit {message!r}: {error}") from None


def _elicited(answer: Any, params: Mapping[str, Any]) -> JsonObject:
    schema: JsonObject = params.get("requestedSchema") or {}
    if isinstance(answer, str) and answer in _ACTIONS:
        return {"action": _ACTIONS[answer]}
    if is_object(answer) and "action" in answer and "action" not in [f.name for f in fields_of(schema)]:
        return answer
    if params.get("mode", "form") == "url":
        return {"action": "accept" if answer in (True, "true", "yes", None) else "decline"}
    return {"action": "accept", "content": _filled_in(answer, schema)}


def _filled_in(answer: Any, schema: Mapping[str, Any]) -> JsonObject:
    """The content of a form, checked as the form says."""
    fields = fields_of(schema)
    names = [field.name for field in fields]
    if isinstance(answer, _Word) and answer.lstrip().startswith("{"):
        answer = read_json(answer)
    content: JsonObject
    if is_object(answer):
        content = answer
    else:
        if len(fields) != 1:
            raise Mistyped(f"the form has the fields {', '.join(names)}: give JSON")
        only = fields[0]
        content = {only.name: typed(str(answer), only.schema) if isinstance(answer, _Word) else answer}
    if unknown := [name for name in content if name not in names]:
        raise Mistyped(f"the form has no field {unknown[0]!r}; it has {', '.join(names) or 'none'}")
    for field in fields:
        if field.name not in content:
            if field.required:
                raise Mistyped(f"{field.name} is missing")
        elif (problem := field.problem(content[field.name])) is not None:
            raise Mistyped(f"{field.name} {problem}")
    return content
