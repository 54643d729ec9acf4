from datetime import date
from typing import Annotated, Any

import pytest
from mcp_types import GetPromptResult, Icon, ImageContent, PromptMessage, TextContent
from pydantic import Field

from ekiden import Context, RegistrationError, Server, UsageError
from tests.serving import error_of, exchange, request, result_of


async def got(value: Any, **arguments: str) -> dict[str, Any]:
    """What a prompt that returns `value` gives."""
    server = Server("s")

    async def prompt() -> Any:
        """Described."""
        return value

    server.add_prompt(prompt)
    return await result_of(server, "prompts/get", {"name": "prompt", "arguments": arguments})


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


async def test_text_becomes_one_message_of_the_user() -> None:
    assert await got("hello") == {"description": "Described.", "messages": [user("hello")]}


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        (["a", "b"], [user("a"), user("b")]),
        (("a", ["b"]), [user("a"), user("b")]),
        ({"a": 1}, [user('{"a":1}')]),
        (3, [user("3")]),
        ([], []),
        (None, []),
        (TextContent(text="t"), [user("t")]),
        (
            PromptMessage(role="assistant", content=TextContent(text="t")),
            [{"role": "assistant", "content": {"type": "text", "text": "t"}}],
        ),
        (
            [ImageContent(data="aQ==", mime_type="image/png"), "look"],
            [
                {"role": "user", "content": {"type": "image", "data": "aQ==", "mimeType": "image/png"}},
                user("look"),
            ],
        ),
    ],
)
async def test_what_a_prompt_returns_becomes_messages(value: Any, messages: list[Any]) -> None:
    assert (await got(value))["messages"] == messages


async def test_a_whole_result_is_sent_as_it_is() -> None:
    message = PromptMessage(role="assistant", content=TextContent(text="t"))
    result = await got(GetPromptResult(description="Mine.", messages=[message]))
    assert result["description"] == "Mine."
    assert result["messages"] == [{"role": "assistant", "content": {"type": "text", "text": "t"}}]


async def test_arguments_arrive_as_strings_and_become_what_the_hints_say() -> None:
    server = Server("s")

    @server.prompt
    async def plan(count: int, day: date, loud: bool, ratio: float = 0.5) -> str:
        return repr((count, day, loud, ratio))

    arguments = {"count": "3", "day": "2026-07-28", "loud": "true"}
    result = await result_of(server, "prompts/get", {"name": "plan", "arguments": arguments})
    assert result["messages"] == [user("(3, datetime.date(2026, 7, 28), True, 0.5)")]


async def test_arguments_are_listed_with_what_is_known_of_them() -> None:
    server = Server("s")

    @server.prompt(
        title="Title", icons=[Icon(src="https://example.com/i.png")], meta={"k": 1}, description="Given."
    )
    async def plan(
        city: str, ctx: Context, days: Annotated[int, Field(title="Days", description="How many.")] = 1
    ) -> str:
        """Not this.

        Args:
            city: Where.
        """
        return ""

    (definition,) = (await result_of(server, "prompts/list"))["prompts"]
    assert definition == {
        "name": "plan",
        "title": "Title",
        "description": "Given.",
        "arguments": [
            {"name": "city", "description": "Where.", "required": True},
            {"name": "days", "title": "Days", "description": "How many.", "required": False},
        ],
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"k": 1},
    }


async def test_a_prompt_without_arguments_lists_none() -> None:
    server = Server("s")

    @server.prompt
    async def plain() -> str:
        return ""

    assert (await result_of(server, "prompts/list"))["prompts"] == [{"name": "plain", "description": "plain"}]


@pytest.mark.parametrize("arguments", [{}, {"n": "x"}, {"n": "1", "m": "2"}, [], "x", None])
async def test_arguments_that_do_not_fit_are_invalid_params(arguments: Any) -> None:
    server = Server("s")

    @server.prompt
    async def prompt(n: int) -> str:
        return ""

    error = await error_of(server, "prompts/get", {"name": "prompt", "arguments": arguments})
    assert error["code"] == -32602


async def test_an_unknown_prompt_is_invalid_params() -> None:
    server = Server("s")

    @server.prompt
    async def prompt() -> str:
        return ""

    error = await error_of(server, "prompts/get", {"name": "nobody"})
    assert (error["code"], error["message"]) == (-32602, "Unknown prompt: nobody")
    error = await error_of(server, "prompts/get", {"name": "n" * 100_000})
    assert error["message"] == "Unknown prompt: " + "n" * 200


async def test_a_prompt_may_report_progress() -> None:
    server = Server("s")

    @server.prompt
    async def prompt(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    progress, response = await exchange(server, request("prompts/get", {"name": "prompt"}, progressToken=1))
    assert progress["method"] == "notifications/progress"
    assert response["result"]["messages"] == [user("done")]


async def test_a_plain_function_can_be_a_prompt() -> None:
    server = Server("s")

    @server.prompt(name="other")
    def prompt() -> str:
        return "plain"

    result = await result_of(server, "prompts/get", {"name": "other"})
    assert result["messages"] == [user("plain")]


async def test_a_prompt_can_be_taken_back_and_not_twice() -> None:
    server = Server("s")

    @server.prompt
    async def prompt() -> str:
        return ""

    with pytest.raises(RegistrationError, match="Prompt 'prompt' is registered already"):
        server.add_prompt(prompt)
    server.remove_prompt("prompt")
    assert (await result_of(server, "prompts/list"))["prompts"] == []
    with pytest.raises(UsageError, match="no prompt 'prompt' to remove"):
        server.remove_prompt("prompt")
