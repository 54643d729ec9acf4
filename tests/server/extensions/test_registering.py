"""What a server needs of its extensions, and refuses; their lifespans, sessions of 2025, scopes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ekiden import (
    Auth,
    Client,
    Context,
    Principal,
    RegistrationError,
    ServerError,
    StaticTokens,
    UsageError,
)
from ekiden.extensions import ClientExtension, Extension, ExtensionContext
from ekiden.stores.memory import MemoryStore
from tests.server.extensions.searching import NAME, search, serving
from tests.serving import post, request, result_of, served

# Lifespan and requirements


async def test_lifespans_are_entered_after_the_servers_and_left_before_it() -> None:
    order: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def living(*_: object) -> AsyncGenerator[str, None]:
            order.append(f"enter {name}")
            yield name
            order.append(f"leave {name}")

        return living

    extension = Extension(NAME, lifespan=lifespan("search"))

    @extension.method("search/state")
    async def state(ctx: ExtensionContext) -> dict[str, Any]:
        return {"state": ctx.state}

    other = Extension("com.example/other", lifespan=lifespan("other"))
    server = serving(extension, other, lifespan=lifespan("server"))

    @server.tool
    async def server_state(ctx: Context) -> str:
        return str(ctx.state)

    async with Client(server) as client:
        assert (await client.request("search/state"))["state"] == "search"
        assert (await client.call_tool("server_state")).content[0].text == "server"  # type: ignore[union-attr]
    assert order == [
        "enter server",
        "enter search",
        "enter other",
        "leave other",
        "leave search",
        "leave server",
    ]


@pytest.mark.parametrize("requires", [["resources"], ["com.example/index"]])
async def test_a_server_does_not_start_without_what_an_extension_requires(requires: list[str]) -> None:
    server = serving(search(requires=requires))
    with pytest.raises(UsageError, match=f"{NAME!r} requires {requires[0]!r}"):
        await server.endpoint.start()


@pytest.mark.parametrize("method", ["tool/call", "notifications/cancelled", "roots/list", "index/find"])
async def test_a_server_does_not_start_with_an_interceptor_that_never_runs(method: str) -> None:
    extension = search()

    @extension.intercept(methods=["tools/call", method])
    async def intercepted(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    with pytest.raises(UsageError, match=f"{NAME!r} intercepts {method!r}"):
        await serving(extension).endpoint.start()


async def test_methods_of_tasks_and_of_other_extensions_can_be_intercepted() -> None:
    extension, other = Extension(NAME), Extension("com.example/index")
    seen: list[str] = []

    @extension.intercept(methods=["tasks/get", "search/index", "resources/read"])
    async def intercepted(request: Any, call_next: Any) -> Any:
        seen.append(request.method)
        return await call_next(request)

    @other.method("search/index")
    async def find() -> dict[str, int]:
        return {"found": 1}

    assert (await result_of(serving(extension, other), "search/index"))["found"] == 1
    assert seen == ["search/index"]


async def test_what_is_required_may_be_registered_later() -> None:
    server = serving(search(requires=["resources", "com.example/index"]), Extension("com.example/index"))

    @server.resource("a://b")
    async def resource() -> str:
        return "x"

    assert (await result_of(server, "search/find", {"text": "a", "most": 1}))["found"] == ["a"]


# Sessions of 2025


async def test_clients_of_2025_have_it_unless_it_is_for_2026_only() -> None:
    server = serving(search(settings={"fuzzy": True}))
    async with Client(server, mode="legacy") as client:
        assert client.server_extension(NAME) == {"fuzzy": True}
        found = await client.request("search/find", {"text": "a", "most": 1})
        assert found == {"found": ["a"]}
    async with Client(serving(search(sessions=False)), mode="legacy") as client:
        assert client.server_extension(NAME) is None
        with pytest.raises(ServerError, match="Method not found"):
            await client.request("search/find", {"text": "a"})


async def test_fields_that_the_protocol_has_elsewhere_reach_a_client_of_2025_as_they_are() -> None:
    extension = Extension(NAME)
    result = {"content": [1], "messages": ["x"], "tools": [{"inputSchema": 3}], "structuredContent": 4}

    @extension.method("search/odd")
    async def odd() -> Any:
        return result

    async with Client(serving(extension), mode="legacy") as client:
        assert await client.request("search/odd") == result


async def test_a_result_that_is_not_json_or_too_large_is_an_error_in_both_eras() -> None:
    extension = Extension(NAME)
    values: list[Any] = []

    @extension.method("search/next")
    async def next_value() -> Any:
        return {"value": values[-1]}

    server = serving(extension, result_bytes=1000)
    for value, problem in ((object(), "cannot be sent as JSON"), ("x" * 2000, "too large")):
        values.append(value)
        for mode in ("modern", "legacy"):
            async with Client(server, mode=mode) as client:  # type: ignore[arg-type]
                with pytest.raises(ServerError, match=problem):
                    await client.request("search/next")


# Bad input


def test_an_identifier_must_have_a_prefix() -> None:
    with pytest.raises(RegistrationError, match="'search' is not the identifier of an extension"):
        Extension("search")


def test_two_extensions_of_one_identifier_are_refused() -> None:
    with pytest.raises(RegistrationError, match="is registered already"):
        serving(search(), Extension(NAME))


def test_two_extensions_with_one_method_are_refused() -> None:
    other = Extension("com.example/other", sends=["search/find"])
    with pytest.raises(
        RegistrationError, match=f"'com.example/other': {NAME!r} has the method 'search/find'"
    ):
        serving(search(), other)


def test_two_extensions_with_one_result_type_are_refused() -> None:
    first = Extension(NAME, result_types=["receipt"])
    with pytest.raises(RegistrationError, match="has the result type 'receipt' already"):
        serving(first, Extension("com.example/other", result_types=["receipt"]))


def test_a_method_of_the_protocol_is_refused() -> None:
    with pytest.raises(RegistrationError, match="'tools/call' is a method of the protocol"):
        Extension(NAME).method("tools/call")(lambda: None)


@pytest.mark.parametrize("name", ["notifications/search/find", "rpc.find"])
def test_a_name_that_requests_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match=f"'{name}' cannot be a method: 'notifications/' is for"):
        Extension(NAME).method(name)(lambda: None)


def test_one_method_twice_in_an_extension_is_refused() -> None:
    with pytest.raises(RegistrationError, match="has 'search/find' already"):
        search().notification("search/find")(lambda: None)


def test_tasks_are_taken_where_the_server_has_them() -> None:
    with pytest.raises(RegistrationError, match=r"'io.modelcontextprotocol/tasks' is registered already"):
        serving(Extension("io.modelcontextprotocol/tasks"), store=MemoryStore())
    stealing = Extension(NAME, result_types=["task"])
    with pytest.raises(
        RegistrationError, match=r"'io.modelcontextprotocol/tasks' has the result type 'task'"
    ):
        serving(stealing, store=MemoryStore())


def test_what_is_registered_after_the_server_took_it_is_refused() -> None:
    extension = search()
    serving(extension)
    for register in (extension.method("search/late"), extension.notification("late"), extension.intercept):
        with pytest.raises(RegistrationError, match="register everything before"):
            register(lambda *_: None)  # type: ignore[arg-type,return-value]


def test_one_extension_may_be_given_to_two_servers() -> None:
    extension = search()
    assert serving(extension).endpoint.methods == serving(extension).endpoint.methods


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"settings": {"a": object()}}, "settings must be a JSON object"),
        ({"sends": "notifications/x"}, "sends is a list"),
        ({"sends": ["notifications/progress"]}, "is a method of the protocol"),
        ({"result_types": ["complete"]}, "is a result type of the protocol"),
        ({"requires": "resources"}, "requires is a list"),
    ],
)
def test_bad_options_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Extension(NAME, **options)


def test_what_is_not_an_extension_is_refused() -> None:
    with pytest.raises(RegistrationError, match="takes `Extension` objects"):
        serving(ClientExtension(NAME))  # type: ignore[arg-type]


def test_the_context_of_a_tool_is_not_that_of_a_method() -> None:
    async def find(ctx: Context) -> None:
        """Wrong."""

    with pytest.raises(RegistrationError, match=r"`from ekiden.extensions import ExtensionContext`"):
        Extension(NAME).method("search/find")(find)


# Scopes


async def test_a_method_may_need_scopes() -> None:
    extension = Extension(NAME)

    @extension.method("search/find", scopes=["search:read"])
    async def find(ctx: ExtensionContext) -> dict[str, Any]:
        return {"who": None if ctx.principal is None else ctx.principal.subject}

    with pytest.raises(RegistrationError, match="has scopes, which need `Server"):
        serving(extension)
    alice, bob = Principal("alice", scopes=frozenset({"search:read"})), Principal("bob")
    tokens = StaticTokens({"t1": alice, "t2": bob})
    server = serving(extension, auth=Auth("http://127.0.0.1/mcp", verifier=tokens))
    async with served(server) as base:
        allowed = await post(base, request("search/find"), authorization="Bearer t1")
        assert allowed.json()["result"]["who"] == "alice"
        refused = await post(base, request("search/find"), authorization="Bearer t2")
        assert refused.status_code == 403
