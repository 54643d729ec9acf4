"""A call as a test: the same tool, the same arguments, the same answers, and what came of it."""

import re
from pprint import pformat
from textwrap import indent
from typing import Any, Final

import msgspec

from ekiden.pages.desk.story import StoryView

__all__ = ["as_test"]

_json: Final = msgspec.json.Decoder().decode
_COMPARED: Final = ("content", "structuredContent", "isError", "messages", "contents")
"""What of a result says what came of a call."""


_LONGEST_FORMATTED: Final = 2000
"""Letters of a value that is laid out in lines. To do that takes long for one that is deep, and a client
decides what it sends; a longer one stands on one line."""


def as_test(view: StoryView) -> str | None:
    """The text of a test that makes the call again; None if some value of it was not kept, or not shown."""
    if view.is_cut:
        return None
    arguments = _json(view.facts.arguments) if view.facts.arguments else None
    answers = {_key(question.key, view): question.answer for question in view.questions if question.answered}
    if arguments is None or not all(answers.values()):
        return None
    spelled = {key: _json(answer) for key, answer in answers.items()}
    return _replayed(view, arguments, spelled) if view.difference else _scripted(view, arguments, spelled)


def _key(key: str, view: StoryView) -> str:
    """The key of a question without the attempt that a task adds."""
    return re.sub(r"\.\d+\Z", "", key) if view.row.task else key


def _replayed(view: StoryView, arguments: Any, answers: dict[str, Any]) -> str:
    return f'''"""A call that did not replay: {view.row.id}."""

from ekiden.testing import check_replay

from server import server  # Where yours is.


async def test_{_name(view)}_replays() -> None:
    answers = {_literal(answers)}
    await check_replay(lambda: server, {view.row.target!r}, {_literal(arguments)}, answers)
'''


def _scripted(view: StoryView, arguments: Any, answers: dict[str, Any]) -> str:
    is_task = bool(view.row.task)
    options = ", tasks=True" if is_task else ""
    failed = view.row.state == "failed"
    imports = "CallFailed, ScriptedClient" if failed else "ScriptedClient"
    lines = [f"answers = {_literal(answers)}", f"client = ScriptedClient(server, answers{options})"]
    call = _call(view, arguments)
    if failed:
        lines += ["with pytest.raises(CallFailed):", f"    {call}"]
    else:
        lines += [f"result = {call}", *_expected(view)]
    body = indent("\n".join(lines), "    ")
    head = "import pytest\n\n" if failed else ""
    return f'''"""What happened in the call {view.row.id}."""

{head}from ekiden.testing import {imports}

from server import server  # Where yours is.


async def test_{_name(view)}_as_it_was_called() -> None:
{body}
'''


def _call(view: StoryView, arguments: Any) -> str:
    target = view.row.target
    if view.row.method == "resources/read":
        return f"await client.read_resource({target!r})"
    method = "get_prompt" if view.row.method == "prompts/get" else "call_tool"
    return f"await client.{method}({target!r}, {_literal(arguments)})"


def _expected(view: StoryView) -> list[str]:
    result, _ = view.result
    found: dict[str, Any] = _json(result) if result else {}
    compared = {key: found[key] for key in _COMPARED if key in found}
    return [f"assert result[{key!r}] == {_literal(value)}" for key, value in compared.items()]


def _literal(value: Any) -> str:
    plain = repr(value)
    if len(plain) > _LONGEST_FORMATTED:
        return plain
    return pformat(value, width=90, sort_dicts=False).replace("\n", "\n    ")


def _name(view: StoryView) -> str:
    return re.sub(r"\W+", "_", view.row.target).strip("_").lower()[:60] or "call"
