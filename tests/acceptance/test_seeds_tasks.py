"""The tasks that the seeds print, as whole messages over HTTP: in the draft's form and in today's.

Ids, times and the words of `statusMessage` are masked; all else is compared to the letter. Two things differ
from the draft on purpose. A key is never used twice in a task's life, so `echo_input` goes out as its first
attempt, `echo_input.1`. And `isError: false` is left out, for that is what its absence says.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ekiden import Context, Server, TaskLimits
from tests.acceptance.driving import KEY, PATIENCE
from tests.acceptance.task_wire import Message, Wire, replica
from tests.eras.old_client import OldClient, old_client
from tests.serving import served

DRAFT = "2026-06-XX"
LIMITS = TaskLimits(ttl_seconds=60, poll_seconds=0.1)


class Echo(BaseModel):
    input: str


def echo_tool(server: Server) -> None:
    @server.tool(task="optional")
    async def echo(ctx: Context) -> str:
        """Echo what the user says."""
        answer = await ctx.elicit("Please provide the input string to echo back", Echo, key="echo_input")
        return f"Echo: {answer.data.input}" if answer.action == "accept" else "Echo: nothing"


ASKED: Message = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Please provide the input string to echo back",
        "requestedSchema": {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        },
    },
}
HELLO: Message = {"action": "accept", "content": {"input": "Hello World!"}}
UNEXPECTED: Message = {
    "action": "accept",
    "content": {"not_requested_parameter": "Information the server did not request."},
}


def masked(message: Any, task_id: str) -> Any:
    """A message without what is new each time: the task's id, its times, the words of its status."""
    if isinstance(message, list):
        return [masked(item, task_id) for item in message]
    if not isinstance(message, dict):
        return "<task>" if message == task_id else message
    shown: Message = {}
    for name, value in message.items():
        if name in {"createdAt", "lastUpdatedAt"}:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value), value
            shown[name] = "<time>"
        elif name == "statusMessage":
            assert isinstance(value, str)
        else:
            shown[name] = masked(value, task_id)
    return shown


# The draft


RELATED = {"io.modelcontextprotocol/related-task": {"taskId": "<task>"}}


def draft_task(status: str) -> Message:
    return {
        "taskId": "<task>",
        "status": status,
        "createdAt": "<time>",
        "lastUpdatedAt": "<time>",
        "ttl": 60000,
        "pollInterval": 100,
    }


def response(number: int, **result: Any) -> Message:
    return {"jsonrpc": "2.0", "id": number, "result": result}


class Draft:
    """Sends requests as the draft prints them."""

    def __init__(self, http: OldClient) -> None:
        self._http = http
        self.task_id = ""

    async def say(self, number: int, method: str, params: Message) -> Message:
        params = {name: self._named(value) for name, value in params.items()}
        answer = await self._http.answered(
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        )
        if method == "tools/call":
            self.task_id = answer["result"]["task"]["taskId"]
        shown: Message = masked(answer, self.task_id)
        return shown

    async def raw(self, number: int, params: Message) -> list[Message]:
        """All that a call brings, unmasked."""
        return await self._http.talk(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        )

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._named(item) for name, item in value.items()}
        return self.task_id if value == "<task>" else value

    async def until(self, number: int, status: str) -> Message:
        """Poll as the draft does, until the task is there; the last answer."""
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self.say(number, "tasks/get", {"taskId": "<task>"})
                if answer["result"]["status"] == status:
                    return answer
                assert answer == response(number, **draft_task("working"))
                await asyncio.sleep(0.01)


@asynccontextmanager
async def draft(folder: Path, register: Callable[[Server], None] = echo_tool) -> AsyncGenerator[Draft, None]:
    server = Server(
        "seeds",
        version="1.0",
        keys=[KEY],
        store=f"sqlite:///{folder / 'tasks.db'}",
        tasks=LIMITS,
        experimental_protocol_version=DRAFT,
    )
    register(server)
    async with served(server) as base, old_client(base, version=DRAFT) as http:
        yield Draft(http)


CALL: Message = {"name": "echo", "task": {"ttl": 60000}}


async def test_the_echo_task_of_the_draft(tmp_path: Path) -> None:
    async with draft(tmp_path) as client:
        assert await client.say(1, "tools/call", CALL) == response(1, task=draft_task("working"))
        assert await client.until(2, "input_required") == response(2, **draft_task("input_required"))
        asked = response(3, result_type="incomplete", inputRequests={"echo_input.1": ASKED}, _meta=RELATED)
        assert await client.say(3, "tasks/result", {"taskId": "<task>"}) == asked
        answer = {"inputResponses": {"echo_input.1": HELLO}, "_meta": RELATED}
        assert await client.say(4, "tasks/input_response", answer) == response(4, _meta=RELATED)
        assert await client.until(5, "completed") == response(5, **draft_task("completed"))
        content = [{"type": "text", "text": "Echo: Hello World!"}]
        ended = response(6, content=content, _meta=RELATED)
        assert await client.say(6, "tasks/result", {"taskId": "<task>"}) == ended


async def test_the_echo_task_of_the_draft_with_unexpected_answers(tmp_path: Path) -> None:
    async with draft(tmp_path) as client:
        await client.say(1, "tools/call", CALL)
        await client.until(2, "input_required")
        wrong = {"inputResponses": {"echo_input.1": UNEXPECTED}, "_meta": RELATED}
        assert await client.say(4, "tasks/input_response", wrong) == response(4, _meta=RELATED)
        # `tasks/result` waits until the answer was looked at, and then asks anew.
        asked = response(5, result_type="incomplete", inputRequests={"echo_input.2": ASKED}, _meta=RELATED)
        assert await client.say(5, "tasks/result", {"taskId": "<task>"}) == asked
        waiting = await client.say(6, "tasks/get", {"taskId": "<task>"})
        assert waiting == response(6, **draft_task("input_required"))
        right = {"inputResponses": {"echo_input.2": HELLO}, "_meta": RELATED}
        assert await client.say(7, "tasks/input_response", right) == response(7, _meta=RELATED)
        await client.until(8, "completed")


def vm_tool(server: Server) -> None:
    """The guide's tool: confirm the costs by a round, then go on as a task."""

    @server.tool(name="provision-vm", task="deferred")
    async def provision_vm(vm_name: str, ctx: Context) -> str:
        """Provisions a VM with user confirmation."""
        costs = f"Provision VM '{vm_name}'? This will incur costs."
        if (await ctx.elicit(costs, Nothing, key="costs")).action != "accept":
            return "Cancelled by user."
        await ctx.background()
        if (await ctx.elicit("Start it, too?", Nothing, key="start")).action != "accept":
            return f"VM '{vm_name}' provisioned."
        return f"VM '{vm_name}' provisioned successfully."


class Nothing(BaseModel):
    """An empty form: to accept it is the answer."""


def confirm(message: str) -> Message:
    form = {"type": "object", "properties": {}}
    params = {"mode": "form", "message": message, "requestedSchema": form}
    return {"method": "elicitation/create", "params": params}


COSTS = confirm("Provision VM 'web'? This will incur costs.")
VM: Message = {"name": "provision-vm", "arguments": {"vm_name": "web"}}
YES: Message = {"action": "accept", "content": {}}


async def test_the_machine_of_the_guide_by_the_draft(tmp_path: Path) -> None:
    async with draft(tmp_path, vm_tool) as client:
        params = {**VM, "task": {"ttl": 60000}}
        (first,) = await client.raw(1, params)
        state = first["result"].pop("requestState")
        assert first == response(1, result_type="incomplete", inputRequests={"costs": COSTS})
        params |= {"inputResponses": {"costs": YES}, "requestState": state}
        assert await client.say(2, "tools/call", params) == response(2, task=draft_task("working"))
        await client.until(3, "input_required")
        asked = await client.say(4, "tasks/result", {"taskId": "<task>"})
        assert asked == response(
            4, result_type="incomplete", inputRequests={"start.1": confirm("Start it, too?")}, _meta=RELATED
        )
        answer = {"inputResponses": {"start.1": YES}, "_meta": RELATED}
        assert await client.say(5, "tasks/input_response", answer) == response(5, _meta=RELATED)
        await client.until(6, "completed")
        content = [{"type": "text", "text": "VM 'web' provisioned successfully."}]
        ended = await client.say(7, "tasks/result", {"taskId": "<task>"})
        assert ended == response(7, content=content, _meta=RELATED)


async def test_the_machine_of_the_guide_need_not_become_a_task_by_the_draft(tmp_path: Path) -> None:
    async with draft(tmp_path, vm_tool) as client:
        for more in ({"task": {}}, {}):
            (first,) = await client.raw(1, {**VM, **more})
            state = first["result"]["requestState"]
            declined = {"inputResponses": {"costs": {"action": "decline"}}, "requestState": state}
            (second,) = await client.raw(2, {**VM, **more, **declined})
            assert second == response(2, content=[{"type": "text", "text": "Cancelled by user."}])


async def test_without_task_metadata_the_machine_is_a_call_of_rounds_by_the_draft(tmp_path: Path) -> None:
    async with draft(tmp_path, vm_tool) as client:
        params: Message = VM
        for key in ("costs", "start"):
            (asked,) = await client.raw(1, params)
            assert list(asked["result"]["inputRequests"]) == [key]
            state = asked["result"]["requestState"]
            params = {**VM, "inputResponses": {key: YES}, "requestState": state}
        (ended,) = await client.raw(2, params)
        content = [{"type": "text", "text": "VM 'web' provisioned successfully."}]
        assert ended == response(2, content=content)


# Today's form


META = {"io.modelcontextprotocol/serverInfo": {"name": "tasks", "version": "1"}}


def todays_task(status: str, **more: Any) -> Message:
    return {
        "resultType": "complete",
        "taskId": "<task>",
        "status": status,
        "createdAt": "<time>",
        "lastUpdatedAt": "<time>",
        "ttlMs": 60000,
        "pollIntervalMs": 100,
        **more,
        "_meta": META,
    }


class Today:
    """Sends the same by SEP-2663."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.task_id = ""

    async def say(self, method: str, **params: Any) -> Message:
        """The whole result, masked."""
        named = {**params, "taskId": self.task_id} if method != "tools/call" else params
        message = self._wire.message(method, named)
        reply = (await self._wire.post(message)).json()
        assert set(reply) == {"jsonrpc", "id", "result"}, reply
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", message["id"])
        if method == "tools/call":
            self.task_id = reply["result"]["taskId"]
        result: Message = masked(reply["result"], self.task_id)
        return result

    async def until(self, status: str) -> Message:
        async with asyncio.timeout(PATIENCE):
            while (task := await self.say("tasks/get"))["status"] != status:
                assert task == todays_task("working")
                await asyncio.sleep(0.01)
        return task


ACKNOWLEDGED = {"resultType": "complete", "_meta": META}


async def test_the_echo_task_of_today(tmp_path: Path) -> None:
    async with replica(tmp_path, echo_tool, tasks=LIMITS) as wire:
        client = Today(wire)
        created = await client.say("tools/call", name="echo", arguments={})
        assert created == {**todays_task("working"), "resultType": "task"}
        asked = todays_task("input_required", inputRequests={"echo_input.1": ASKED})
        assert await client.until("input_required") == asked
        assert await client.say("tasks/get") == asked, "a snapshot: the same again, until it is answered"
        answered = await client.say("tasks/update", inputResponses={"echo_input.1": HELLO})
        assert answered == ACKNOWLEDGED
        result = {"content": [{"type": "text", "text": "Echo: Hello World!"}]}
        assert await client.until("completed") == todays_task("completed", result=result)


async def test_the_echo_task_of_today_with_unexpected_answers(tmp_path: Path) -> None:
    async with replica(tmp_path, echo_tool, tasks=LIMITS) as wire:
        client = Today(wire)
        await client.say("tools/call", name="echo", arguments={})
        await client.until("input_required")
        answered = await client.say("tasks/update", inputResponses={"echo_input.1": UNEXPECTED})
        assert answered == ACKNOWLEDGED
        asked = todays_task("input_required", inputRequests={"echo_input.2": ASKED})
        assert await client.until("input_required") == asked
        await client.say("tasks/update", inputResponses={"echo_input.2": HELLO})
        result = {"content": [{"type": "text", "text": "Echo: Hello World!"}]}
        assert await client.until("completed") == todays_task("completed", result=result)


async def test_the_machine_of_the_guide_today(tmp_path: Path) -> None:
    async with replica(tmp_path, vm_tool, tasks=LIMITS) as wire:
        asked = await wire.call(**VM)
        state = asked.pop("requestState")
        assert asked == {"resultType": "input_required", "inputRequests": {"costs": COSTS}}
        client = Today(wire)
        retry = {**VM, "inputResponses": {"costs": YES}, "requestState": state}
        assert await client.say("tools/call", **retry) == {**todays_task("working"), "resultType": "task"}
        start = {"start.1": confirm("Start it, too?")}
        assert await client.until("input_required") == todays_task("input_required", inputRequests=start)
        assert await client.say("tasks/update", inputResponses={"start.1": YES}) == ACKNOWLEDGED
        result = {"content": [{"type": "text", "text": "VM 'web' provisioned successfully."}]}
        assert await client.until("completed") == todays_task("completed", result=result)
