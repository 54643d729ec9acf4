"""What all pages have in common: routes, headers, forms, errors, static files."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ekiden.pages
from ekiden import StatusError, UsageError
from ekiden.pages.web import (
    Csrf,
    Door,
    Fragment,
    Gone,
    Reload,
    Site,
    WebRequest,
    WebResponse,
    event_stream,
    redirect,
)
from ekiden.pages.web.events import LiveEvent
from ekiden.pages.web.static import asset
from ekiden.pages.web.templates import lasting, render
from tests.pages.browsing import Browser

LOOK = Path(ekiden.pages.__file__).parent / "look"


def site(**options: object) -> Site:
    made = Site(**{"secure": True, **options})  # type: ignore[arg-type]
    csrf = Csrf(secure=made.secure)

    @made.get("/hello/{name}")
    async def hello(request: WebRequest) -> WebResponse:
        return WebResponse(f"hello {request.params['name']} {request.first('q')}".encode())

    @made.post("/say")
    async def say(request: WebRequest) -> WebResponse:
        csrf.check(request, "say")
        return WebResponse("|".join(request.form["word"]).encode())

    @made.get("/say")
    async def form(request: WebRequest) -> WebResponse:
        code, cookies = csrf.issue(request, "say")
        return WebResponse(code.encode(), cookies=cookies)

    @made.get("/broken")
    async def broken(request: WebRequest) -> WebResponse:
        raise RuntimeError("secret of the server")

    @made.get("/refused")
    async def refused(request: WebRequest) -> WebResponse:
        raise StatusError(429, "<b>Slowly</b>", headers={"retry-after": "7"})

    @made.get("/elsewhere")
    async def elsewhere(request: WebRequest) -> WebResponse:
        return redirect(f"{request.root}/hello/a b\r\nset-cookie: x=y")

    return made


async def test_a_path_has_parameters_and_a_query() -> None:
    seen = await Browser(site()).get("/hello/Aiko?q=twice")
    assert (seen.status, seen.text) == (200, "hello Aiko twice")


async def test_every_response_has_the_headers_that_keep_a_page_safe() -> None:
    browser = Browser(site())
    for path in ("/hello/a", "/nowhere", "/broken", "/refused"):
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "max-age" in headers["strict-transport-security"]


async def test_a_site_without_https_does_not_tell_browsers_to_insist_on_it() -> None:
    assert "strict-transport-security" not in (await Browser(site(secure=False)).get("/hello/a")).headers


async def test_what_is_not_there_and_what_is_not_allowed_are_pages_that_say_so() -> None:
    browser = Browser(site())
    missing, wrong = await browser.get("/nowhere"), await browser.post("/hello/a", {})
    assert (missing.status, wrong.status, wrong.headers["allow"]) == (404, 405, "GET")
    assert "There is no page at this address." in missing.words


async def test_a_page_that_fails_tells_the_log_and_not_the_reader(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        seen = await Browser(site()).get("/broken")
    assert seen.status == 500
    assert "secret of the server" not in seen.text
    assert "secret of the server" in caplog.text


async def test_what_an_error_says_is_text_and_not_html() -> None:
    seen = await Browser(site()).get("/refused")
    assert (seen.status, seen.headers["retry-after"]) == (429, "7")
    assert "&lt;b&gt;Slowly" in seen.text
    assert "<b>" not in seen.text


async def test_a_redirect_cannot_bring_a_header_with_it() -> None:
    seen = await Browser(site(), root="/pages").get("/elsewhere")
    assert seen.status == 303
    assert seen.headers["location"] == "/pages/hello/a%20b%0D%0Aset-cookie:%20x=y"
    assert seen.cookies == []


async def test_head_is_answered_as_get_without_a_body() -> None:
    seen = await Browser(site()).send("HEAD", "/hello/a")
    assert (seen.status, seen.body, seen.headers["content-length"]) == (200, b"", "8")


async def test_a_form_is_taken_only_with_the_code_of_this_browser_and_this_form() -> None:
    browser = Browser(site())
    code = (await browser.get("/say")).text
    assert (await browser.post("/say", {"form_code": code, "word": ["a", "b"]})).text == "a|b"
    stranger = Browser(site())
    statuses = [
        (await browser.post("/say", {"word": "a"})).status,
        (await browser.post("/say", {"form_code": "x" * 64, "word": "a"})).status,
        (await browser.post("/say", {"form_code": code, "word": "a"}, sec_fetch_site="cross-site")).status,
        (await stranger.post("/say", {"form_code": code, "word": "a"})).status,
    ]
    assert statuses == [403, 403, 403, 403]


async def test_the_cookie_of_a_form_is_for_this_host_over_https_only() -> None:
    seen = await Browser(site()).get("/say")
    assert seen.cookies[0].startswith("__Host-ekiden-form=")
    assert {"Path=/", "HttpOnly", "Secure", "SameSite=Lax"} <= set(seen.cookies[0].split("; "))
    plain = await Browser(site(secure=False)).get("/say")
    assert plain.cookies[0].startswith("ekiden-form=")
    assert "Secure" not in plain.cookies[0]


async def test_a_form_has_a_limit_and_must_be_a_form() -> None:
    browser = Browser(site(form_bytes=1000))
    large = await browser.post("/say", {"word": "x" * 1001})
    wrong = await browser.post("/say", b"{}", content_type="application/json")
    many = await browser.post("/say", b"&".join(b"a=1" for _ in range(200)) + b"&%ff=%ff")
    assert (large.status, wrong.status, many.status) == (413, 415, 400)


async def test_a_name_that_is_not_served_is_refused() -> None:
    made = site(hosts=["127.0.0.1:8123", "localhost:8123"])
    good = Browser(made, host="LOCALHOST:8123")
    evil = Browser(made, host="evil.example:8123")
    assert ((await good.get("/hello/a")).status, (await evil.get("/hello/a")).status) == (200, 421)


async def test_a_file_has_its_fingerprint_in_its_name_and_is_kept_for_ever() -> None:
    browser = Browser(site())
    path = asset("ekiden.css")
    seen = await browser.get(path)
    assert re.fullmatch(r"/static/ekiden\.[0-9a-f]{12}\.css", path)
    assert (seen.status, seen.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in seen.headers["cache-control"]
    for wrong in ("/static/ekiden.css", "/static/../templates/base.html", "/static/"):
        assert (await browser.get(wrong)).status == 404


def test_all_files_of_the_look_together_are_small_and_nothing_comes_from_elsewhere() -> None:
    files = [file for file in LOOK.rglob("*") if file.is_file()]
    assert 5_000 < sum(file.stat().st_size for file in files) < 150_000
    for file in files:
        if file.suffix == ".html":
            text = file.read_text()
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src)|\|\s*safe", text), file.name
        if file.suffix in (".html", ".css", ".js"):
            assert not re.search(r"https?://|@import|url\(", file.read_text()), file.name


def test_a_template_escapes_what_is_put_into_it_and_refuses_what_is_missing() -> None:
    values = {"site_name": "<i>", "tabs": (), "root": "", "status": 404, "phrase": "x", "message": "<script>"}
    with pytest.raises(Exception, match="is undefined"):
        render("base.html", {"tabs": [("/", "x")], "root": "", "site_name": "x"})
    text = render("error.html", values)
    assert "<script>" not in text.partition("</head>")[2]
    assert "&lt;i&gt;" in text


def test_a_site_wants_paths_that_begin_with_a_slash() -> None:
    with pytest.raises(UsageError, match="begins with a slash"):
        Site(secure=True).get("hello")


def test_durations_are_words() -> None:
    assert [lasting(s) for s in (0, 0.34, 12, 119, 300, 7300, 200_000)] == [
        "0 ms",
        "340 ms",
        "12 s",
        "119 s",
        "5 min",
        "2 h",
        "2 days",
    ]


async def test_a_token_in_a_link_becomes_a_cookie_and_nothing_else_opens_the_door() -> None:
    made = site(secure=False)
    door = Door()
    made.before = door.check
    browser = Browser(made)
    link = door.link("http://127.0.0.1:8123", "/hello/a")
    path = link.removeprefix("http://127.0.0.1:8123")
    assert (await browser.get("/hello/a")).status == 401
    assert (await browser.get("/hello/a?token=guessed")).status == 401
    let_in = await browser.get(path)
    assert (let_in.status, let_in.headers["location"]) == (303, "/hello/a")
    assert {"HttpOnly", "SameSite=Strict"} <= set(let_in.cookies[0].split("; "))
    assert (await browser.get("/hello/a")).status == 200
    assert (await Browser(made).get(asset("live.js"))).status == 200


async def test_live_changes_are_sent_as_events_and_their_source_is_closed_when_the_browser_leaves() -> None:
    closed = asyncio.Event()

    async def changes() -> AsyncIterator[LiveEvent]:
        try:
            yield Fragment("<p id=a>\r\nnew</p>")
            yield Gone("b")
            yield Reload()
            await asyncio.Event().wait()
        finally:
            closed.set()

    response = event_stream(changes())
    assert not isinstance(response.body, bytes)
    pieces = [await anext(response.body) for _ in range(4)]
    assert pieces == [
        b"retry: 2000\n\n",
        b"event: fragment\ndata: <p id=a>\ndata: new</p>\n\n",
        b"event: gone\ndata: b\n\n",
        b"event: reload\ndata: \n\n",
    ]
    waiting = asyncio.ensure_future(anext(response.body))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await response.body.aclose()  # type: ignore[attr-defined]
    await asyncio.wait_for(closed.wait(), 5)


async def test_events_that_end_end_the_response() -> None:
    made = Site(secure=False)

    @made.get("/events")
    async def events(request: WebRequest) -> WebResponse:
        async def changes() -> AsyncIterator[LiveEvent]:
            yield Gone("a")

        return event_stream(changes())

    seen = await Browser(made).get("/events")
    assert seen.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert seen.text == "retry: 2000\n\nevent: gone\ndata: a\n\n"
