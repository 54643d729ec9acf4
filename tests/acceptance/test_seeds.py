"""The examples that this feature grew from, as whole messages on the wire.

From the SEP draft, the C# SDK's guide and pull request, the mcpkit tutorial, and the spec's page.
States are masked; everything else is compared to the letter, in the spelling of 2026-07-28.
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic import BaseModel, Field

from ekiden import Context, InputRequired, Server
from tests.acceptance.driving import EVERYTHING, KEY, meta, said, soon

Message = dict[str, Any]


class Conversation:
    """Sends requests as the examples print them, and gives responses with the state masked."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.state: str | None = None
        """The state of the last response."""

    async def say(self, request_id: int, name: str, arguments: Message | None = None, **more: Any) -> Message:
        params: Message = {"name": name, **more, "_meta": meta(EVERYTHING)}
        if arguments is not None:
            params["arguments"] = arguments
        await self._channel.send(
            {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        )
        reply: Message = await soon(self._channel.receive())
        result = reply.get("result", {})
        self.state = result.get("requestState")
        if "requestState" in result:
            assert isinstance(self.state, str)
            assert self.state
            result["requestState"] = "<state>"
        return reply

    async def go_on(
        self, request_id: int, name: str, arguments: Message | None = None, /, **responses: Any
    ) -> Message:
        """The retry: the answers, and the state if there was one."""
        more: Message = {"inputResponses": responses} if responses else {}
        if self.state is not None:
            more["requestState"] = self.state
        return await self.say(request_id, name, arguments, **more)


@asynccontextmanager
async def talk(server: Server) -> AsyncGenerator[Conversation, None]:
    async with server.connect() as channel:
        yield Conversation(channel)


def new_server() -> Server:
    return Server("seeds", version="1.0", keys=[KEY])


META = {"io.modelcontextprotocol/serverInfo": {"name": "seeds", "version": "1.0"}}


def interim(request_id: int, requests: Message | None, *, state: bool) -> Message:
    result: Message = {"resultType": "input_required", "_meta": META}
    if requests is not None:
        result["inputRequests"] = requests
    if state:
        result["requestState"] = "<state>"
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def complete(request_id: int, text: str) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "result": {"resultType": "complete", "content": [{"type": "text", "text": text}], "_meta": META},
    }


def content_of(ctx: Context, key: str) -> Message | None:
    """What was filled in under a key, by the manual way."""
    answer: Any = ctx.input_responses.get(key)
    return None if answer is None or answer.action != "accept" else (answer.content or {})


GITHUB_LOGIN: Message = {
    "method": "elicitation/create",
    "params": {
        "message": "Please provide your GitHub username",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}
OCTOCAT: Message = {"action": "accept", "content": {"name": "octocat"}}
NEW_YORK = {"location": "New York"}
WEATHER = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"


# The SEP draft: the basic flow


def weather_by_hand(state: str | None) -> Server:
    server = new_server()

    @server.tool
    async def get_weather(location: str, ctx: Context) -> Any:
        if content_of(ctx, "github_login") is None:
            raise InputRequired({"github_login": GITHUB_LOGIN}, state)
        assert ctx.request_state == state
        return f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy"

    return server


async def test_the_weather_tool() -> None:
    async with talk(weather_by_hand("foo")) as client:
        assert await client.say(2, "get_weather", NEW_YORK) == interim(
            2, {"github_login": GITHUB_LOGIN}, state=True
        )
        assert client.state != "foo"
        assert await client.go_on(3, "get_weather", NEW_YORK, github_login=OCTOCAT) == complete(3, WEATHER)


async def test_the_weather_tool_in_one_straight_line() -> None:
    server = new_server()

    class Login(BaseModel):
        name: str

    @server.tool
    async def get_weather(location: str, ctx: Context) -> str:
        await ctx.elicit("Please provide your GitHub username", Login, key="github_login")
        return f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy"

    asked = {**GITHUB_LOGIN, "params": {"mode": "form", **GITHUB_LOGIN["params"]}}
    async with talk(server) as client:
        assert await client.say(2, "get_weather", NEW_YORK) == interim(2, {"github_login": asked}, state=True)
        assert await client.go_on(3, "get_weather", NEW_YORK, github_login=OCTOCAT) == complete(3, WEATHER)


async def test_the_weather_tool_with_unexpected_answers() -> None:
    """The server ignores what it did not ask for, and asks its question again: no state, none before."""
    unexpected = {
        "action": "accept",
        "content": {"not_requested_param_name": "Information the server did not request"},
    }
    async with talk(weather_by_hand(None)) as client:
        asked = interim(2, {"github_login": GITHUB_LOGIN}, state=False)
        assert await client.say(2, "get_weather", NEW_YORK) == asked
        again = await client.go_on(3, "get_weather", NEW_YORK, not_requested_info=unexpected)
        assert again["id"] == 3
        assert again["result"]["inputRequests"] == {"github_login": GITHUB_LOGIN}
        assert await client.go_on(4, "get_weather", NEW_YORK, github_login=OCTOCAT) == complete(4, WEATHER)


async def test_the_weather_tool_of_the_guide() -> None:
    server = new_server()

    @server.tool
    def get_weather(location: str, ctx: Context) -> Any:
        if (filled_in := content_of(ctx, "units")) is not None:
            return f"Weather for {location} in {next(iter(filled_in.values()))}: 72°"
        raise InputRequired({"units": units}, "awaiting-units")

    units = {
        "method": "elicitation/create",
        "params": {
            "message": "Which temperature units?",
            "requestedSchema": {"type": "object", "properties": {}},
        },
    }
    async with talk(server) as client:
        assert await client.say(1, "get_weather", {"location": "Oslo"}) == interim(
            1, {"units": units}, state=True
        )
        done = await client.go_on(
            2,
            "get_weather",
            {"location": "Oslo"},
            units={"action": "accept", "content": {"units": "Celsius"}},
        )
        assert done == complete(2, "Weather for Oslo in Celsius: 72°")


# The SEP draft: Azure DevOps, two rounds, the state from the second on

RESOLUTION: Message = {
    "method": "elicitation/create",
    "params": {
        "message": "Resolving Bug #4522 requires a resolution. How was this bug resolved?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "resolution": {
                    "type": "string",
                    "enum": ["Fixed", "Won't Fix", "Duplicate", "By Design"],
                    "description": "Resolution type for this bug",
                }
            },
            "required": ["resolution"],
        },
    },
}
DUPLICATE_OF: Message = {
    "method": "elicitation/create",
    "params": {
        "message": "Since this is a duplicate, which work item is the original?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "duplicateOfId": {"type": "number", "description": "Work item ID of the original bug"}
            },
            "required": ["duplicateOfId"],
        },
    },
}
BUG = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}
RESOLVED = "Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created."


def devops() -> Server:
    server = new_server()

    @server.tool
    async def update_work_item(workItemId: int, fields: dict[str, str], ctx: Context) -> Any:
        resolution = json.loads(ctx.request_state)["resolution"] if ctx.request_state else None
        if resolution is None and (answer := content_of(ctx, "resolution")) is not None:
            resolution = answer["resolution"]
        if resolution is None:
            return InputRequired({"resolution": RESOLUTION})
        if resolution == "Duplicate":
            if (answer := content_of(ctx, "duplicate_of")) is None:
                return InputRequired({"duplicate_of": DUPLICATE_OF}, json.dumps({"resolution": resolution}))
            return (
                f"Bug #{workItemId} resolved as Duplicate of Bug #{answer['duplicateOfId']}. "
                f"State set to {fields['System.State']} and duplicate link created."
            )
        return f"Bug #{workItemId} resolved as {resolution}. State set to {fields['System.State']}."

    return server


async def test_the_work_item_of_azure_devops() -> None:
    async with talk(devops()) as client:
        first = await client.say(1, "update_work_item", BUG)
        assert first == interim(1, {"resolution": RESOLUTION}, state=False)
        second = await client.go_on(
            2,
            "update_work_item",
            BUG,
            resolution={"action": "accept", "content": {"resolution": "Duplicate"}},
        )
        assert second == interim(2, {"duplicate_of": DUPLICATE_OF}, state=True)
        last = await client.go_on(
            3, "update_work_item", BUG, duplicate_of={"action": "accept", "content": {"duplicateOfId": 4301}}
        )
        assert last == complete(3, RESOLVED)


async def test_the_work_item_that_was_fixed_needs_no_second_round() -> None:
    async with talk(devops()) as client:
        await client.say(1, "update_work_item", BUG)
        last = await client.go_on(
            2, "update_work_item", BUG, resolution={"action": "accept", "content": {"resolution": "Fixed"}}
        )
        assert last == complete(2, "Bug #4522 resolved as Fixed. State set to Resolved.")


async def test_the_work_item_in_one_straight_line() -> None:
    server = new_server()

    class Resolution(BaseModel):
        resolution: Literal["Fixed", "Won't Fix", "Duplicate", "By Design"] = Field(
            description="Resolution type for this bug"
        )

    class Original(BaseModel):
        duplicateOfId: float = Field(description="Work item ID of the original bug")

    @server.tool
    async def update_work_item(workItemId: int, fields: dict[str, str], ctx: Context) -> str:
        message = f"Resolving Bug #{workItemId} requires a resolution. How was this bug resolved?"
        how = await ctx.elicit(message, Resolution, key="resolution")
        if how.data is None or how.data.resolution != "Duplicate":
            return "Resolved."
        question = "Since this is a duplicate, which work item is the original?"
        original = await ctx.elicit(question, Original, key="duplicate_of")
        assert original.data
        return (
            f"Bug #{workItemId} resolved as Duplicate of Bug #{original.data.duplicateOfId:g}. "
            f"State set to {fields['System.State']} and duplicate link created."
        )

    def formed(asked: Message) -> Message:
        return {**asked, "params": {"mode": "form", **asked["params"]}}

    async with talk(server) as client:
        first = await client.say(1, "update_work_item", BUG)
        assert first == interim(1, {"resolution": formed(RESOLUTION)}, state=True)
        second = await client.go_on(
            2,
            "update_work_item",
            BUG,
            resolution={"action": "accept", "content": {"resolution": "Duplicate"}},
        )
        assert second == interim(2, {"duplicate_of": formed(DUPLICATE_OF)}, state=True)
        last = await client.go_on(
            3, "update_work_item", BUG, duplicate_of={"action": "accept", "content": {"duplicateOfId": 4301}}
        )
        assert last == complete(3, RESOLVED)


# The SEP draft: the echo


ECHO_INPUT: Message = {
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


def echo() -> Server:
    server = new_server()

    class Echo(BaseModel):
        input: str

    @server.tool
    async def echo(ctx: Context) -> str:
        answer = await ctx.elicit("Please provide the input string to echo back", Echo, key="echo_input")
        return f"Echo: {answer.data.input}" if answer.data else "Nothing to echo"

    return server


async def test_the_echo() -> None:
    async with talk(echo()) as client:
        assert await client.say(1, "echo") == interim(1, {"echo_input": ECHO_INPUT}, state=True)
        answer = {"action": "accept", "content": {"input": "Hello World!"}}
        assert await client.go_on(2, "echo", echo_input=answer) == complete(2, "Echo: Hello World!")


async def test_the_echo_with_missing_answers() -> None:
    async with talk(echo()) as client:
        await client.say(1, "echo")
        assert await client.go_on(2, "echo") == interim(2, {"echo_input": ECHO_INPUT}, state=True)
        answer = {"action": "accept", "content": {"input": "Hello World!"}}
        assert await client.go_on(3, "echo", echo_input=answer) == complete(3, "Echo: Hello World!")


async def test_the_echo_with_unexpected_answers() -> None:
    unexpected = {
        "action": "accept",
        "content": {"not_requested_parameter": "Information the server did not request."},
    }
    async with talk(echo()) as client:
        await client.say(1, "echo")
        for request_id, responses in ((2, {"echo_input": unexpected}), (3, {"not_requested": unexpected})):
            again = await client.go_on(request_id, "echo", **responses)
            assert again == interim(request_id, {"echo_input": ECHO_INPUT}, state=True)
        answer = {"action": "accept", "content": {"input": "Hello World!"}}
        assert await client.go_on(4, "echo", echo_input=answer) == complete(4, "Echo: Hello World!")


# The SEP draft, the spec's page and the C# pull request: several kinds in one round

CAPITAL: Message = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}],
        "modelPreferences": {
            "hints": [{"name": "claude-3-sonnet"}],
            "intelligencePriority": 0.8,
            "speedPriority": 0.5,
        },
        "systemPrompt": "You are a helpful assistant.",
        "maxTokens": 100,
    },
}
PARIS: Message = {
    "role": "assistant",
    "content": {"type": "text", "text": "The capital of France is Paris."},
    "model": "claude-3-sonnet-20240307",
    "stopReason": "endTurn",
}


async def test_a_form_and_a_sample_in_one_round() -> None:
    from mcp_types import ModelHint, ModelPreferences

    server = new_server()

    class Login(BaseModel):
        name: str

    @server.tool
    async def both(ctx: Context) -> str:
        login, capital = await asyncio.gather(
            ctx.elicit("Please provide your GitHub username", Login, key="github_login"),
            ctx.sample(
                "What is the capital of France?",
                max_tokens=100,
                system_prompt="You are a helpful assistant.",
                model_preferences=ModelPreferences(
                    hints=[ModelHint(name="claude-3-sonnet")], intelligence_priority=0.8, speed_priority=0.5
                ),
                key="capital_of_france",
            ),
        )
        assert login.data
        return f"{login.data.name}: {capital.content.text}"  # type: ignore[union-attr]

    asked = {
        "github_login": {**GITHUB_LOGIN, "params": {"mode": "form", **GITHUB_LOGIN["params"]}},
        "capital_of_france": CAPITAL,
    }
    async with talk(server) as client:
        assert await client.say(1, "both") == interim(1, asked, state=True)
        done = await client.go_on(2, "both", github_login=OCTOCAT, capital_of_france=PARIS)
        assert done == complete(2, "octocat: The capital of France is Paris.")


async def test_three_kinds_in_one_round_by_hand() -> None:
    server = new_server()
    requests: Message = {
        "confirm": {
            "method": "elicitation/create",
            "params": {
                "message": "Proceed?",
                "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
            },
        },
        "summarize": {
            "method": "sampling/createMessage",
            "params": {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Summarize"}}],
                "maxTokens": 50,
            },
        },
        "roots": {"method": "roots/list"},
    }

    @server.tool
    async def multi(ctx: Context) -> Any:
        answers: Any = ctx.input_responses
        if answers.keys() != requests.keys():
            raise InputRequired(requests, "multi-input")
        assert ctx.request_state == "multi-input"
        summary, roots = answers["summarize"].content.text, answers["roots"].roots
        return f"{answers['confirm'].action} {summary} {roots[0].uri}"

    async with talk(server) as client:
        assert await client.say(1, "multi") == interim(1, requests, state=True)
        done = await client.go_on(
            2,
            "multi",
            confirm={"action": "accept", "content": {"ok": True}},
            summarize=said("short"),
            roots={"roots": [{"uri": "file:///projects/repo-a/"}]},
        )
        assert done == complete(2, "accept short file:///projects/repo-a/")


async def test_three_kinds_of_which_one_answer_is_missing_by_hand() -> None:
    server = new_server()
    form = {"message": "Proceed?", "requestedSchema": {"type": "object", "properties": {}}}
    requests: Message = {
        "confirm": {"method": "elicitation/create", "params": form},
        "roots": {"method": "roots/list"},
    }

    @server.tool
    async def multi(ctx: Context) -> Any:
        missing = {key: asked for key, asked in requests.items() if key not in ctx.input_responses}
        if missing:
            return InputRequired(missing, "multi-input")
        return "both"

    async with talk(server) as client:
        await client.say(1, "multi")
        second = await client.go_on(2, "multi", roots={"roots": []})
        assert second == interim(2, {"confirm": requests["confirm"]}, state=True)
        done = await client.go_on(3, "multi", confirm={"action": "accept", "content": {}})
        assert done == complete(3, "both")


# The C# guide: the wizard, the confirmation, the stateless tool, load shedding


def _asks(name: str, message: str, kind: str, description: str) -> Message:
    return {
        "method": "elicitation/create",
        "params": {
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {name: {"type": kind, "description": description}},
            },
        },
    }


async def test_the_wizard_of_name_and_age() -> None:
    server = new_server()

    @server.tool
    def wizard(ctx: Context) -> Any:
        name, age = content_of(ctx, "name"), content_of(ctx, "age")
        if ctx.request_state == "step-2" and name and age:
            return f"Welcome, {name['name']}! You are {age['age']} years old."
        if ctx.request_state == "step-1" and name:
            question = f"Hi {name['name']}! How old are you?"
            raise InputRequired({"age": _asks("age", question, "number", "Your age")}, "step-2")
        raise InputRequired({"name": _asks("name", "What's your name?", "string", "Your name")}, "step-1")

    async with talk(server) as client:
        first = await client.say(1, "wizard", {})
        assert first == interim(
            1, {"name": _asks("name", "What's your name?", "string", "Your name")}, state=True
        )
        second = await client.go_on(2, "wizard", {}, name={"action": "accept", "content": {"name": "Alice"}})
        assert second == interim(
            2, {"age": _asks("age", "Hi Alice! How old are you?", "number", "Your age")}, state=True
        )
        last = await client.go_on(3, "wizard", {}, age={"action": "accept", "content": {"age": 30}})
        assert last == complete(3, "Welcome, Alice! You are 30 years old.")


async def test_the_confirmation() -> None:
    server = new_server()

    class Confirm(BaseModel):
        confirm: bool = Field(description="Confirm the action")

    @server.tool(name="ConfirmAction")
    async def confirm_action(action: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"Do you want to proceed with: {action}?", Confirm, key="confirm")
        return "Action confirmed!" if answer.action == "accept" else "Action cancelled."

    asked = {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Do you want to proceed with: delete all files?",
            "requestedSchema": {
                "type": "object",
                "properties": {"confirm": {"type": "boolean", "description": "Confirm the action"}},
                "required": ["confirm"],
            },
        },
    }
    arguments = {"action": "delete all files"}
    for answer, end in (
        ({"action": "accept", "content": {"confirm": True}}, "Action confirmed!"),
        ({"action": "decline"}, "Action cancelled."),
        ({"action": "cancel"}, "Action cancelled."),
    ):
        async with talk(server) as client:
            first = await client.say(1, "ConfirmAction", arguments)
            assert first == interim(1, {"confirm": asked}, state=True)
            assert await client.go_on(2, "ConfirmAction", arguments, confirm=answer) == complete(2, end)


async def test_the_stateless_tool() -> None:
    server = new_server()

    @server.tool
    def stateless(question: str, ctx: Context) -> Any:
        if ctx.request_state is not None and (answer := content_of(ctx, "user_answer")) is not None:
            return f"You answered: {next(iter(answer.values()))}"
        asked = _asks("answer", f"Please answer: {question}", "string", "Your answer")
        raise InputRequired({"user_answer": asked}, "awaiting-answer")

    async with talk(server) as client:
        arguments = {"question": "Why?"}
        first = await client.say(1, "stateless", arguments)
        asked = _asks("answer", "Please answer: Why?", "string", "Your answer")
        assert first == interim(1, {"user_answer": asked}, state=True)
        answer = {"action": "accept", "content": {"answer": "Because."}}
        done = await client.go_on(2, "stateless", arguments, user_answer=answer)
        assert done == complete(2, "You answered: Because.")


async def test_load_shedding() -> None:
    """State only: there is nothing to answer, and the client comes straight back."""
    server = new_server()

    @server.tool
    def deferred(ctx: Context) -> Any:
        if ctx.request_state is not None:
            step = json.loads(base64.b64decode(ctx.request_state))["step"]
            return f"Completed step {step}"
        raise InputRequired(request_state=base64.b64encode(json.dumps({"step": 1}).encode()).decode())

    async with talk(server) as client:
        assert await client.say(1, "deferred", {}) == interim(1, None, state=True)
        assert await client.go_on(2, "deferred", {}) == complete(2, "Completed step 1")


async def test_load_shedding_in_one_straight_line() -> None:
    server = new_server()

    @server.tool
    async def deferred(ctx: Context) -> str:
        def first_half() -> int:
            return 1

        step = await ctx.step(first_half)
        await ctx.checkpoint()
        return f"Completed step {step}"

    async with talk(server) as client:
        assert await client.say(1, "deferred", {}) == interim(1, None, state=True)
        assert await client.go_on(2, "deferred", {}) == complete(2, "Completed step 1")


# The mcpkit tutorial

USER_NAME: Message = {
    "method": "elicitation/create",
    "params": {
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}


async def test_the_tutorials_first_tool_and_its_tolerance_of_wrong_keys() -> None:
    server = new_server()

    @server.tool
    async def test_tool_with_elicitation(ctx: Context) -> Any:
        if (answer := content_of(ctx, "user_name")) is None:
            return InputRequired({"user_name": USER_NAME})
        return f"Hello, {answer['name']}!"

    async with talk(server) as client:
        name = "test_tool_with_elicitation"
        assert await client.say(1, name, {}) == interim(1, {"user_name": USER_NAME}, state=False)
        alice = {"action": "accept", "content": {"name": "Alice"}}
        wrong = await client.go_on(2, name, {}, wrong_key=alice)
        assert wrong["result"]["inputRequests"] == {"user_name": USER_NAME}
        assert await client.go_on(3, name, {}, user_name=alice) == complete(3, "Hello, Alice!")


async def test_the_tutorials_two_steps_without_any_state_of_the_handlers_own() -> None:
    """The server forwards the answers of earlier rounds through its token."""
    server = new_server()

    @server.tool
    async def multi_round(ctx: Context) -> Any:
        for step in ("step1", "step2"):
            if step not in ctx.input_responses:
                return InputRequired({step: _asks("value", f"Value of {step}?", "string", step)})
        return " ".join(str((content_of(ctx, step) or {})["value"]) for step in ("step1", "step2"))

    async with talk(server) as client:
        first = await client.say(1, "multi_round", {})
        assert first == interim(
            1, {"step1": _asks("value", "Value of step1?", "string", "step1")}, state=False
        )
        second = await client.go_on(
            2, "multi_round", {}, step1={"action": "accept", "content": {"value": "a"}}
        )
        assert second == interim(
            2, {"step2": _asks("value", "Value of step2?", "string", "step2")}, state=True
        )
        last = await client.go_on(3, "multi_round", {}, step2={"action": "accept", "content": {"value": "b"}})
        assert last == complete(3, "a b")


async def test_the_tutorials_roots() -> None:
    server = new_server()

    @server.tool
    async def roots(ctx: Context) -> Any:
        answer: Any = ctx.input_responses.get("client_roots")
        if answer is None:
            return InputRequired({"client_roots": {"method": "roots/list", "params": {}}})
        return " ".join(str(root.uri) for root in answer.roots)

    async with talk(server) as client:
        asked = await client.say(1, "roots", {})
        assert asked["result"]["inputRequests"]["client_roots"]["method"] == "roots/list"
        answer = {
            "roots": [{"uri": "file:///projects/repo-a/"}, {"uri": "file:///projects/repo-b/", "name": "b"}]
        }
        done = await client.go_on(2, "roots", {}, client_roots=answer)
        assert done == complete(2, "file:///projects/repo-a/ file:///projects/repo-b/")
