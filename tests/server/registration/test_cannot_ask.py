"""`cannot_ask`: what a client gets whose model should read that something could not be asked."""

from typing import Any

import pytest

from ekiden import Context, InputRequired, RegistrationError, Server, UsageError
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed
from tests.acceptance.driving import KEY, Client, error_text
from tests.eras import old_client
from tests.serving import call, post, served
from tests.tasks.driving import EXTENSION, TaskClient, new_server

FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Which city?", "requestedSchema": {"type": "object", "properties": {}}},
}


async def refund(ctx: Context) -> str:
    return str((await ctx.elicit("Refund 120 to Aiko?", bool)).action)


async def page(ctx: Context) -> str:
    return str((await ctx.elicit_url("Log in", "https://example.com")).action)


async def manual(ctx: Context) -> InputRequired:
    return InputRequired({"city": FORM})


async def sample(ctx: Context) -> str:
    return str(await ctx.sample("Hi", max_tokens=5))


async def roots(ctx: Context) -> str:
    return str(await ctx.list_roots())


WORDS = [
    (refund, "The user could not be asked 'Refund 120 to Aiko?'", "elicitation (form)"),
    (page, "The user could not be asked 'Log in'", "elicitation (url)"),
    (manual, "The user could not be asked 'Which city?'", "elicitation (form)"),
    (sample, "The client's model could not be asked", "sampling"),
    (roots, "The client could not be asked for its roots", "roots"),
]


@pytest.mark.parametrize(("handler", "what", "missing"), WORDS)
async def test_a_model_is_told_what_could_not_be_asked(handler: Any, what: str, missing: str) -> None:
    server = Server("s", keys=[KEY], cannot_ask="result")
    server.add_tool(handler, name="tool")
    assert error_text(await Client(server, capabilities={}).ask("tool")) == (
        f"{what}, because this client does not support {missing}. The call has ended without a result."
    )


@pytest.mark.parametrize(("handler", "what", "missing"), WORDS)
@pytest.mark.parametrize("mode", ["result", "error"])
async def test_a_client_of_2025_is_told_it_in_the_same_words(
    handler: Any, what: str, missing: str, mode: Any
) -> None:
    server = Server("s", keys=[KEY], cannot_ask=mode)
    server.add_tool(handler, name="tool")
    async with served(server) as base, old_client.old_client(base, capabilities={}) as client:
        answered = await client.answered(old_client.call("tool"))
    assert answered["result"]["isError"] is True
    assert old_client.text(answered) == (
        f"{what}, because this client does not support {missing}. The call has ended without a result."
    )


async def test_a_client_of_2025_is_told_before_the_tool_runs_in_the_same_words() -> None:
    server = Server("s", keys=[KEY], cannot_ask="result")

    @server.tool(asks=["elicitation", "roots"])
    async def tool(ctx: Context) -> str:
        return "ran"

    in_2026 = error_text(await Client(server, capabilities={}).ask("tool"))
    async with served(server) as base, old_client.old_client(base, capabilities={}) as client:
        assert old_client.text(await client.answered(old_client.call("tool"))) == in_2026


async def test_by_default_it_is_an_error_of_the_protocol() -> None:
    server = Server("s", keys=[KEY])
    server.tool(name="tool")(refund)
    error = await Client(server, capabilities={}).refused()
    assert (error.code, error.data) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})
    assert "Aiko" not in error.message


async def test_a_tool_may_choose_for_itself() -> None:
    quiet = Server("s", keys=[KEY])
    quiet.tool(name="tool", cannot_ask="result")(refund)
    assert "could not be asked" in error_text(await Client(quiet, capabilities={}).ask("tool"))
    loud = Server("s", keys=[KEY], cannot_ask="result")
    loud.tool(name="tool", cannot_ask="error")(refund)
    assert (await Client(loud, capabilities={}).refused()).code == -32021


async def test_what_a_tool_says_that_it_asks_is_told_before_it_runs() -> None:
    server = Server("s", keys=[KEY], cannot_ask="result")
    ran: list[int] = []

    @server.tool(asks=["elicitation"])
    async def tool(ctx: Context) -> str:
        ran.append(1)
        return "ran"

    told = error_text(await Client(server, capabilities={}).ask("tool"))
    assert told.startswith("The user could not be asked, because this client does not support elicitation")
    assert ran == []


async def test_over_http_it_is_a_result_with_status_200() -> None:
    server = Server("s", keys=[KEY], cannot_ask="result")
    server.tool(name="tool")(refund)
    async with served(server) as base:
        response = await post(base, call("tool"))
    assert response.status_code == 200
    assert response.json()["result"]["isError"] is True


async def test_prompts_and_other_errors_stay_errors() -> None:
    server = Server("s", keys=[KEY], cannot_ask="result")

    @server.prompt
    async def prompt(ctx: Context) -> str:
        return str(await ctx.list_roots())

    server.tool(name="tool")(refund)
    client = Client(server, capabilities={})
    with pytest.raises(CallFailed, match="did not declare"):
        await client.round("prompts/get", {"name": "prompt"})
    assert (await client.refused("nobody")).code == -32602


async def test_a_task_ends_with_the_words(store: Any) -> None:
    server = new_server(store, cannot_ask="result")
    server.tool(name="tool", task="required")(refund)
    async with server.running():
        client = TaskClient(server, capabilities={"extensions": {EXTENSION: {}}})
        task = await client.until(await client.start(), "completed")
    assert task["result"]["isError"] is True
    assert "could not be asked 'Refund 120 to Aiko?'" in task["result"]["content"][0]["text"]


async def test_a_client_without_tasks_is_refused_as_before() -> None:
    server = new_server(MemoryStore(), cannot_ask="result")
    server.tool(name="tool", task="required")(refund)
    error = await Client(server, capabilities={}).refused()
    assert (error.code, error.data) == (-32021, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})


def test_other_words_are_refused_at_once() -> None:
    wrong: Any = "results"
    with pytest.raises(RegistrationError, match="cannot_ask must be one of 'error', 'result'"):
        Server("s").tool(cannot_ask=wrong)(refund)
    with pytest.raises(UsageError, match="cannot_ask must be one of 'error', 'result'"):
        Server("s", cannot_ask=wrong)
