"""Questions that a client of 2025-11-25 answers as tasks of its own."""

import asyncio
from typing import Any

import pytest

from ekiden import Context, InputRequired, Server, SessionLimits
from tests.acceptance.driving import KEY
from tests.eras.old_client import (
    EVERYTHING,
    Message,
    OldClient,
    accepted,
    call,
    events,
    notification,
    old_client,
    result,
    text,
)
from tests.serving import served

TASKS = {
    "cancel": {},
    "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}},
}
WITH_TASKS = {**EVERYTHING, "tasks": TASKS}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m", "stopReason": "endTurn"}


def asking(**limits: Any) -> Server:
    """A server whose tools ask."""
    server = Server("asking", keys=[KEY], sessions=SessionLimits(**limits))

    @server.tool
    async def elicit(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return str(answer.data) if answer.action == "accept" else answer.action

    @server.tool
    async def sample(ctx: Context) -> str:
        said: Any = await ctx.sample("Say hi", max_tokens=5)
        return str(said.content_as_list[0].text)

    @server.tool
    async def roots(ctx: Context) -> str:
        return str(len(await ctx.list_roots()))

    @server.tool
    async def manual(ctx: Context) -> InputRequired | str:
        if "sure" in ctx.input_responses:
            return "asked by hand"
        schema = {"type": "object", "properties": {}}
        params = {"message": "Sure?", "requestedSchema": schema}
        return InputRequired({"sure": {"method": "elicitation/create", "params": params}})

    return server


class TaskedClient:
    """Answers as a client whose answers are tasks; `asked` is what the server sent, in order."""

    def __init__(self, answer: Message, *statuses: str, poll: int | None = 50) -> None:
        self.answer = answer
        self.statuses = list(statuses)
        self.asked: list[Message] = []
        self.poll = poll

    def __call__(self, asked: Message) -> Message:
        self.asked.append(asked)
        if asked["method"] == "tasks/result":
            return {"jsonrpc": "2.0", "id": asked["id"], **self.answer}
        task = {"taskId": "t-1", "status": self.statuses.pop(0), "ttl": None, "pollInterval": self.poll}
        return result(asked["id"], **(task if asked["method"] == "tasks/get" else {"task": task}))

    @property
    def methods(self) -> list[str]:
        return [asked["method"] for asked in self.asked]


async def outcome(
    tool: str, client: TaskedClient, capabilities: Message = WITH_TASKS, **limits: Any
) -> Message:
    """The response to a call of a client that answers so."""
    async with served(asking(**limits)) as base, old_client(base, capabilities=capabilities) as old:
        return await old.answered(call(tool), *[client] * 9)


YES = {"result": {"action": "accept", "content": {"value": True}}}


@pytest.mark.parametrize(
    ("tool", "answer", "expected"),
    [
        ("elicit", YES, "True"),
        ("sample", {"result": SAID}, "Hi"),
        ("manual", YES, "asked by hand"),
        ("elicit", {"result": {"action": "decline"}}, "decline"),
    ],
)
async def test_the_answer_is_fetched_when_the_clients_task_has_ended(
    tool: str, answer: Message, expected: str
) -> None:
    client = TaskedClient(answer, "working", "working", "completed")
    assert text(await outcome(tool, client)) == expected
    asked = client.asked[0]
    assert asked["method"] == ("sampling/createMessage" if tool == "sample" else "elicitation/create")
    assert asked["params"]["task"] == {"ttl": 600_000}
    assert client.methods[1:] == ["tasks/get", "tasks/get", "tasks/result"]
    assert [message["params"] for message in client.asked[1:]] == [{"taskId": "t-1"}] * 3


async def test_a_task_that_has_ended_already_is_not_looked_at() -> None:
    client = TaskedClient(YES, "completed")
    assert text(await outcome("elicit", client)) == "True"
    assert client.methods == ["elicitation/create", "tasks/result"]


async def test_a_task_that_needs_input_of_its_own_is_waited_for_at_its_result() -> None:
    client = TaskedClient(YES, "input_required")
    assert text(await outcome("elicit", client)) == "True"
    assert client.methods == ["elicitation/create", "tasks/result"]


async def test_a_client_that_answers_at_once_all_the_same_is_understood() -> None:
    async with served(asking()) as base, old_client(base, capabilities=WITH_TASKS) as old:
        answered = await old.answered(call("elicit"), lambda asked: accepted(asked["id"], value=True))
        assert text(answered) == "True"


@pytest.mark.parametrize(
    ("tool", "declared"),
    [
        ("elicit", {}),
        ("elicit", {"tasks": {}}),
        ("elicit", {"tasks": {"requests": {"sampling": {"createMessage": {}}}}}),
        ("sample", {"tasks": {"requests": {"elicitation": {"create": {}}}}}),
        ("roots", {"tasks": TASKS}),
    ],
)
async def test_only_what_the_client_declared_is_asked_as_a_task(tool: str, declared: Message) -> None:
    seen: list[Message] = []

    def answer(asked: Message) -> Message:
        seen.append(asked)
        given: dict[str, Message] = {"elicit": YES["result"], "sample": SAID, "roots": {"roots": []}}
        return result(asked["id"], **given[tool])

    capabilities = {**EVERYTHING, **declared}
    async with served(asking()) as base, old_client(base, capabilities=capabilities) as old:
        assert "isError" not in (await old.answered(call(tool), answer))["result"]
    (asked,) = seen
    assert "task" not in asked.get("params", {})


async def test_a_client_of_june_is_never_asked_as_a_task() -> None:
    seen: list[Message] = []

    def answer(asked: Message) -> Message:
        seen.append(asked)
        return accepted(asked["id"], value=True)

    async with (
        served(asking()) as base,
        old_client(base, version="2025-06-18", capabilities=WITH_TASKS) as old,
    ):
        assert text(await old.answered(call("elicit"), answer)) == "True"
    assert "task" not in seen[0]["params"]


@pytest.mark.parametrize(
    ("answer", "statuses", "words"),
    [
        (
            {"error": {"code": -32000, "message": "no model"}},
            ["failed"],
            "could not answer tasks/result: no model",
        ),
        (YES, ["working", "cancelled"], "The client cancelled elicitation/create"),
    ],
)
async def test_a_task_that_fails_is_a_question_without_an_answer(
    answer: Message, statuses: list[str], words: str
) -> None:
    response = await outcome("elicit", TaskedClient(answer, *statuses))
    assert response["result"]["isError"] is True
    assert words in response["result"]["content"][0]["text"]


async def test_a_task_that_takes_too_long_is_cancelled_at_the_client() -> None:
    client = TaskedClient(YES, *["working"] * 50)
    response = await outcome("elicit", client, ask_seconds=0.3)
    assert "did not answer elicitation/create within 0.3 seconds" in response["result"]["content"][0]["text"]


async def test_a_call_that_is_cancelled_cancels_the_clients_task() -> None:
    client = TaskedClient(YES, *["working"] * 50, poll=20_000)
    async with served(asking()) as base, old_client(base, capabilities=WITH_TASKS) as old:
        sent = await _methods_until_cancelled(old, client)
    assert sent[:1] == ["elicitation/create"]
    assert "tasks/cancel" in sent


async def _methods_until_cancelled(old: OldClient, client: TaskedClient) -> list[str]:
    """Start a call, cancel it when its question has become a task, and read what the server sent."""
    sent: list[str] = []
    async with asyncio.timeout(10), old.posting(call("elicit", id=5)) as response:
        async for event in events(response):
            if event.message is None or "method" not in event.message:
                continue
            sent.append(event.message["method"])
            if event.message["method"] == "elicitation/create":
                assert (await old.send(client(event.message))).status_code == 202
                assert (
                    await old.send(notification("notifications/cancelled", requestId=5))
                ).status_code == 202
    return sent
