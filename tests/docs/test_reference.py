"""The reference has an entry for everything that is public, and words for each."""

import tomllib
from pathlib import Path

import pytest

from scripts.site import api, commands, environment, errors, public, states
from scripts.site.assemble import HOMES
from scripts.site.models import listed

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.xdist_group("reference")  # To read the whole library takes seconds: it is done once.


@pytest.fixture(scope="module")
def names() -> dict[str, public.PublicName]:
    return public.public_names(public.load())


def test_every_public_name_is_on_one_page(names: dict[str, public.PublicName]) -> None:
    listed_names = [name for page in public.PAGES.values() for name in page.names]
    assert sorted(listed_names) == sorted(names)


def test_everything_public_has_words(names: dict[str, public.PublicName]) -> None:
    assert api.without_words(names) == []


def test_what_is_hidden_is_there(names: dict[str, public.PublicName]) -> None:
    gone = [
        path
        for path in api.INNER
        if path.rpartition(".")[2] not in names[path.rpartition(".")[0]].what.all_members
    ]
    assert gone == []
    assert set(names) >= api.MADE


def test_an_entry_has_its_signature_and_its_parameters(names: dict[str, public.PublicName]) -> None:
    page = api.page_of("context", names)
    assert "### Context.elicit { #ekiden.Context.elicit }" in page
    assert "| `max_tokens` | `int` |" in page
    assert "rebind" not in page
    assert "_leg" not in page


def test_every_command_and_option_has_words() -> None:
    found = commands.commands()
    assert {"ekiden run", "ekiden call", "ekiden store migrate"} <= set(found)
    silent = [words for words, command in found.items() if not command.help]
    silent += [
        f"{words} {parameter.name}"
        for words, command in found.items()
        for parameter in command.params
        if not parameter.help and not parameter.hidden
    ]
    assert silent == []


def test_every_error_has_words() -> None:
    page = errors.page()
    for error in errors.classes():
        assert error.__doc__, error.__name__
        if issubclass(error, Exception):
            assert f"## {error.__name__} " in page


def test_every_variable_has_words() -> None:
    assert environment.used() == set(environment.VARIABLES)


def test_the_states_of_a_task_are_drawn_as_they_are_in_the_code() -> None:
    assert states.PAGE.read_text() == states.page(), "run: python -m scripts.site.states"
    assert "    running --> failing: expire, give_up\n" in states.diagram()


def test_the_navigation_leads_to_every_page_once() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    generated = {f"reference/api/{key}.md" for key in public.PAGES}
    generated |= {"reference/errors.md", "reference/commands.md", "reference/environment.md"}
    docs = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    projects = {f"source/{page.relative_to(ROOT)}" for page in (ROOT / "examples").glob("*/README.md")}
    pages = docs | generated | projects | set(HOMES.values())
    assert sorted(path for _, path in listed(nav)) == sorted(pages)
