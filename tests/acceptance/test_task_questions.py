"""What a task asks by SEP-2663, as JSON over HTTP; and the client that has to answer it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from ekiden import (
    CannotAnswer,
    Client,
    ClientLimits,
    Context,
    InvalidResult,
    Server,
    TaskHandle,
)
from scripts.ports import free_port
from tests.acceptance.driving import PATIENCE, accept, said, soon
from tests.acceptance.task_wire import (
    DECLARED,
    EXTENSION,
    Message,
    key_for,
    on,
    replica,
    replicas,
    words,
)
from tests.requirements.marks import requirement
from tests.serving import served

Register = Callable[[Server], None]


def tool(handler: Callable[..., Awaitable[Any]]) -> Register:
    """Register one handler that is a task from the start."""

    def register(server: Server) -> None:
        server.tool(task="required")(handler)

    return register


async def three(ctx: Context) -> str:
    """Ask three things at once."""
    answers = await asyncio.gather(*(ctx.elicit(f"{name}?", str) for name in ("a", "b", "c")))
    return " ".join(str(answer.data) for answer in answers)


@requirement("TASK-13")
async def test_all_that_is_open_is_shown_at_once(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(three)) as wire:
        requests = await wire.asked(await wire.start("three"), 3)
        assert sorted(request["params"]["message"] for request in requests.values()) == ["a?", "b?", "c?"]


async def test_every_kind_of_question_can_be_asked_in_a_task(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Ask in every way there is."""
        form, page, poem, roots = await asyncio.gather(
            ctx.elicit("Name?", str),
            ctx.elicit_url("Sign in", "https://example.com/in"),
            ctx.sample("Poem", max_tokens=9),
            ctx.list_roots(),
        )
        return f"{form.data} {page.action} {poem.content.text} {roots[0].uri}"  # type: ignore[union-attr]

    async with replica(tmp_path, tool(handler)) as wire:
        task_id = await wire.start("handler")
        requests = await wire.asked(task_id, 4)
        keys = {request["method"]: key for key, request in requests.items()}
        assert set(keys) == {"elicitation/create", "sampling/createMessage", "roots/list"}
        await wire.update(
            task_id,
            {
                key_for(requests, "Name?"): accept("Ada"),
                key_for(requests, "Sign in"): {"action": "accept"},
                keys["sampling/createMessage"]: said("roses"),
                keys["roots/list"]: {"roots": [{"uri": "file:///work"}]},
            },
        )
        assert words(await wire.until(task_id, "completed")) == "Ada accept roses file:///work"


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]])
@requirement("TASK-21", "TASK-23")
async def test_answers_may_come_one_by_one_in_any_order_on_any_replica(
    tmp_path: Path, order: list[str]
) -> None:
    async with replicas(tmp_path, tool(three)) as (here, there):
        task_id = await here.start("three")
        requests = await there.asked(task_id, 3)
        left = {name: key_for(requests, f"{name}?") for name in "abc"}
        for number, name in enumerate(order):
            wire, other = (here, there) if number % 2 else (there, here)
            await wire.update(task_id, {left.pop(name): accept(name.upper())})
            if left:
                # Those that are left keep their keys; the one that was answered is gone at once.
                assert set((await other.get(task_id))["inputRequests"]) == set(left.values())
        assert words(await here.until(task_id, "completed")) == "A B C"


async def test_all_answers_at_once_from_many_sides(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(three)) as (here, there):
        task_id = await here.start("three")
        requests = await here.asked(task_id, 3)
        answers = [{key: accept(request["params"]["message"][0])} for key, request in requests.items()]
        await asyncio.gather(*(wire.update(task_id, answer) for answer in answers for wire in (here, there)))
        assert words(await there.until(task_id, "completed")) == "a b c"


@requirement("TASK-19", "TASK-20")
async def test_a_key_is_never_used_again_in_the_life_of_a_task(tmp_path: Path) -> None:
    async def handler(ctx: Context) -> str:
        """Ask the same thing again and again, under one name and under none."""
        named = [str((await ctx.elicit("Name?", str)).data) for _ in range(3)]
        while not (await ctx.elicit("Enough?", bool)).data:
            pass
        return " ".join(named)

    async with replica(tmp_path, tool(handler)) as wire:
        task_id = await wire.start("handler")
        seen: list[str] = []
        for answer in ("a", "b", "c", False, False, True):
            (key,) = (await wire.until(task_id, lambda task: new_key(task, seen)))["inputRequests"]
            seen.append(key)
            await wire.update(task_id, {key: accept(answer)})
        assert words(await wire.until(task_id, "completed")) == "a b c"
        assert len(set(seen)) == len(seen) == 6


def new_key(task: Message, seen: list[str]) -> bool:
    return bool(set(task.get("inputRequests", ())) - set(seen))


@pytest.mark.parametrize("key", [None, "age"])
@requirement("TASK-20")
async def test_an_answer_that_breaks_the_rules_is_asked_for_again_under_a_new_key(
    tmp_path: Path, key: str | None
) -> None:
    async def handler(ctx: Context) -> str:
        """Ask for a number."""
        answer = await ctx.elicit("Age?", int, key=key)
        return f"age {answer.data}"

    wrong: list[Any] = [
        {"action": "accept", "content": {"value": "old"}},
        {"action": "accept", "content": {}},
        {"action": "perhaps"},
        "nonsense",
        None,
        said("a sample is no form"),
    ]
    async with replica(tmp_path, tool(handler)) as wire:
        task_id = await wire.start("handler")
        seen: list[str] = []
        for answer in [*wrong, accept(7)]:
            task = await wire.until(task_id, lambda task: new_key(task, seen))
            ((wire_key, request),) = task["inputRequests"].items()
            assert request["params"]["message"] == "Age?"
            seen.append(wire_key)
            await wire.update(task_id, {wire_key: answer})
        assert words(await wire.until(task_id, "completed")) == "age 7"
        assert len(set(seen)) == len(seen)


async def test_a_question_keeps_its_key_however_often_it_is_polled(tmp_path: Path) -> None:
    runs: list[int] = []

    async def handler(ctx: Context) -> str:
        """Ask."""
        runs.append(1)
        return str((await ctx.elicit("Name?", str)).data)

    async with replicas(tmp_path, tool(handler)) as (here, there):
        task_id = await here.start("handler")
        first = await here.asked(task_id)
        for wire in (here, there) * 5:
            assert await wire.asked(task_id) == first
        assert len(runs) == 1, "a poll reads, it does not run"


@pytest.mark.parametrize(
    "responses", [{"unknown": {"action": "accept"}}, {"unknown": None}, {"": 7}, {"x" * 5000: []}, {}]
)
@requirement("TASK-21", "TASK-22")
async def test_answers_to_what_is_not_asked_are_acknowledged_and_ignored(
    tmp_path: Path, responses: Message
) -> None:
    async with replica(tmp_path, tool(three)) as wire:
        task_id = await wire.start("three")
        before = await wire.asked(task_id, 3)
        await wire.update(task_id, responses)
        assert await wire.asked(task_id, 3) == before


@requirement("TASK-22")
async def test_a_second_answer_to_a_question_is_acknowledged_and_ignored(tmp_path: Path) -> None:
    async with replicas(tmp_path, tool(three)) as (here, there):
        task_id = await here.start("three")
        requests = await here.asked(task_id, 3)
        first = key_for(requests, "a?")
        await here.update(task_id, {first: accept("first")})
        await there.update(task_id, {first: accept("second")})
        await here.update(task_id, {key_for(requests, f"{name}?"): accept(name) for name in "bc"})
        assert words(await there.until(task_id, "completed")) == "first b c"


@pytest.mark.parametrize("responses", [None, [], "yes", 7])
async def test_answers_that_are_no_object_are_an_invalid_parameter(tmp_path: Path, responses: Any) -> None:
    async with replica(tmp_path, tool(three)) as wire:
        task_id = await wire.start("three")
        error = await wire.error("tasks/update", {"taskId": task_id, "inputResponses": responses})
        assert error["code"] == -32602
        await wire.asked(task_id, 3)


async def test_answers_that_are_missing_altogether_are_an_invalid_parameter(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(three)) as wire:
        task_id = await wire.start("three")
        assert (await wire.error("tasks/update", {"taskId": task_id}))["code"] == -32602


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_reaches_the_handler(tmp_path: Path, action: str) -> None:
    async def handler(ctx: Context) -> str:
        """Ask."""
        return (await ctx.elicit("Name?", str)).action

    async with replica(tmp_path, tool(handler)) as wire:
        task_id = await wire.start("handler")
        (key,) = await wire.asked(task_id)
        await wire.update(task_id, {key: {"action": action}})
        assert words(await wire.until(task_id, "completed")) == action


async def test_an_answer_that_comes_while_the_handler_runs_is_delivered_to_it(tmp_path: Path) -> None:
    begun: list[str] = []
    answered = asyncio.Event()

    async def handler(ctx: Context) -> str:
        """Ask beside work that goes on."""
        begun.append("leg")

        async def asking() -> str:
            answer = await ctx.elicit("Name?", str)
            answered.set()
            return str(answer.data)

        async def working() -> None:
            await answered.wait()

        name, _ = await asyncio.gather(asking(), ctx.step(working))
        return name

    async with replicas(tmp_path, tool(handler)) as (here, there):
        task_id = await here.start("handler")
        (key,) = await there.asked(task_id)
        await there.update(task_id, {key: accept("Ada")})
        assert words(await here.until(task_id, "completed")) == "Ada"
        assert begun == ["leg"], "no second run was needed"


@pytest.mark.parametrize(
    ("missing", "required"),
    [
        ("elicitation", {"elicitation": {"form": {}}}),
        ("sampling", {"sampling": {}}),
        ("roots", {"roots": {}}),
    ],
)
async def test_what_the_creating_request_did_not_declare_is_not_asked_in_its_task(
    tmp_path: Path, missing: str, required: Message
) -> None:
    async def handler(kind: str, ctx: Context) -> str:
        """Ask one kind of thing."""
        if kind == "elicitation":
            await ctx.elicit("Name?", str)
        elif kind == "sampling":
            await ctx.sample("Poem", max_tokens=9)
        else:
            await ctx.list_roots()
        return "asked"

    less = {name: value for name, value in DECLARED.items() if name != missing}
    async with replica(tmp_path, tool(handler)) as wire:
        params = {"name": "handler", "arguments": {"kind": missing}}
        created = await wire.result("tools/call", params, less)
        failed = await wire.until(created["taskId"], "failed")
        assert failed["error"]["code"] == -32021
        assert failed["error"]["data"] == {"requiredCapabilities": required}
        assert "inputRequests" not in failed


async def test_no_request_of_the_servers_own_is_ever_sent(tmp_path: Path) -> None:
    async with replica(tmp_path, tool(three)) as wire:
        task_id = await wire.start("three")
        async with wire.listening(task_id) as stream:
            await stream.next()
            requests = (await stream.until("input_required"))["inputRequests"]
            while len(requests) < 3:
                requests = (await stream.until("input_required"))["inputRequests"]
            await wire.update(task_id, {key: accept("x") for key in requests})
            await stream.until("completed")
            assert all("id" not in message for message in stream.said)


# Our client, as the other side


@requirement("TASK-53", "TASK-55")
async def test_the_client_asks_once_for_each_key_however_often_it_polls(tmp_path: Path) -> None:
    asked: list[str] = []
    release = asyncio.Event()

    async def elicit(params: Any) -> ElicitResult:
        asked.append(params.message)
        await release.wait()
        return ElicitResult(action="accept", content={"value": params.message[0]})

    async with replica(tmp_path, tool(three), principal=None) as wire:
        async with Client(wire.base + "/mcp", elicit=elicit) as client:
            call = asyncio.create_task(client.call_tool("three"))
            async with asyncio.timeout(PATIENCE):
                while len(asked) < 3:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # Several poll intervals.
            assert sorted(asked) == ["a?", "b?", "c?"]
            release.set()
            result = await soon(call)
        assert result.content[0].text == "a b c"  # type: ignore[union-attr]
        assert sorted(asked) == ["a?", "b?", "c?"]


class Script:
    """A server of somebody else, whose one tool is a task that goes as told."""

    def __init__(self, *states: Message, poll: int = 10) -> None:
        self._states = list(states)
        self._poll = poll
        self.got: list[Message] = []

    def _task(self, kind: str, state: Message) -> Message:
        return {
            "resultType": kind,
            "taskId": "t-1",
            "createdAt": "2026-07-28T10:00:00Z",
            "lastUpdatedAt": "2026-07-28T10:00:00Z",
            "ttlMs": None,
            "pollIntervalMs": self._poll,
            **state,
        }

    def _answer(self, method: str) -> Message | None:
        if method == "server/discover":
            capabilities = {"tools": {}, "extensions": {EXTENSION: {}}}
            return {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "serverInfo": {"name": "script", "version": "1"},
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "tools/call":
            return self._task("task", {"status": "working"})
        if method == "tasks/get":
            state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
            return self._task("complete", state)
        return {"resultType": "complete"} if method in {"tasks/update", "tasks/cancel"} else None

    async def endpoint(self, request: HttpRequest) -> JSONResponse:
        message = json.loads(await request.body())
        self.got.append({"headers": dict(request.headers), **message})
        answer = self._answer(message["method"])
        head = {"jsonrpc": "2.0", "id": message.get("id")}
        if answer is None:
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({**head, "error": error}, status_code=404)
        return JSONResponse({**head, "result": answer})

    def application(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self.endpoint, methods=["POST"])])

    def of(self, method: str) -> list[Message]:
        return [message for message in self.got if message["method"] == method]


def asking(*keys: str) -> Message:
    form = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
    params = {"mode": "form", "message": "Name?", "requestedSchema": form}
    requests = {key: {"method": "elicitation/create", "params": params} for key in keys}
    return {"status": "input_required", "inputRequests": requests}


ENDED = {
    "status": "completed",
    "result": {"content": [{"type": "text", "text": "ended"}], "isError": False},
}


async def filled(params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": "Ada"})


@requirement("TASK-55", "TASK-56")
async def test_the_client_answers_a_key_once_though_a_slow_server_shows_it_again() -> None:
    script = Script(asking("k1"), asking("k1"), asking("k1", "k2"), {"status": "working"}, ENDED)
    async with served(script.application()) as base, Client(base + "/mcp", elicit=filled) as client:
        result = await soon(client.call_tool("slow"))
    assert result.content[0].text == "ended"  # type: ignore[union-attr]
    answered = [set(message["params"]["inputResponses"]) for message in script.of("tasks/update")]
    assert answered == [{"k1"}, {"k2"}]


@requirement("TASK-58")
async def test_the_client_names_the_task_in_the_routing_header_and_declares_tasks_each_time() -> None:
    script = Script(asking("k1"), ENDED)
    async with served(script.application()) as base, Client(base + "/mcp", elicit=filled) as client:
        await soon(client.call_tool("slow"))
        handle = await soon(client.start_tool("slow"))
        assert isinstance(handle, TaskHandle)
        await soon(handle.cancel())
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        messages = script.of(method)
        assert messages
        for message in messages:
            assert message["headers"]["mcp-name"] == "t-1"
            assert message["headers"]["mcp-method"] == method
            declared = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert declared["extensions"][EXTENSION] == {}


async def test_a_task_that_is_stuck_is_noticed_by_the_client() -> None:
    """It shows what was answered long ago, and nothing else, for ever."""
    script = Script(asking("k1"))
    limits = ClientLimits(stuck_seconds=0.3)
    async with (
        served(script.application()) as base,
        Client(base + "/mcp", elicit=filled, limits=limits) as client,
    ):
        with pytest.raises(InvalidResult, match="stuck"):
            await soon(client.call_tool("slow"))
    assert len(script.of("tasks/update")) == 1


@requirement("TASK-54")
async def test_a_task_whose_questions_nobody_can_answer_is_cancelled_by_the_client() -> None:
    script = Script(asking("k1"))
    async with served(script.application()) as base, Client(base + "/mcp") as client:
        with pytest.raises(CannotAnswer):
            await soon(client.call_tool("slow"))
    assert script.of("tasks/update") == []
    assert [message["params"]["taskId"] for message in script.of("tasks/cancel")] == ["t-1"]


@requirement("TASK-52")
async def test_the_client_polls_as_seldom_as_it_is_asked_to() -> None:
    script = Script({"status": "working"}, {"status": "working"}, ENDED, poll=300)
    loop = asyncio.get_running_loop()
    async with served(script.application()) as base, Client(base + "/mcp") as client:
        begun = loop.time()
        await soon(client.call_tool("slow"))
        took = loop.time() - begun
    assert len(script.of("tasks/get")) == 3
    assert took >= 0.6, "two whole intervals lie between three polls"


@requirement("TASK-51")
async def test_a_task_that_answers_something_other_than_a_call_of_a_tool_is_invalid() -> None:
    class Wrong(Script):
        def _answer(self, method: str) -> Message | None:
            if method == "prompts/get":
                return super()._answer("tools/call")
            return super()._answer(method)

    script = Wrong(ENDED)
    async with served(script.application()) as base, Client(base + "/mcp") as client:
        with pytest.raises(InvalidResult):
            await soon(client.get_prompt("greeting"))
    assert script.of("tasks/get") == []


@requirement("TASK-50")
async def test_the_client_takes_a_result_and_a_task_alike() -> None:
    class AtOnce(Script):
        def _answer(self, method: str) -> Message | None:
            at_once = {"resultType": "complete", **ENDED["result"]}
            return at_once if method == "tools/call" else super()._answer(method)

    for script in (AtOnce(ENDED), Script(ENDED)):
        async with served(script.application()) as base, Client(base + "/mcp") as client:
            result = await soon(client.call_tool("either"))
        assert result.content[0].text == "ended"  # type: ignore[union-attr]
        assert len(script.of("tools/call")) == 1


@requirement("TASK-57")
async def test_a_call_that_is_given_up_cancels_its_task_by_name() -> None:
    script = Script({"status": "working"})
    async with served(script.application()) as base, Client(base + "/mcp") as client:
        call = asyncio.create_task(client.call_tool("slow"))
        async with asyncio.timeout(PATIENCE):
            while not script.of("tasks/get"):
                await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(call)
    assert [message["params"]["taskId"] for message in script.of("tasks/cancel")] == ["t-1"]
    assert script.of("notifications/cancelled") == []


@requirement("TASK-54")
async def test_a_question_of_a_task_reaches_the_callback_that_any_question_reaches() -> None:
    seen: list[Any] = []

    async def elicit(params: Any) -> ElicitResult:
        seen.append(params)
        return ElicitResult(action="decline")

    script = Script(asking("k1"), ENDED)
    async with served(script.application()) as base, Client(base + "/mcp", elicit=elicit) as client:
        await soon(client.call_tool("slow"))
    (params,) = seen
    assert params.message == "Name?"
    assert params.requested_schema["required"] == ["value"]
    (update,) = script.of("tasks/update")
    assert update["params"]["inputResponses"] == {"k1": {"action": "decline"}}


async def test_an_answer_outlasts_a_restart_of_the_server(tmp_path: Path) -> None:
    port = free_port()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def elicit(params: Any) -> ElicitResult:
        asked.set()
        await answer.wait()
        return ElicitResult(action="accept", content={"value": params.message[0]})

    def serving() -> Any:
        return served(on(tmp_path / "tasks.db", tool(three), principal=None), port=port)

    async with serving() as base:
        client = await Client(base + "/mcp", elicit=elicit).__aenter__()
        call = asyncio.create_task(client.call_tool("three"))
        await soon(asked.wait())
    answer.set()  # Nobody is there to take it.
    await asyncio.sleep(0.3)
    async with serving():
        result = await soon(call)
        await client.__aexit__(None, None, None)
    assert result.content[0].text == "a b c"  # type: ignore[union-attr]
