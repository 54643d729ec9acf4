"""The page of a question: what it shows, who may answer, and what attackers cannot do."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ekiden import Auth, Context, Principal, Request, Server, StaticTokens, UsageError
from ekiden.engine import principal_of
from ekiden.pages.web import WebRequest
from ekiden.stores.memory import MemoryStore
from ekiden.stores.postgres import PostgresStore
from ekiden.stores.sqlite import SQLiteStore
from tests.pages.browsing import Browser
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import ORIGIN, Post, fill, link_in, pages_of, shop

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m"


@pytest.fixture
def ran() -> list[str]:
    return []


async def asked(server: Server, **options: Any) -> str:
    return link_in(text(await Caller(server, **options).call("refund", order=7)))


async def test_the_page_says_who_asks_for_what_until_when_and_what_will_happen(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        page = await pages_of(server).get(await asked(server))
    for words in (
        "The Shop asks you",
        "Refund order 7?",
        "Approve it?",
        "Give the money of an order back.",
        "Called by tester",
        "Answer before",
        "the tool goes on with it",
        "it is told that you said no",
    ):
        assert words in page.words, words


async def test_to_look_at_a_page_changes_nothing_and_a_preview_does_not_use_the_link_up(
    ran: list[str],
) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        path = await asked(server)
        for _ in range(3):
            assert (
                await Browser(server.asgi(allowed_hosts=["mcp.example"]), host="mcp.example").get(path)
            ).status == 200
        assert (await fill(pages_of(server), path, approve="true")).status == 303


async def test_a_form_that_does_not_fit_comes_back_with_what_was_typed(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        path, browser = await asked(server), pages_of(server)
        back = await fill(browser, path, reason="because of <b>")
        assert back.status == 422
        assert "This is required." in back.words
        assert "because of &lt;b&gt;" in back.text
        assert 'aria-invalid="true"' in back.text or "problem" in back.text
        long = await fill(browser, path, approve="true", reason="x" * 81)
        assert long.status == 422
        assert (await fill(browser, path, approve="true")).status == 303


async def test_nothing_that_the_server_says_becomes_html(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    schema = {
        "type": "object",
        "title": EVIL,
        "properties": {
            'a"><script>alert(1)</script>': {
                "type": "string",
                "title": EVIL,
                "description": EVIL,
                "default": EVIL,
            },
            "c": {"type": "string", "enum": [EVIL, "b"], "default": EVIL},
            "u": {"type": "string", "format": "uri", "default": "javascript:alert(1)"},
        },
    }

    @server.tool(title=EVIL, description=EVIL)
    async def evil(ctx: Context) -> str:
        await ctx.elicit(EVIL, schema)
        return "done"

    async with server.running():
        path = link_in(text(await Caller(server).call("evil")))
        page = await pages_of(server).get(path)
    body = page.text.partition("</head>")[2]
    assert "<script" not in body
    assert "<img" not in body
    assert not any(part.startswith("javascript:") for part in body.split('href="'))
    assert "\u202e" not in page.words
    assert "\x1b" not in page.words
    assert "unsafe" not in page.headers["content-security-policy"]


async def test_a_page_of_somebody_else_is_shown_in_full_and_only_web_addresses_are_links(
    ran: list[str],
) -> None:
    server = shop(MemoryStore(), ran)

    @server.tool
    async def connect(ctx: Context, url: str) -> str:
        params = {"mode": "url", "message": "Connect it", "url": url}
        return str(await ctx.ask({"method": "elicitation/create", "params": params}))

    async with server.running():
        caller, browser = Caller(server), pages_of(server)
        path = link_in(text(await caller.call("connect", url="https://other.example/connect?a=1")))
        page = await browser.get(path)
        assert "a page of other.example : https://other.example/connect?a=1" in page.words
        await fill(browser, path)
        assert "accept" in text(await caller.call("connect", url="https://other.example/connect?a=1"))
        path = link_in(text(await caller.call("connect", url="javascript:alert(1)")))
        assert "javascript:" not in (await browser.get(path)).text


async def test_a_page_cannot_be_framed_cached_or_found(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        headers = (await pages_of(server).get(await asked(server))).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")
    assert headers["referrer-policy"] == "same-origin"
    assert "noindex" in headers["x-robots-tag"]


async def test_a_form_of_another_page_is_refused(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        path, browser = await asked(server), pages_of(server)
        code = (await browser.get(path)).hidden("form_code")
        good = {"form_code": code, "action": "accept", "/approve": "true"}
        victim = pages_of(server)
        await victim.get(path)
        refused = [
            await browser.post(path, {**good, "form_code": ""}),
            await browser.post(path, good, origin="https://evil.example"),
            await browser.post(path, good, sec_fetch_site="cross-site"),
            await victim.post(path, good),
        ]
        assert [seen.status for seen in refused] == [403, 403, 403, 403]
        assert (await browser.post(path, good, origin=ORIGIN)).status == 303


async def test_a_link_cannot_be_guessed_shortened_or_used_for_another_question(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        one = await asked(server)
        other = link_in(text(await Caller(server).call("refund", order=8)))
        browser = pages_of(server)
        mixed = f"{one.partition('.')[0]}.{other.partition('.')[2]}"
        wrong = [
            mixed,
            one.partition(".")[0],
            one[:-1],
            f"{one}x",
            f"/ask/{'0' * 32}.{'a' * 43}",
            "/ask/x",
            "/ask/call-x",
        ]
        assert [(await browser.get(path)).status for path in wrong] == [404] * len(wrong)
        words = {(await browser.get(path)).words for path in wrong}
        assert len(words) == 1
        assert (await browser.post(mixed, {"action": "accept"}, origin=ORIGIN)).status == 404


async def test_a_link_works_once(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        path, browser = await asked(server), pages_of(server)
        code = (await browser.get(path)).hidden("form_code")
        form = {"form_code": code, "action": "accept", "/approve": "true"}
        assert (await browser.post(path, form, origin=ORIGIN)).status == 303
        again = await browser.post(path, {**form, "/approve": "false"}, origin=ORIGIN)
        assert "The answer was taken" in again.words
        assert "<form" not in (await browser.get(path)).text
        assert text(await Caller(server).call("refund", order=7)).startswith("paid 7")


async def test_a_link_expires_with_its_question(ran: list[str]) -> None:
    now = [1_000_000.0]
    server = shop(MemoryStore(), ran, clock=lambda: now[0], pages={"keep_seconds": 3600.0})
    async with server.running():
        path, browser = await asked(server), pages_of(server)
        now[0] += 3599
        assert (await browser.get(path)).status == 200
        now[0] += 2
        assert (await browser.get(path)).status == 404
        assert await asked(server) != path


async def test_the_store_shows_no_link(tmp_path: Path, ran: list[str]) -> None:
    store = SQLiteStore(tmp_path / "shop.db")
    server = shop(store, ran, post=(post := Post()))
    async with server.running():
        path = await asked(server)
        await Caller(server).call("buy")
    await store.close()
    secrets = [link.partition(".")[2].encode() for link in (path, post.path())]
    with sqlite3.connect(tmp_path / "shop.db") as file:
        rows = b"".join(row[0] for row in file.execute("SELECT data FROM people"))
    assert len(rows) > 500
    assert all(len(secret) == 43 and secret not in rows for secret in secrets)


async def test_a_sealed_store_shows_nothing_of_a_question(tmp_path: Path, ran: list[str]) -> None:
    store = SQLiteStore(tmp_path / "shop.db")
    server = shop(store, ran, seal_store=True)
    async with server.running():
        path = await asked(server)
        await fill(pages_of(server), path, approve="true", reason="a secret reason")
        assert text(await Caller(server).call("refund", order=7)) == "paid 7, a secret reason"
        await asked(server)
    await store.close()
    content = b"".join(file.read_bytes() for file in tmp_path.glob("shop.db*"))
    assert b"Refund order" not in content
    assert b"a secret reason" not in content


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_of_many_answers_to_one_question_one_is_taken_by_whichever_process(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, ran: list[str]
) -> None:
    def opened() -> Any:
        if kind == "sqlite":
            return SQLiteStore(tmp_path / "shop.db")
        return PostgresStore(request.getfixturevalue("database"))

    stores = [opened() for _ in range(3)]
    servers = [shop(store, ran) for store in stores]
    path = ""
    async with servers[0].running(), servers[1].running(), servers[2].running():
        path = await asked(servers[0])
        browsers = [pages_of(servers[number % 3]) for number in range(9)]
        pages = await asyncio.gather(*(browser.get(path) for browser in browsers))
        sent = await asyncio.gather(
            *(
                browser.post(
                    path,
                    {
                        "form_code": page.hidden("form_code"),
                        "action": "accept",
                        "/approve": "true",
                        "/reason": str(number),
                    },
                    origin=ORIGIN,
                )
                for number, (browser, page) in enumerate(zip(browsers, pages, strict=True))
            )
        )
        taken = [number for number, seen in enumerate(sent) if seen.status == 303]
        assert len(taken) == 1
        assert {seen.status for seen in sent} <= {303, 200, 409}
        # The call is made again at all of them at once: it goes on once, with that answer.
        done = await asyncio.gather(*(Caller(server).call("refund", order=7) for server in servers))
        assert f"paid 7, {taken[0]}" in {text(each) for each in done}
        assert ran.count("pay 7") == 1
    for store in stores:
        await store.close()


ALICE, BOB = (Principal(name, issuer="https://login.example", client="app") for name in ("alice", "bob"))
FINANCE = Principal(
    "u3", issuer="https://login.example", claims={"email": "finance@example.com", "email_verified": True}
)
FAKE = Principal("u4", issuer="https://login.example", claims={"email": "finance@example.com"})
PEOPLE = {"alice": ALICE, "bob": BOB, "finance": FINANCE, "fake": FAKE}


async def signed_in(request: WebRequest) -> Principal | None:
    return PEOPLE.get(request.cookies.get("session", ""))


def known(server: Server, name: str) -> Browser:
    browser = pages_of(server)
    browser.cookies["session"] = name
    return browser


async def test_only_the_user_who_made_the_call_answers_where_people_are_known(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran, principal=principal_of, pages={"identify": signed_in})
    async with server.running():
        path = await asked(server, who=ALICE)
        stranger = await pages_of(server).get(path)
        assert stranger.status == 401
        assert "Refund" not in stranger.text
        victim = await known(server, "bob").get(path)
        assert victim.status == 403
        assert "Refund" not in victim.text
        assert (await known(server, "bob").post(path, {"action": "accept"}, origin=ORIGIN)).status == 403
        # The same person through another OAuth client, as a browser is.
        assert (await fill(known(server, "alice"), path, approve="true")).status == 303
        assert text(await Caller(server, who=ALICE).call("refund", order=7)) == "paid 7, "


async def test_the_call_of_one_principal_is_not_gone_on_with_by_another(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran, principal=principal_of, pages={"identify": signed_in})
    async with server.running():
        path = await asked(server, who=ALICE)
        await fill(known(server, "alice"), path, approve="true")
        assert await asked(server, who=BOB) != path
        assert text(await Caller(server, who=ALICE).call("refund", order=7)) == "paid 7, "


async def test_without_principals_clients_are_told_apart_by_connection(ran: list[str]) -> None:
    server = shop(MemoryStore(), ran)
    async with server.running():
        assert await asked(server, session="one") != await asked(server, session="two")


async def test_who_has_no_principal_does_not_share_the_calls_of_one_that_is_called_like_its_connection(
    ran: list[str],
) -> None:
    def by_name(request: Request) -> str | None:
        return None if request.principal is None else request.principal.subject

    server = shop(MemoryStore(), ran, principal=by_name)
    async with server.running():
        assert await asked(server, session="ada") != await asked(server, who="ada", session="ada")


async def test_who_is_asked_by_name_answers_and_an_address_counts_only_if_it_is_verified(
    ran: list[str],
) -> None:
    post = Post()
    server = shop(MemoryStore(), ran, post=post, principal=principal_of, pages={"identify": signed_in})
    async with server.running():
        await Caller(server, who=ALICE).call("buy")
        statuses = [
            (await known(server, name).get(post.path())).status for name in ("alice", "fake", "finance")
        ]
        assert statuses == [403, 403, 200]
        assert (await fill(known(server, "finance"), post.path(), approve="true")).status == 303


async def test_who_is_not_signed_in_is_sent_to_sign_in_and_back(ran: list[str]) -> None:
    sign_in = "https://login.example/?next={url}"
    server = shop(MemoryStore(), ran, pages={"identify": signed_in, "sign_in": sign_in})
    async with server.running():
        path = await asked(server)
        sent = await pages_of(server).get(path)
        assert sent.status == 303
        assert sent.headers[
            "location"
        ] == "https://login.example/?next=https%3A%2F%2Fmcp.example" + path.replace("/", "%2F")


def test_a_server_with_authorization_must_know_who_opens_a_page() -> None:
    auth = Auth(f"{ORIGIN}/mcp", verifier=StaticTokens({"t": ALICE}))
    with pytest.raises(UsageError, match="identify="):
        shop(MemoryStore(), [], auth=auth)
