"""The first generation of the official Python client answers what a server asks.

    python python1_client.py auto http URL < plan
    python python1_client.py auto stdio COMMAND ARGUMENT... < plan

Run by the interpreter of `.peers/mcp1`, or of an earlier version of that generation, which lacks some of the
questions. The plan says what to call and what the user, the model and the client then answer; what came of
each call, and what was asked for it, is printed as one JSON object.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client import streamable_http
from pydantic import AnyUrl, BaseModel

connect_http = (
    getattr(streamable_http, "streamable_http_client", None) or streamable_http.streamablehttp_client
)
PATIENCE = timedelta(seconds=20)
"""For any single request; the whole run takes two seconds."""

Json = dict[str, Any]


def dump(model: BaseModel) -> Json:
    """A model as it came: fields that the server did not send are absent."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Person:
    """Whoever answers. A question that the plan does not provide for is answered with an error."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Json]] = {}
        self.asked: list[Json] = []
        self.stray: list[str] = []

    async def on_elicit(self, context: Any, params: Any) -> Any:
        is_page = getattr(params, "mode", "form") == "url"
        detail = params.url if is_page else params.requestedSchema
        return types.ElicitResult.model_validate(self._answer("elicitation/create", params.message, detail))

    async def on_sample(self, context: Any, params: Any) -> Any:
        text = params.messages[-1].content.text
        return types.CreateMessageResult.model_validate(
            self._answer("sampling/createMessage", text, params.maxTokens)
        )

    async def on_list_roots(self, context: Any) -> Any:
        return types.ListRootsResult.model_validate(self._answer("roots/list", "roots", None))

    def _answer(self, method: str, text: str, detail: Any) -> Json:
        self.asked.append({"method": method, "text": text, "detail": detail})
        return self.answers[text].pop(0)

    async def on_message(self, message: object) -> None:
        if isinstance(message, Exception):
            self.stray.append(repr(message))


async def call(session: ClientSession, step: Json) -> BaseModel:
    return await session.call_tool(step["name"], step.get("arguments"))


async def get(session: ClientSession, step: Json) -> BaseModel:
    return await session.get_prompt(step["name"], step.get("arguments"))


async def read(session: ClientSession, step: Json) -> BaseModel:
    return await session.read_resource(AnyUrl(step["uri"]))


DO: dict[str, Callable[[ClientSession, Json], Any]] = {"call": call, "get": get, "read": read}


async def perform(session: ClientSession, step: Json) -> Json:
    try:
        return {"result": dump(await DO[step["do"]](session, step))}
    except McpError as error:
        return {"error": dump(error.error)}


async def answer_all(session: ClientSession, person: Person, plan: Json) -> Json:
    seen: Json = {}
    for name, case in plan.items():
        person.answers, person.asked = case["answers"], []
        outcome = await perform(session, case["step"])
        left = {text: answers for text, answers in person.answers.items() if answers}
        seen[name] = {**outcome, "asked": person.asked, "left": left}
    return seen


@contextlib.asynccontextmanager
async def connected(transport: str, target: tuple[str, ...], **callbacks: Any) -> AsyncIterator[Any]:
    """A session that has shaken hands, and the version that this led to."""
    command, *arguments = target
    wire: Any = (
        connect_http(command)
        if transport == "http"
        else stdio_client(StdioServerParameters(command=command, args=arguments))
    )
    async with (
        wire as (read_stream, write_stream, *_),
        ClientSession(read_stream, write_stream, PATIENCE, **callbacks) as session,
    ):
        yield session, (await session.initialize()).protocolVersion


async def main(mode: str, transport: str, *target: str) -> Json:
    assert mode == "auto", "this client has but one way"
    plan = json.load(sys.stdin)
    person = Person()
    callbacks: Json = {
        "sampling_callback": person.on_sample,
        "list_roots_callback": person.on_list_roots,
    }
    if hasattr(types, "ElicitResult"):
        callbacks["elicitation_callback"] = person.on_elicit
    async with connected(transport, target, message_handler=person.on_message, **callbacks) as (
        session,
        version,
    ):
        able = await answer_all(session, person, plan["able"])
    async with connected(transport, target, message_handler=person.on_message) as (session, _):
        unable = await answer_all(session, person, plan["unable"])
    return {"version": version, "able": able, "unable": unable, "stray": person.stray}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
