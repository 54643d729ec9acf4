"""`ekiden prompt`: get one prompt, and show its messages."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ekiden.cli.arguments import parse_arguments
from ekiden.cli.calling.conversation import AskedOptions, Conversation, converse
from ekiden.cli.calling.names import find_named
from ekiden.cli.calling.rounds import Rounds
from ekiden.cli.terminal.results import show_block
from ekiden.cli.terminal.screen import Screen, one_line
from ekiden.errors import UsageError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from mcp_types import GetPromptResult, Prompt

__all__ = ["prompt"]


def prompt(options: AskedOptions, name: str, words: Sequence[str]) -> None:
    """Get a prompt and show it."""
    screen = Screen()

    async def work(with_: Conversation) -> "GetPromptResult":
        found = await find_named("prompt", name, with_.client.list_prompts)
        arguments = _arguments(found, words)
        return await Rounds(options, with_).drive(
            lambda: with_.client.start_prompt(found.name, arguments), with_.client.resume_prompt
        )

    got = converse(options, screen, work)
    raw = got.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options.json:
        screen.json(raw)
    else:
        _show(screen, raw, name, options)


def _arguments(found: "Prompt", words: Sequence[str]) -> dict[str, str]:
    """The arguments of a prompt, which are always text."""
    schema: JsonObject = {}
    if found.arguments is not None:
        schema = {
            "properties": {argument.name: {"type": "string"} for argument in found.arguments},
            "required": [argument.name for argument in found.arguments if argument.required],
            "additionalProperties": False,
        }
    else:
        schema = {"additionalProperties": {"type": "string"}}
    arguments = parse_arguments(words, schema, of="the prompt")
    if wrong := [name for name, value in arguments.items() if not isinstance(value, str)]:
        raise UsageError(f"argument {wrong[0]!r} must be text: write {wrong[0]}=VALUE")
    return arguments


def _show(screen: Screen, result: JsonObject, name: str, options: AskedOptions) -> None:
    """One message as it is; several, each after its role."""
    messages: list[JsonObject] = result["messages"]
    several = len(messages) > 1
    for message in messages:
        if several:
            screen.text(f"{one_line(message['role'])}:")
        show_block(screen, message["content"], name, options.save_to)
