"""What the official suite wants of a client, one short function per kind of scenario.

The suite starts it with the URL of its mock server as last argument and names the scenario in the
environment. It ends with 0 and nothing on stderr if all went as it should; that includes scenarios
whose server must be refused.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
)

from ekiden import Client, UnverifiedSkill

SECONDS = 240
"""The suite starts all scenarios at once, so each may take long on a small machine."""

MUST_REFUSE = {
    "auth/scope-retry-limit",
    "auth/resource-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
}
"""Scenarios whose server misbehaves such that a client must give up."""


async def elicit(params: ElicitRequestFormParams) -> ElicitResult:
    """Agree to everything: defaults where the form has them, yes to what is to be confirmed."""
    fields: dict[str, Any] = params.requested_schema.get("properties", {})
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    yes = {name: True for name, field in fields.items() if field.get("type") == "boolean"}
    return ElicitResult(action="accept", content=yes | content)


async def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="sampled"), model="none")


def connect(url: str, auth: Any = None) -> Client:
    """A client that declares all capabilities and finds out by itself which version the server speaks."""
    return Client(
        url, elicit=elicit, sample=sample, roots=["file:///conformance"], auth=auth, name="ekiden-conformance"
    )


async def list_tools(url: str) -> None:
    async with connect(url) as client:
        await client.list_tools()


async def add_numbers(url: str) -> None:
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def call_every_tool(url: str) -> None:
    """In the order of the list: calls of several rounds with others between them."""
    async with connect(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name)


async def call_undescribed_tool(url: str) -> None:
    """The mock lists no tools but answers every call."""
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("anything")


async def use_everything(url: str) -> None:
    async with connect(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name)
        for resource in await client.list_resources():
            await client.read_resource(resource.uri)
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt.name)


async def call_as_told(url: str) -> None:
    """The context names the calls and their arguments."""
    async with connect(url) as client:
        await client.list_tools()
        for call in context()["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def echo_schema(url: str) -> None:
    """Send a tool's schema back, to show that it came through unharmed."""
    async with connect(url) as client:
        schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
        await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def list_skills(url: str) -> None:
    """See what there is, and read nothing of it."""
    async with connect(url) as client:
        await client.list_skills()


async def refuse_skills(url: str) -> None:
    """Load what was listed, and all its files. The server's skill is not what its entry says."""
    async with connect(url) as client:
        for skill in await client.list_skills():
            try:
                loaded = await client.load_skill(skill)
                for path in loaded.files:
                    await loaded.read(path)
            except UnverifiedSkill as refusal:
                print(f"Refused, as it must be: {refusal}")
            else:
                sys.exit("The skill was to be refused, but was not")


async def authorize(url: str) -> None:
    """Everything behind authorization. The official package takes a second to import: only here."""
    import client_auth

    async with connect(url, await client_auth.provider(scenario(), url, context())) as client:
        await client.list_tools()
        await client.call_tool("test-tool")


async def refuse(url: str) -> None:
    """The same with a server that must not be trusted: anything but giving up is wrong."""
    import client_auth

    try:
        await authorize(url)
    except client_auth.REFUSALS as refusal:
        print(f"Refused, as it must be: {type(refusal).__name__}: {refusal}")
    else:
        sys.exit("The server was to be refused, but was not")


SCENARIOS: dict[str, Callable[[str], Awaitable[None]]] = {
    "initialize": list_tools,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": call_every_tool,
    "sse-retry": call_every_tool,
    "request-metadata": call_undescribed_tool,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_every_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2322-client-request-state": call_every_tool,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": refuse_skills,
    "sep-2640-client-verify-size": refuse_skills,
    "sep-2640-client-verify-frontmatter": refuse_skills,
}


def scenario() -> str:
    return os.environ["MCP_CONFORMANCE_SCENARIO"]


def context() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    return found


def chosen() -> Callable[[str], Awaitable[None]]:
    if scenario() in MUST_REFUSE:
        return refuse
    return authorize if scenario().startswith("auth/") else SCENARIOS[scenario()]


async def play(url: str) -> None:
    async with asyncio.timeout(SECONDS):
        await chosen()(url)


if __name__ == "__main__":
    # What is logged goes to stdout: stderr tells that the scenario went wrong.
    logging.basicConfig(stream=sys.stdout, level=logging.INFO)
    logging.captureWarnings(True)
    asyncio.run(play(sys.argv[-1]))
