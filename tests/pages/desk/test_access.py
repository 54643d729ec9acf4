"""Who may look, see values and act, by the scopes of an access token."""

import asyncio
from typing import Any

import pytest

from ekiden import Auth, Principal, StaticTokens
from ekiden.cli.operating.ui import Verifying
from ekiden.pages.desk import Desk
from ekiden.pages.desk.access import ByScope
from ekiden.pages.web import Site
from ekiden.stores.memory import MemoryStore
from ekiden.testing.story_contract import _told as row_of
from ekiden.testing.task_contract import new_record
from tests.pages.browsing import Browser

SCOPES = {"look": "ekiden:look", "values": "ekiden:values", "act": "ekiden:act"}
TOKENS = {
    "user": Principal("ann", scopes=frozenset({"tools"})),
    "looks": Principal("bob", scopes=frozenset({"ekiden:look"})),
    "sees": Principal("cid", scopes=frozenset({"ekiden:look", "ekiden:values"})),
    "acts": Principal("dan", scopes=frozenset(SCOPES.values())),
}


async def site(*, acts: bool = True) -> tuple[Site, MemoryStore]:
    store = MemoryStore()
    await store.tasks.insert(new_record("task", arguments={"word": "a secret"}), {})
    auth = Auth("https://mcp.example/mcp", verifier=StaticTokens(TOKENS))
    access = ByScope(Verifying(auth), SCOPES, secure=False, acts=acts)
    desk = Desk(stories=store.stories, tasks=store.tasks, access=access)
    made = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(made)
    return made, store


def with_token(app: Site, token: str) -> Browser:
    browser = Browser(app)
    browser.headers["authorization"] = f"Bearer {token}"
    return browser


async def test_nobody_looks_without_a_good_token_that_grants_it() -> None:
    app, _ = await site()
    assert (await Browser(app).get("/tasks")).status == 401
    assert (await with_token(app, "invented").get("/tasks")).status == 401
    refused = await with_token(app, "user").get("/tasks")
    assert refused.status == 403
    assert "does not grant ekiden:look" in refused.words
    assert (await with_token(app, "looks").get("/tasks")).status == 200


async def test_a_person_signs_in_with_a_token_and_is_sent_back() -> None:
    app, _ = await site()
    browser = Browser(app)
    sent = await browser.get("/tasks/task", accept="text/html")
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?then=/tasks/task")
    page = await browser.get(sent.headers["location"])
    assert "Paste an access token" in page.words
    code = page.hidden("form_code")
    wrong = await browser.post("/sign-in", {"token": "invented", "then": "/tasks", "form_code": code})
    assert (wrong.status, wrong.cookies) == (401, [])
    code = wrong.hidden("form_code")
    done = await browser.post("/sign-in", {"token": "looks", "then": "/tasks/task", "form_code": code})
    assert (done.status, done.headers["location"]) == (303, "/tasks/task")
    assert "HttpOnly" in done.cookies[0]
    assert "SameSite=Strict" in done.cookies[0]
    assert (await browser.get("/tasks/task")).status == 200


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n\\evil.example",
        "",
    ],
)
async def test_signing_in_leads_nowhere_else(elsewhere: str) -> None:
    app, _ = await site()
    browser = Browser(app)
    code = (await browser.get("/sign-in")).hidden("form_code")
    done = await browser.post("/sign-in", {"token": "looks", "then": elsewhere, "form_code": code})
    assert done.headers["location"] == "/calls"


async def test_a_page_of_somebody_else_signs_nobody_in() -> None:
    app, _ = await site()
    browser, attacker = Browser(app), Browser(app)
    code = (await attacker.get("/sign-in")).hidden("form_code")
    await browser.get("/sign-in")
    for form in ({"token": "looks"}, {"token": "looks", "form_code": code}):
        refused = await browser.post("/sign-in", form)
        assert (refused.status, refused.cookies) == (403, [])


async def test_one_viewer_has_so_many_live_pages_open_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ekiden.pages.desk.desk._MOST_STREAMS", 2)
    app, _ = await site()

    def opened(token: str, sent: Any) -> "asyncio.Task[None]":
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/live/tasks",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {token}".encode())],
        }
        return asyncio.create_task(app(scope, asyncio.Event().wait, sent.put))  # type: ignore[arg-type]

    async def status(token: str, live: list["asyncio.Task[None]"]) -> int:
        sent = asyncio.Queue[dict[str, Any]]()
        live.append(opened(token, sent))
        first = await sent.get()
        await sent.get()
        return int(first["status"])

    live: list[asyncio.Task[None]] = []
    async with asyncio.timeout(10):
        assert [await status("looks", live) for _ in range(3)] == [200, 200, 429]
        assert await status("sees", live) == 200, "somebody else may look"
        for each in live:
            each.cancel()
        await asyncio.wait(live)
        again: list[asyncio.Task[None]] = []
        assert await status("looks", again) == 200
        again[0].cancel()
        await asyncio.wait(again)


async def test_live_pages_that_are_opened_in_the_same_moment_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ekiden.pages.desk.desk._MOST_STREAMS", 2)
    app, _ = await site()
    pieces: list[list[bytes]] = [[] for _ in range(6)]

    async def opened(place: int) -> None:
        async def send(event: dict[str, Any]) -> None:
            await asyncio.sleep(0)
            if event.get("body"):
                pieces[place].append(event["body"])

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/live/tasks",
            "query_string": b"",
            "headers": [(b"authorization", b"Bearer looks")],
        }
        await app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]

    live = [asyncio.create_task(opened(place)) for place in range(6)]
    _, left = await asyncio.wait(live, timeout=1.0)
    assert len(left) == 2
    assert sum(b"event: fragment" in b"".join(each) for each in pieces) == 2
    for each in left:
        each.cancel()
    await asyncio.wait(left)


async def test_scopes_say_who_sees_values_and_who_acts() -> None:
    app, _ = await site()
    story = {name: await with_token(app, name).get("/tasks/task") for name in ("looks", "sees", "acts")}
    assert "Cancel the task" not in story["sees"].words
    assert "Cancel the task" in story["acts"].words
    reading, _ = await site(acts=False)
    assert "Cancel the task" not in (await with_token(reading, "acts").get("/tasks/task")).words


async def test_what_was_done_is_noted_under_the_name_of_who_did_it() -> None:
    app, store = await site()
    browser = with_token(app, "acts")
    page = await browser.get("/tasks/task")
    done = await browser.post("/tasks/task/cancel", {"form_code": page.hidden("form_code")})
    assert done.status == 303
    (action,) = await store.stories.actions()
    assert (action.who, action.what, action.task) == ("dan", "cancel", "task")


@pytest.mark.parametrize("path", ["/live/calls", "/live/tasks", "/live/tasks/task"])
async def test_a_stream_ends_once_its_token_is_not_accepted_any_more(path: str) -> None:
    store, now, good = MemoryStore(), [1000.0], {"token": ("bob", frozenset({"ekiden:look"}))}
    await store.tasks.insert(new_record("task"), {})

    async def verify(token: str) -> Any:
        return good.get(token)

    access = ByScope(verify, SCOPES, secure=False, acts=False)
    desk = Desk(stories=store.stories, tasks=store.tasks, access=access, clock=lambda: now[0])
    app = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(app)
    sent = asyncio.Queue[dict[str, Any]]()
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer token")],
    }
    live = asyncio.create_task(app(scope, asyncio.Event().wait, sent.put))  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        seen = [await sent.get() for _ in range(3)]
        assert seen[0]["status"] == 200
        assert b"event: " in seen[2]["body"]
        good.clear()
        now[0] += 60
        await store.tasks.insert(new_record("second"), {})
        await store.tasks.cancel("task", now=now[0], tidy=False)
        await store.stories.write([row_of("call")])
        await live
    rest = b"".join([sent.get_nowait().get("body", b"") for _ in range(sent.qsize())])
    assert rest == b""
