"""A question of the server that waits for an answer on the page."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from ekiden.client.checking import check_response
from ekiden.errors import WrongAnswer
from ekiden.pages.web.addresses import link_of
from ekiden.pages.web.filling import Form, FormView, asked_schema
from ekiden.wire.json import JsonObject, is_array, is_object
from ekiden.wire.printable import harmless, one_line

__all__ = ["Question", "QuestionKind", "Refused"]

QuestionKind = Literal["form", "link", "model", "roots"]

_METHODS: Final[dict[QuestionKind, str]] = {
    "form": "elicitation/create",
    "link": "elicitation/create",
    "model": "sampling/createMessage",
    "roots": "roots/list",
}
_MODEL: Final = "a-person-on-the-page"
"""The name that the specification wants for the model: a person wrote the reply."""
_REPLY: Final[JsonObject] = {
    "type": "object",
    "properties": {"reply": {"type": "string", "title": "What the model says", "maxLength": 1_000_000}},
    "required": ["reply"],
}
_ROOTS: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "roots": {
            "type": "string",
            "title": "Roots",
            "description": "One URI on each line, such as file:///home/aiko/project",
            "maxLength": 100_000,
        }
    },
}


class Refused(msgspec.Struct):
    """What was posted is not an answer: the form as it was filled in, with what is wrong."""

    view: FormView


class Question:
    """One question, from when it is asked to when it is answered or not needed any more."""

    def __init__(self, number: int, kind: QuestionKind, params: JsonObject, roots: str = "") -> None:
        self.number = number
        self.kind: QuestionKind = kind
        self.params = params
        self.action = ""
        """`accept`, `decline` or `cancel`, once it is answered; `gone` if the call ended before."""
        self.answer: JsonObject = {}
        self._answered: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self.form = Form(_schema(kind, params), prefix=f"q{number}")
        self._roots = roots
        self._tries = 0
        self.view = self._first_view()

    def _first_view(self) -> FormView:
        return self.form.holding({"roots": self._roots}) if self.kind == "roots" else self.form.blank()

    # What is shown

    @property
    def is_open(self) -> bool:
        """Whether it still waits for an answer."""
        return not self.action

    @property
    def stamp(self) -> str:
        """Differs when it must be drawn again: what is being typed is kept otherwise."""
        return f"{self.action or 'open'}-{self._tries}"

    @property
    def address(self) -> str:
        """Of a link: where it leads; nothing if that is not a page of the web."""
        return link_of(self.params.get("url")).address or "#"

    @property
    def host(self) -> str:
        """Of a link: whose page it is."""
        return one_line(link_of(self.params.get("url")).host or "the page")

    @property
    def message(self) -> str:
        """What the server says."""
        if self.kind == "roots":
            return "Which folders does the client work in?"
        if self.kind == "model":
            return "The server asks your model. You write what the model says."
        return harmless(self.params.get("message", ""))

    @property
    def messages(self) -> list[tuple[str, str]]:
        """For a model: who said what so far."""
        said: list[tuple[str, str]] = []
        if self.params.get("systemPrompt"):
            said.append(("system", harmless(self.params["systemPrompt"])))
        messages: Any = self.params.get("messages")
        for message in messages if is_array(messages) else ():
            content: Any = message.get("content")
            blocks: list[Any] = content if is_array(content) else [content]
            said.extend((one_line(message.get("role")), _block(block)) for block in blocks)
        return said

    @property
    def facts(self) -> list[tuple[str, str]]:
        """For a model: what the server wants of it."""
        told: list[tuple[str, str]] = []
        if "maxTokens" in self.params:
            told.append(("At most", f"{one_line(self.params['maxTokens'])} tokens"))
        tools: Any = self.params.get("tools")
        if is_array(tools) and tools:
            told.append(("Tools", ", ".join(one_line(tool.get("name")) for tool in tools if is_object(tool))))
        return told

    # Answering

    async def wait(self) -> JsonObject:
        """The answer, once it was given on the page."""
        try:
            return await self._answered
        finally:
            self.action = self.action or "gone"

    def post(self, action: str, posted: Mapping[str, Sequence[str]]) -> Refused | None:
        """Answer with what was posted. `Refused` if that is not an answer."""
        if not self.is_open:
            return None
        self._tries += 1
        answer: JsonObject = {"action": action if action in ("decline", "cancel") else "accept"}
        if answer["action"] == "accept" and self.kind != "link":
            filled = self.form.read(posted)
            self.view = filled.view
            if not filled.fits:
                return Refused(filled.view)
            answer = self._spelled(filled.values)
        try:
            self.answer = check_response(
                "question", {"method": _METHODS[self.kind], "params": self.params}, answer
            )
        except WrongAnswer as wrong:
            self.view.problem = one_line(wrong.problem)
            return Refused(self.view)
        self.action = str(answer.get("action", "accept"))
        if not self._answered.done():
            self._answered.set_result(self.answer)
        return None

    def _spelled(self, values: JsonObject) -> JsonObject:
        if self.kind == "form":
            return {"action": "accept", "content": values}
        if self.kind == "model":
            reply = {"type": "text", "text": values["reply"]}
            return {"role": "assistant", "content": reply, "model": _MODEL, "stopReason": "endTurn"}
        lines = str(values.get("roots", "")).splitlines()
        return {"roots": [{"uri": line.strip()} for line in lines if line.strip()]}


def _schema(kind: QuestionKind, params: JsonObject) -> JsonObject:
    """What is filled in to answer."""
    if kind != "form":
        return {"link": {}, "model": _REPLY, "roots": _ROOTS}[kind]
    return asked_schema(params.get("requestedSchema"))


def _block(block: Any) -> str:
    if not is_object(block):
        return ""
    if isinstance(block.get("text"), str):
        return harmless(block["text"])
    return one_line(f"({block.get('type')})")
