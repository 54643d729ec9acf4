"""Options and values that do not exist are refused when a handler is registered."""

import inspect
from typing import Any

import pytest

from ekiden import RegistrationError, Server
from ekiden.stores.memory import MemoryStore


def handler() -> str:
    return "done"


def refused(server: Server, **options: Any) -> str:
    """Why the options are refused, which `@server.tool(...)` and `server.add_tool(...)` agree on."""
    with pytest.raises(RegistrationError) as decorated:
        server.tool(**options)(handler)
    with pytest.raises(RegistrationError) as added:
        server.add_tool(handler, **options)
    assert str(added.value).removeprefix("add_") == str(decorated.value)
    return str(decorated.value)


@pytest.fixture
def server() -> Server:
    return Server("s", store=MemoryStore())


def test_options_that_do_not_exist_are_refused_with_those_that_were_meant(server: Server) -> None:
    assert refused(server, one=True, taks="required", nonsense=5) == (
        "tool() has no options 'nonsense', 'one' (did you mean once=?), 'taks' (did you mean task=?)"
    )
    assert refused(server, nonsense=5) == "tool() has no option 'nonsense'"


def test_an_option_of_tools_is_not_one_of_prompts(server: Server) -> None:
    with pytest.raises(RegistrationError, match=r"prompt\(\) has no option 'structured'$"):
        server.prompt(structured=True)(handler)  # type: ignore[call-overload]
    with pytest.raises(
        RegistrationError, match=r"add_prompt\(\) has no option 'tittle' \(did you mean title=\?"
    ):
        server.add_prompt(handler, tittle="x")


def test_options_of_resources_and_completions_are_checked_as_well(server: Server) -> None:
    with pytest.raises(
        RegistrationError, match=r"resource\(\) has no option 'mimetype' \(did you mean mime_type"
    ):
        server.resource("a://b", mimetype="text/plain")  # type: ignore[call-arg]
    with pytest.raises(RegistrationError, match=r"add_resource\(\) has no option 'mimetype'"):
        server.add_resource("a://b", handler, mimetype="text/plain")
    with pytest.raises(
        RegistrationError, match=r"completion\(\) has no option 'promt' \(did you mean prompt=\?\)"
    ):
        server.completion(promt="p", argument="a")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"task": "always"},
            "task must be one of 'never', 'deferred', 'optional', 'required', not 'always'",
        ),
        (
            {"task": "requird"},
            (
                "task must be one of 'never', 'deferred', 'optional', 'required', not 'requird' "
                "(did you mean required?)"
            ),
        ),
        ({"task": True}, "task must be one of 'never', 'deferred', 'optional', 'required', not True"),
        (
            {"resume": "parkt"},
            "resume must be one of 'replay', 'parked', not 'parkt' (did you mean parked?)",
        ),
        ({"once": "yes"}, "once must be one of 'auto', True, False, not 'yes'"),
        ({"once": 1}, "once must be one of 'auto', True, False, not 1"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0, or None, not 0"),
        ({"timeout": "5"}, "timeout must be a number of seconds above 0, or None, not '5'"),
        ({"timeout": True}, "timeout must be a number of seconds above 0, or None, not True"),
        ({"asks": "elicitation"}, "asks= is a list: write asks=['elicitation']"),
        ({"asks": bool}, "asks= is a list: write asks=[bool]"),
    ],
)
def test_a_value_that_an_option_does_not_have_is_refused(
    server: Server, options: dict[str, Any], said: str
) -> None:
    assert refused(server, **options) == said


def test_a_parked_tool_has_no_time_limit(server: Server) -> None:
    assert "write `async with asyncio.timeout" in refused(server, resume="parked", timeout=5)


def test_a_name_without_its_option_says_what_to_write(server: Server) -> None:
    with pytest.raises(RegistrationError, match=r"write @server\.tool\(name='search'\)"):
        server.tool("search")  # type: ignore[type-var]
    with pytest.raises(RegistrationError, match=r"write @server\.prompt\(name='hello'\)"):
        server.prompt("hello")  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("tool", {"name", "output_schema", "task", "on_cancel", "timeout"}),
        ("add_tool", {"name", "output_schema", "task", "on_cancel", "timeout"}),
        ("prompt", {"name", "asks", "resume"}),
        ("add_prompt", {"name", "asks", "resume"}),
        ("resource", {"uri", "mime_type", "cache"}),
        ("add_resource", {"uri", "mime_type", "cache"}),
        ("completion", {"argument", "prompt", "resource"}),
    ],
)
def test_help_shows_every_option(name: str, some: set[str]) -> None:
    parameters = inspect.signature(getattr(Server, name)).parameters
    assert some <= parameters.keys()
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    assert inspect.getdoc(getattr(Server, name))
