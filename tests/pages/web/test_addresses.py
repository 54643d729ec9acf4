"""Whose page a link of a stranger leads to."""

import pytest

from ekiden import Context
from ekiden.pages.trying.questions import Question
from ekiden.pages.web.addresses import Link, link_of
from ekiden.stores.memory import MemoryStore
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import link_in, pages_of, shop

LINKS = [
    ("https://bank.example/pay", "bank.example"),
    ("https://bank.example:8443/pay", "bank.example:8443"),
    ("https://bank.example@evil.example/", "evil.example"),
    ("https://[", ""),
    ("https://bank.example:x/", ""),
    ("javascript:alert(1)", ""),
    ("https://", ""),
]
AS_BROWSERS_READ = [
    ("https://evil.example\\@bank.example/pay", "https://evil.example/@bank.example/pay", "evil.example"),
    ("https:\\\\evil.example/", "https://evil.example/", "evil.example"),
    ("https:evil.example", "https://evil.example/", "evil.example"),
    ("https://ev\til.ex\nample/", "https://evil.example/", "evil.example"),
    ("https://evil%2eexample/", "https://evil.example/", "evil.example"),
    ("https://bank.ex\u0430mple/", "https://bank.xn--exmple-4nf/", "bank.xn--exmple-4nf"),
    ("https://2130706433:443/", "https://127.0.0.1/", "127.0.0.1"),
    (" JavaScript:alert(1)", "", ""),
    ("java\tscript:alert(1)//https://bank.example", "", ""),
    ("data:text/html,x", "", ""),
    (7, "", ""),
]


@pytest.mark.parametrize(("url", "address", "host"), AS_BROWSERS_READ)
def test_a_link_is_shown_and_opened_as_browsers_read_it(url: object, address: str, host: str) -> None:
    assert link_of(url) == Link(address, host)


@pytest.mark.parametrize(("url", "host"), LINKS)
async def test_the_page_try_names_the_host_and_links_to_pages_of_the_web_only(url: str, host: str) -> None:
    question = Question(1, "link", {"message": "Go there", "url": url})
    assert (question.address, question.host) == ((url, host) if host else ("#", "the page"))


@pytest.mark.parametrize(("url", "host"), LINKS)
async def test_the_page_of_a_question_names_the_host_that_its_link_leads_to(url: str, host: str) -> None:
    server = shop(MemoryStore(), [])

    @server.tool
    async def go(ctx: Context) -> str:
        return (await ctx.elicit_url("Go there", "https://placeholder.example/")).action

    async with server.running():
        path = link_in(text(await Caller(server).call("go")))
        waiting = server._rounds.people
        assert waiting is not None
        found = await waiting.people.find(path.rpartition("/")[2])
        assert found is not None

        def change(inquiry: object) -> bool:
            inquiry.params["url"] = url  # type: ignore[attr-defined]
            return True

        await waiting.people.change(found[0].row.id, change)
        page = await pages_of(server).get(path)
    assert page.status == 200
    assert (f'href="{url}"' in page.text) is bool(host)
    assert (f"a page of {host}" in page.words) is bool(host)
