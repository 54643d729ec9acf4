from typing import Any

import pytest
from mcp_types import CompleteResult, Completion

from ekiden import Context, InvalidParams, RegistrationError, Server, UsageError
from tests.serving import error_of, result_of


def server_completing(function: Any) -> Server:
    server = Server("s")

    @server.prompt
    async def trip(city: str, country: str) -> str:
        return ""

    @server.resource("trip://{city}/plan")
    async def plan(city: str) -> str:
        return ""

    server.completion(prompt="trip", argument="city")(function)
    server.completion(resource="trip://{city}/plan", argument="city")(function)
    return server


PROMPT = {"type": "ref/prompt", "name": "trip"}
RESOURCE = {"type": "ref/resource", "uri": "trip://{city}/plan"}


def params(ref: Any = PROMPT, name: Any = "city", value: Any = "", **more: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": name, "value": value}, **more}


async def completed(server: Server, **changes: Any) -> dict[str, Any]:
    completion: dict[str, Any] = (await result_of(server, "completion/complete", params(**changes)))[
        "completion"
    ]
    return completion


async def cities(value: str) -> list[str]:
    return [city for city in ("Tokyo", "Toyama", "Odawara") if city.startswith(value)]


@pytest.mark.parametrize("ref", [PROMPT, RESOURCE])
async def test_suggestions_come_with_their_number(ref: dict[str, str]) -> None:
    assert await completed(server_completing(cities), ref=ref, value="To") == {
        "values": ["Tokyo", "Toyama"],
        "total": 2,
        "hasMore": False,
    }


async def test_the_other_arguments_are_handed_over_if_they_are_wanted() -> None:
    async def complete(value: str, arguments: dict[str, str]) -> list[str]:
        return [f"{key}={item}" for key, item in arguments.items()]

    server = server_completing(complete)
    context = {"arguments": {"country": "Japan"}}
    assert (await completed(server, context=context))["values"] == ["country=Japan"]
    assert (await completed(server))["values"] == []


async def test_a_plain_function_can_complete_and_values_become_text() -> None:
    def complete(value: str) -> list[int]:
        return [1, 2]

    assert (await completed(server_completing(complete)))["values"] == ["1", "2"]


async def test_no_more_than_a_hundred_values_are_sent() -> None:
    async def complete(value: str) -> list[str]:
        return [str(n) for n in range(250)]

    completion = await completed(server_completing(complete))
    assert completion["values"] == [str(n) for n in range(100)]
    assert (completion["total"], completion["hasMore"]) == (250, True)


async def test_exactly_a_hundred_values_are_all() -> None:
    async def complete(value: str) -> list[str]:
        return [str(n) for n in range(100)]

    completion = await completed(server_completing(complete))
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 100, False)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_completion_of_the_author_is_sent_with_at_most_a_hundred_values(whole: bool) -> None:
    async def complete(value: str) -> Any:
        completion = Completion(values=[str(n) for n in range(150)], total=1000, has_more=True)
        return CompleteResult(completion=completion) if whole else completion

    completion = await completed(server_completing(complete))
    assert (completion["total"], completion["hasMore"]) == (1000, True)
    assert completion["values"] == [str(n) for n in range(100)]


async def test_nothing_is_no_suggestions() -> None:
    async def complete(value: str) -> None:
        return None

    assert (await completed(server_completing(complete)))["values"] == []


async def test_an_argument_that_nobody_completes_has_no_suggestions() -> None:
    assert (await completed(server_completing(cities), name="country"))["values"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"ref": {"type": "ref/prompt", "name": "nobody"}},
        {"ref": {"type": "ref/resource", "uri": "nobody://{x}"}},
        {"ref": {"type": "ref/tool", "name": "trip"}},
        {"ref": {"type": "ref/prompt"}},
        {"ref": {"type": ["ref/prompt"], "name": "trip"}},
        {"ref": None},
        {"ref": "trip"},
        {"name": 1},
        {"name": None},
        {"value": 1},
        {"value": None},
        {"context": {"arguments": []}},
        {"context": {"arguments": {"country": 1}}},
    ],
)
async def test_a_reference_to_nothing_is_invalid_params(wrong: dict[str, Any]) -> None:
    error = await error_of(server_completing(cities), "completion/complete", params(**wrong))
    assert error["code"] == -32602


async def test_a_completer_that_raises_is_an_internal_error_without_the_reason() -> None:
    async def complete(value: str) -> list[str]:
        raise OSError("secret-dsn")

    error = await error_of(server_completing(complete), "completion/complete", params())
    assert error == {"code": -32603, "message": "Internal error"}


async def test_a_completer_may_answer_with_an_error_of_its_own() -> None:
    async def complete(value: str) -> list[str]:
        raise InvalidParams("no such country")

    error = await error_of(server_completing(complete), "completion/complete", params())
    assert error == {"code": -32602, "message": "no such country"}


async def test_a_completer_is_registered_for_one_thing_once_and_with_known_parameters() -> None:
    server = server_completing(cities)
    with pytest.raises(UsageError, match="either prompt= or resource="):
        server.completion(argument="city")
    with pytest.raises(UsageError, match="either prompt= or resource="):
        server.completion(argument="city", prompt="trip", resource="a://{city}")
    with pytest.raises(RegistrationError, match="registered already"):
        server.completion(argument="city", prompt="trip")(cities)

    async def wrong(text: str) -> list[str]:
        return []

    with pytest.raises(RegistrationError, match="its parameters must be `value`"):
        server.completion(argument="country", prompt="trip")(wrong)


async def test_a_completer_may_take_the_context_and_cannot_ask_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def complete(value: str, ctx: Context) -> list[str]:
        return [f"{value} {ctx.request.method} {ctx.state}"]

    def plain(value: str, ctx: Context) -> list[str]:
        return [ctx.meta.protocol_version]

    async def asking(value: str, ctx: Context) -> list[str]:
        await ctx.list_roots()
        return []

    result = await result_of(server_completing(complete), "completion/complete", params())
    assert result["completion"]["values"] == [f"{params()['argument']['value']} completion/complete None"]
    result = await result_of(server_completing(plain), "completion/complete", params())
    assert result["completion"]["values"] == ["2026-07-28"]
    error = await error_of(server_completing(asking), "completion/complete", params())
    assert error["code"] == -32603
    assert "The client could not be asked for its roots" in caplog.text
