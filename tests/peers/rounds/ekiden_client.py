"""Our own client answers what a server asks.

    python ekiden_client.py MODE http URL < plan
    python ekiden_client.py MODE stdio COMMAND ARGUMENT... < plan

`MODE` is "auto" or "legacy". The plan says what to call and what the user, the model and the client then
answer; what came of each call, and what was asked for it, is printed as one JSON object.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root
from pydantic import BaseModel

from ekiden import Client, ServerError, TooManyRounds

PATIENCE = 20.0
"""Seconds for any single call; the whole run takes one."""

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

    async def elicit(self, params: Any) -> ElicitResult:
        return ElicitResult.model_validate(
            await self._answer("elicitation/create", params.message, params.requested_schema)
        )

    async def elicit_url(self, params: Any) -> ElicitResult:
        return ElicitResult.model_validate(
            await self._answer("elicitation/create", params.message, params.url)
        )

    async def sample(self, params: Any) -> CreateMessageResult:
        text = params.messages[-1].content.text
        return CreateMessageResult.model_validate(
            await self._answer("sampling/createMessage", text, params.max_tokens)
        )

    async def roots(self) -> list[Root]:
        return ListRootsResult.model_validate(await self._answer("roots/list", "roots", None)).roots

    async def _answer(self, method: str, text: str, detail: Any) -> Json:
        self.asked.append({"method": method, "text": text, "detail": detail})
        await asyncio.wait_for(self.together.wait(), PATIENCE)
        return self.answers[text].pop(0)


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
    except ServerError as error:
        return {"error": {"code": error.code, "message": str(error), "data": error.data}}
    except TooManyRounds as error:
        return {"gaveUpAfter": int("".join(filter(str.isdigit, str(error))))}


async def answer_all(client: Client, person: Person, plan: Json) -> Json:
    seen: Json = {}
    for name, case in plan.items():
        person.answers, person.asked = case["answers"], []
        person.together = asyncio.Barrier(case["together"])
        outcome = await perform(client, case["step"])
        left = {text: answers for text, answers in person.answers.items() if answers}
        seen[name] = {**outcome, "asked": person.asked, "left": left}
    return seen


async def main(mode: Any, transport: str, *target: str) -> Json:
    plan = json.load(sys.stdin)
    server = target[0] if transport == "http" else target
    person = Person()
    callbacks: Json = {
        "elicit": person.elicit,
        "elicit_url": person.elicit_url,
        "sample": person.sample,
        "roots": person.roots,
    }
    async with Client(server, mode=mode, timeout=PATIENCE, **callbacks) as client:
        version = client.session.version
        able = await answer_all(client, person, plan["able"])
    async with Client(server, mode=mode, timeout=PATIENCE) as client:
        unable = await answer_all(client, person, plan["unable"])
    return {"version": version, "able": able, "unable": unable, "stray": []}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
