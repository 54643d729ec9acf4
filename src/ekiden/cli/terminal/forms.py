"""Forms at the terminal (client: Elicitation): field by field, then a review, then send.

Esc opens a menu in every field: go on, decline, or cancel. Nothing is sent before the user agrees. Where the
whole form is one question of yes or no, the key is the agreement.
"""

from collections.abc import Mapping
from typing import Any, Final

from ekiden.cli.terminal.fields import Field, fields_of
from ekiden.cli.terminal.pages import read_page
from ekiden.cli.terminal.prompting import Choice, Terminal
from ekiden.cli.terminal.screen import Screen, one_line
from ekiden.errors import Mistyped
from ekiden.signals import QuestionLeft
from ekiden.wire.json import JsonObject

__all__ = ["Forms"]

_EMPTY: Final = "(leave empty)"
_NO: Final[list[Choice]] = [
    ("decline", "Decline: tell the server no"),
    ("cancel", "Cancel: dismiss the question"),
]


class Forms:
    """Shows the user what a server asks, and returns the answer."""

    def __init__(self, screen: Screen, terminal: Terminal) -> None:
        self._screen = screen
        self._terminal = terminal

    # Forms

    async def fill_in(self, server: str, params: Mapping[str, Any]) -> JsonObject:
        """Have the user fill in a form; an `ElicitResult`."""
        fields = fields_of(params.get("requestedSchema") or {})
        one_key = len(fields) == 1 and fields[0].kind == "boolean" and fields[0].required
        hint = "y or n is sent at once; Esc: decline or cancel" if one_key else "Esc: decline or cancel"
        self._headline(server, params, hint)
        content: JsonObject = {}
        at = 0
        while True:
            try:
                while at < len(fields):
                    await self._fill(fields[at], content)
                    at += 1
                action = "accept" if one_key else await self._review(server, fields, content)
            except QuestionLeft:
                action = await self._how_to_end()
            if action == "accept":
                return {"action": "accept", "content": content}
            if action in ("decline", "cancel"):
                return {"action": action}
            at = 0 if action == "change" else at

    def _headline(self, server: str, params: Mapping[str, Any], hint: str) -> None:
        self._screen.note()
        self._screen.note(f"{server} asks:", style="bold")
        self._screen.quote(str(params.get("message", "")))
        self._screen.note(hint, style="dim")

    async def _review(self, server: str, fields: list[Field], content: JsonObject) -> str:
        for field in fields:
            shown = _shown(content[field.name]) if field.name in content else "(empty)"
            self._screen.note(f"  {one_line(field.name)}: {shown}")
        change: list[Choice] = [("change", "Change something")] if fields else []
        picked: str = await self._terminal.pick(
            f"Send this to {server}?", [("accept", "Send"), *change, *_NO]
        )
        return picked

    async def _how_to_end(self) -> str:
        try:
            picked: str = await self._terminal.pick("What now?", [("go on", "Go on with the form"), *_NO])
        except QuestionLeft:
            return "go on"
        return picked

    async def _fill(self, field: Field, content: JsonObject) -> None:
        """Ask for one field, suggesting the earlier value or the server's default."""
        suggested = content.get(field.name, field.default)
        value = await self._ask(field, suggested)
        content.pop(field.name, None)
        if value is not None:
            content[field.name] = value

    async def _ask(self, field: Field, suggested: Any) -> Any:
        """The value of a field, or None if it is left empty."""
        blank: list[Choice] = [] if field.required else [(None, _EMPTY)]
        if field.kind == "choices":
            return await self._ask_many(field, [] if suggested is None else suggested)
        if field.kind == "choice":
            return await self._terminal.pick(field.label, [*field.choices, *blank], suggested)
        if field.kind == "boolean":
            without = False if field.required else None
            return await self._terminal.confirm(field.label, without if suggested is None else suggested)
        return await self._ask_text(field, suggested)

    async def _ask_many(self, field: Field, chosen: list[Any]) -> Any:
        while True:
            chosen = await self._terminal.pick_many(field.label, field.choices, chosen)
            if not chosen and not field.required:
                return None
            if (problem := field.problem(chosen)) is None:
                return chosen
            # Not as questionary shows it: it shows nothing if the terminal's height is unknown.
            self._screen.note(one_line(f"{field.name} {problem}"), style="red")

    async def _ask_text(self, field: Field, suggested: Any) -> Any:
        def problem(text: str) -> str | None:
            if not text.strip():
                return "This is required (Esc: decline or cancel)" if field.required else None
            try:
                field.read(text)
            except Mistyped as error:
                return f"{field.name} {error}"
            return None

        label = field.label if field.required else f"{field.label} [optional]"
        default = "" if suggested is None else one_line(suggested)
        text = await self._terminal.text(label, default, problem)
        return field.read(text) if text.strip() else None

    # Pages

    async def visit(self, server: str, params: Mapping[str, Any]) -> JsonObject:
        """Have the user visit a page, which is opened only if the user agrees; an `ElicitResult`."""
        import webbrowser

        page = read_page(str(params.get("url", "")))
        if isinstance(page, str):
            self._headline(server, params, "It wants you to open a page:")
            self._screen.note(f"That is declined: {page}.", style="red")
            return {"action": "decline"}
        self._headline(server, params, f"It wants you to open a page of {page.host}:")
        self._screen.note(page.address)
        for warning in page.warnings:
            self._screen.note(warning, style="red")
        choices: list[Choice] = [
            ("open", f"Open {page.host} in the browser"),
            ("accept", "I open it myself"),
            *_NO,
        ]
        action = await self._choose("Open it?", choices)
        if action == "open":
            if not webbrowser.open(page.address):
                self._screen.note("There is no browser here: open the address above yourself.")
            action = await self._choose("Go on when you are done there.", [("accept", "Go on"), *_NO])
        return {"action": action}

    async def _choose(self, message: str, choices: list[Choice]) -> str:
        """One of the choices; Esc is `cancel`."""
        try:
            picked: str = await self._terminal.pick(message, choices)
        except QuestionLeft:
            return "cancel"
        return picked

    # Models

    async def write(self, server: str, message: str) -> str:
        """Have the user write the model's reply."""
        self._headline(server, {"message": message}, "It asks your model; you write what the model says.")
        while True:
            try:
                return await self._terminal.text(
                    "Reply", "", lambda text: None if text else "Write something"
                )
            except QuestionLeft:
                self._screen.note("A model cannot decline: write a reply, or end the call with Ctrl-C.")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(one_line(item) for item in value)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return one_line(value)
