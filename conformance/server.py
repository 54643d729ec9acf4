"""The fixtures that the official suite wants of a server, in straight code.

Runs alone: `python conformance/server.py --port 8000`, endpoint `/mcp`.
"""

import argparse
import asyncio
import base64
import struct
import zlib
from typing import Annotated, Any, Literal

from mcp_types import (
    AudioContent,
    CreateMessageResultWithTools,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field
from task_tools import add_task_tools

from ekiden import Context, Server, TaskLimits, ToolError
from ekiden.extensions import Skills
from ekiden.stores.memory import MemoryStore

skills = Skills(page_size=1)
skills.add(
    "acme/billing/refunds",
    description="Refund an order",
    instructions="# Refunds\n\nWrite to the customer as in `examples/email.md`.\n",
    files={"examples/email.md": "Dear customer,\n", "scripts/total.py": "print(1)\n"},
    license="MIT",
)
skills.add("git-workflow", description="How we branch", instructions="Branch first.\n")

server = Server(
    "ekiden-conformance",
    version="1.0.0",
    instructions="Fixtures of the official suite.",
    store=MemoryStore(),
    tasks=TaskLimits(poll_seconds=0.1),
    extensions=[skills],
)


def _png() -> bytes:
    """A PNG of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """A WAV of eight silent samples."""
    samples = bytes(16)
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + struct.pack("<I", 16) + form
        + b"data" + struct.pack("<I", len(samples)) + samples
    )  # fmt: skip


PNG = base64.b64encode(_png()).decode()
WAV = base64.b64encode(_wav()).decode()


def image() -> ImageContent:
    return ImageContent(data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


# Tools


@server.tool
async def test_simple_text() -> str:
    """Return one text block."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> ImageContent:
    """Return an image."""
    return image()


@server.tool
async def test_audio_content() -> AudioContent:
    """Return audio."""
    return AudioContent(data=WAV, mime_type="audio/wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Return an embedded resource."""
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@server.tool
async def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Return text, an image and a resource."""
    data = '{"test":"data","value":123}'
    return [
        TextContent(text="Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", data),
    ]


@server.tool
async def test_error_handling() -> str:
    """Fail, as tools do."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100)
        await asyncio.sleep(0.05)
    return "Done."


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", text)
        await asyncio.sleep(0.05)
    return "Done."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log, which is heard only by requests that set a level."""
    await ctx.log("info", "evaluating")
    return "Logging evaluated"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress on the response stream."""
    await ctx.progress(50, 100)
    return "Streaming complete"


@server.tool(asks=["sampling"])
async def test_missing_capability() -> str:
    """Need the client's model, and say so where it is missing."""
    return "The client declared sampling."


@server.tool
async def test_x_mcp_header(
    region: Annotated[str, Field(description="Where to run", json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Take an argument that clients mirror into a header."""
    return f"Running in {region}"


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Take arguments that a full JSON Schema 2020-12 describes."""
    return f"Received {len(arguments)} arguments"


# Rounds


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user's name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!" if answer.action == "accept" else "Hello, whoever you are!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {text_of(answer)}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"Roots: {', '.join(str(root.uri) for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a confirmation, and remember across rounds that it was asked for."""
    marked = ctx.uuid()
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok {answer.action} {marked}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the model and the client at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"{name.action}: {text_of(greeting)} ({len(roots)} roots)"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, the second time about the first answer."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    who = name.data.name if name.action == "accept" else "stranger"
    color = await ctx.elicit(f"Step 2: {who}, what is your favorite color?", Color, key="step2")
    return f"{who} likes {color.data.color if color.action == 'accept' else 'no color'}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, with a state that must come back as it was."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"confirmed: {answer.action}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask for whatever the client can give."""
    if ctx.can_ask("elicitation"):
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        return f"The user answered: {answer.action}"
    return f"The model says: {text_of(await ctx.sample('Say hello', max_tokens=50, key='greeting'))}"


def text_of(message: CreateMessageResultWithTools) -> str:
    """The text of a sampled message."""
    return " ".join(block.text for block in message.content_as_list if isinstance(block, TextContent))


# What clients of 2025 are asked


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Have the client's model answer a prompt."""
    return f"LLM response: {text_of(await ctx.sample(prompt, max_tokens=100))}"


class Registration(BaseModel):
    username: Annotated[str, Field(description="User's response")]
    email: Annotated[str, Field(description="User's email address")]


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user to register."""
    answer = await ctx.elicit(message, Registration)
    filled = answer.data.model_dump() if answer.action == "accept" else {}
    return f"User response: action={answer.action}, content={filled}"


class Defaults(BaseModel):
    name: Annotated[str, Field(description="User name")] = "John Doe"
    age: Annotated[int, Field(description="User age")] = 30
    score: Annotated[float, Field(description="User score")] = 95.5
    status: Annotated[Literal["active", "inactive", "pending"], Field(description="User status")] = "active"
    verified: Annotated[bool, Field(description="Verification status")] = True


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form whose fields have defaults."""
    answer = await ctx.elicit("Please review and update the form fields with defaults", Defaults)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


def titled(*words: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(words, 1)]


CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("First", "Second", "Third")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {"type": "array", "items": {"anyOf": titled("First", "Second", "Third")}},
    },
}


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with a form of all kinds of choices."""
    answer = await ctx.elicit("Please choose", CHOICES)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the connection in the middle, and answer when the client has come back."""
    ctx.close_stream()
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully. If you received this, the client reconnected properly!"


# Changes of the lists


@server.tool
async def test_trigger_tool_change() -> str:
    """Add a tool and take it back: two changes of the list."""

    async def test_dynamic_tool() -> str:
        """Exist for a moment."""
        return "here"

    server.add_tool(test_dynamic_tool)
    server.remove_tool("test_dynamic_tool")
    return "The tool list changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Add a prompt and take it back: two changes of the list."""

    async def test_dynamic_prompt() -> str:
        """Exist for a moment."""
        return "here"

    server.add_prompt(test_dynamic_prompt)
    server.remove_prompt("test_dynamic_prompt")
    return "The prompt list changed."


# Resources


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """Text that does not change."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """An image that does not change."""
    return _png()


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template(id: str) -> dict[str, Any]:  # noqa: A002  the suite's name for it
    """Data by id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched() -> str:
    """Something to subscribe to."""
    return "Watched resource content."


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """Return one message."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Use two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion(prompt="test_prompt_with_arguments", argument="arg1")
async def complete_arg1(value: str) -> list[str]:
    return [word for word in ("testValue1", "testValue2", "other") if word.startswith(value)]


@server.prompt(name="test_prompt_with_embedded_resource")
async def embedded_prompt(resourceUri: str) -> list[PromptMessage | str]:  # noqa: N803  the suite's name for it
    """Embed a resource."""
    resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [PromptMessage(role="user", content=resource), "Please process the embedded resource above."]


@server.prompt
async def test_prompt_with_image() -> list[PromptMessage | str]:
    """Show an image."""
    return [PromptMessage(role="user", content=image()), "Please analyze the image above."]


class Background(BaseModel):
    context: str


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask for context before the prompt is written."""
    answer = await ctx.elicit("What context should the prompt have?", Background, key="user_context")
    return f"Prompt in the context of {answer.data.context if answer.action == 'accept' else 'nothing'}."


add_task_tools(server)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    server.run("http", port=parser.parse_args().port, log_level="warning")
