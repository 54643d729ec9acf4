"""Who may look, see values and act, by the scopes of an access token."""

import asyncio
from typing import Any

import pytest

from ekiden import Auth, Principal, StaticTokens, VerifiedToken
from ekiden.cli.operating.ui import Verifying
from ekiden.pages.desk import Desk
from ekiden.pages.desk.access import ByScope
from ekiden.pages.web import Site
from ekiden.signals import VerifierUnavailable
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

    async def verify(token: str, address: str | None) -> Any:
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


class Slow:
    """Verifies what it is told to, once it may answer."""

    checks_audience = True

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0

    async def verify_token(self, token: str) -> VerifiedToken | None:
        self.asked += 1
        if token == "away":
            raise VerifierUnavailable("no network")
        if token != "good":
            await self.may_answer.wait()
            return None
        return VerifiedToken(subject="bob", scopes=["ekiden:look"])


async def test_bad_tokens_of_one_address_keep_nobody_else_out() -> None:
    slow = Slow()
    verify = Verifying(Auth("https://mcp.example/mcp", verifier=slow))
    flood = [asyncio.create_task(verify(f"bad{number}", "10.0.0.1")) for number in range(32)]
    async with asyncio.timeout(10):
        while slow.asked < 32:
            await asyncio.sleep(0)
        with pytest.raises(VerifierUnavailable):
            await verify("one-more", "10.0.0.1")
        assert await verify("good", "10.0.0.2") == ("bob", frozenset({"ekiden:look"}))
        slow.may_answer.set()
        assert set(await asyncio.gather(*flood)) == {None}


async def test_where_a_request_came_from_is_told_to_who_verifies_its_token() -> None:
    told: list[Any] = []

    async def verify(token: str, address: str | None) -> Any:
        told.append((token, address))
        return "bob", frozenset({"ekiden:look"})

    app = Site(secure=False)
    store = MemoryStore()
    access = ByScope(verify, SCOPES, secure=False, acts=False)
    desk = Desk(stories=store.stories, tasks=store.tasks, access=access)
    app.shared["tabs"] = desk.tabs
    desk.install(app)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/calls",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer token")],
        "client": ("10.0.0.9", 4711),
    }
    sent = asyncio.Queue[dict[str, Any]]()
    await app(scope, asyncio.Event().wait, sent.put)  # type: ignore[arg-type]
    assert told == [("token", "10.0.0.9")]


async def test_a_verifier_that_cannot_say_is_not_taken_for_a_no() -> None:
    access = ByScope(
        Verifying(Auth("https://mcp.example/mcp", verifier=Slow())), SCOPES, secure=False, acts=False
    )
    store = MemoryStore()
    desk = Desk(stories=store.stories, tasks=store.tasks, access=access)
    app = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(app)
    shown = await with_token(app, "away").get("/calls")
    assert (shown.status, "cannot be verified right now" in shown.words) == (503, True)
    browser = Browser(app)
    code = (await browser.get("/sign-in")).hidden("form_code")
    form = await browser.post("/sign-in", {"token": "away", "then": "/calls", "form_code": code})
    assert (form.status, "cannot be verified right now" in form.words) == (503, True)
    assert "not accepted" not in form.words


@pytest.mark.parametrize(("seconds", "ends"), [(10, False), (61, True)])
async def test_a_stream_goes_on_for_a_minute_while_its_token_cannot_be_verified(
    seconds: float, ends: bool
) -> None:
    store, now, problems = MemoryStore(), [1000.0], list[Exception]()

    async def verify(token: str, address: str | None) -> Any:
        if problems:
            raise problems[0]
        return "bob", frozenset({"ekiden:look"})

    access = ByScope(verify, SCOPES, secure=False, acts=False)
    desk = Desk(stories=store.stories, tasks=store.tasks, access=access, clock=lambda: now[0])
    app = Site(secure=False, shared={"tabs": desk.tabs})
    desk.install(app)
    sent = asyncio.Queue[dict[str, Any]]()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/live/calls",
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer token")],
    }
    live = asyncio.create_task(app(scope, asyncio.Event().wait, sent.put))  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        for _ in range(3):
            await sent.get()
        problems.append(VerifierUnavailable("a restart"))
        now[0] += seconds
        await store.stories.write([row_of("call")])
        told = await sent.get()
        if ends:
            await live
        else:
            live.cancel()
            await asyncio.wait([live])
    assert told.get("more_body", False) is not ends
