"""The official Python client answers what a server asks. Run by the interpreter of `.peers/mcp`.

    python python_client.py MODE http URL < plan
    python python_client.py MODE stdio COMMAND ARGUMENT... < plan

`MODE` is "auto" or "legacy". The plan says what to call and what the user, the model and the client then
answer. The client's own loop does the rounds; what came of each call, and what was asked for it, is printed
as one JSON object.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client import InputRequiredRoundsExceededError
from mcp_types import (
    CreateMessageResult,
    ElicitCompleteNotification,
    ElicitResult,
    Implementation,
    ListRootsResult,
)
from pydantic import BaseModel

PATIENCE = 20.0
"""Seconds for any single request; the whole run takes two."""

Json = dict[str, Any]


def dump(model: BaseModel) -> Json:
    """A model as it came: fields that the server did not send are absent."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Person:
    """Whoever answers. A question that the plan does not provide for ends the script with a trace."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Json]] = {}
        self.asked: list[Json] = []
        self.together = asyncio.Barrier(1)
        self.stray: list[str] = []

    async def on_elicit(self, context: Any, params: Any) -> ElicitResult:
        detail = params.url if params.mode == "url" else params.requested_schema
        return ElicitResult.model_validate(await self._answer("elicitation/create", params.message, detail))

    async def on_sample(self, context: Any, params: Any) -> CreateMessageResult:
        text = params.messages[-1].content.text
        return CreateMessageResult.model_validate(
            await self._answer("sampling/createMessage", text, params.max_tokens)
        )

    async def on_list_roots(self, context: Any) -> ListRootsResult:
        return ListRootsResult.model_validate(await self._answer("roots/list", "roots", None))

    async def _answer(self, method: str, text: str, detail: Any) -> Json:
        self.asked.append({"method": method, "text": text, "detail": detail})
        await asyncio.wait_for(self.together.wait(), PATIENCE)
        return self.answers[text].pop(0)

    async def on_message(self, message: object) -> None:
        if not isinstance(message, ElicitCompleteNotification):
            self.stray.append(repr(message))


async def call(client: Client, step: Json) -> BaseModel:
    return await client.call_tool(step["name"], step.get("arguments"))


async def get(client: Client, step: Json) -> BaseModel:
    return await client.get_prompt(step["name"], step.get("arguments"))


async def read(client: Client, step: Json) -> BaseModel:
    return await client.read_resource(step["uri"])


DO: dict[str, Callable[[Client, Json], Any]] = {"call": call, "get": get, "read": read}


async def perform(client: Client, step: Json) -> Json:
    try:
        return {"result": dump(await DO[step["do"]](client, step))}
    except MCPError as error:
        return {"error": dump(error.error)}
    except InputRequiredRoundsExceededError as error:
        return {"gaveUpAfter": error.max_rounds}


async def answer_all(client: Client, person: Person, plan: Json) -> Json:
    seen: Json = {}
    for name, case in plan.items():
        person.answers, person.asked = case["answers"], []
        person.together = asyncio.Barrier(case["together"])
        outcome = await perform(client, case["step"])
        left = {text: answers for text, answers in person.answers.items() if answers}
        seen[name] = {**outcome, "asked": person.asked, "left": left}
    return seen


async def main(mode: str, transport: str, *target: str) -> Json:
    plan = json.load(sys.stdin)
    server = (
        target[0] if transport == "http" else StdioServerParameters(command=target[0], args=list(target[1:]))
    )
    person = Person()
    options: Json = {
        "mode": mode,
        "client_info": Implementation(name="official-python", version="1"),
        "read_timeout_seconds": PATIENCE,
        "message_handler": person.on_message,
    }
    callbacks: Json = {
        "elicitation_callback": person.on_elicit,
        "sampling_callback": person.on_sample,
        "list_roots_callback": person.on_list_roots,
    }
    async with Client(server, **options, **callbacks) as client:
        version = client.protocol_version
        able = await answer_all(client, person, plan["able"])
    async with Client(server, **options) as client:
        unable = await answer_all(client, person, plan["unable"])
    return {"version": version, "able": able, "unable": unable, "stray": person.stray}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
