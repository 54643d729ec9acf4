"""The page Try, without a browser: what it lists, what it calls and as whom, how questions are answered."""

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import Field

from ekiden import Context, Server, ToolError
from tests.pages.trying.shop import PICTURE, trying


async def test_everything_that_the_server_has_is_listed_with_its_form() -> None:
    async with trying() as (browser, _):
        seen = await browser.get("/")
        assert seen.status == 200
        for words in ("shop 1.2", "Tools", "refund", "Prompts", "greet", "Resources", "Resource templates"):
            assert words in seen.words
        assert "Refund an order, after asking how." in seen.words, "the first is chosen"
        assert "The number on the receipt." in seen.words
        shipping = await browser.get("/?kind=tool&name=ship")
        for name in ("/to/city", "/to/floor", "/size", "/gift"):
            assert f'name="{name}"' in shipping.text


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_with_two_questions_is_answered_on_the_page_in_both_eras(era: str) -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "refund", {"/order": "A-7"}, era=era)
        asked = await browser.until(where, "Refund A-7 how?")
        assert "waiting" in asked.words
        assert "looking up A-7" in asked.words, "the log of the call"
        assert (await browser.answer(where, 1, {"/value": '"voucher"'})).status == 303
        await browser.until(where, "How many pieces?")
        await browser.answer(where, 2, {"/value": "3"})
        ended = await browser.until(where, "3 of A-7 by voucher")
        assert "done" in ended.words
        version = "2026-07-28" if era == "modern" else "2025-11-25"
        assert f"as a client of {version} that can do everything" in ended.words
        assert ("Round 1: 1 question to answer" in ended.words) == (era == "modern")


async def test_an_answer_that_does_not_fit_is_shown_again_and_not_sent() -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "refund", {"/order": "A-7"})
        await browser.until(where, "Refund A-7 how?")
        await browser.answer(where, 1, {"/value": '"card"'})
        await browser.until(where, "How many pieces?")
        refused = await browser.answer(where, 2, {"/value": "30"})
        assert refused.status == 303
        again = await browser.get(where)
        assert "This must be 10 or less." in again.words
        assert 'value="30"' in again.text


async def test_a_question_can_be_declined() -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "pay")
        asked = await browser.until(where, "Pay at the bank")
        assert 'href="https://bank.example/pay"' in asked.text
        await browser.answer(where, 1, {}, action="decline")
        ended = await browser.until(where, "Result")
        assert "decline" in ended.words


async def test_what_the_model_says_and_the_roots_are_typed_on_the_page() -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "summarize", {"/text": "all"})
        asked = await browser.until(where, "You write what the model says.")
        assert "Summarize all" in asked.words
        assert "At most 100 tokens" in asked.words
        await browser.answer(where, 1, {"/reply": "Nothing new."})
        await browser.until(where, "Nothing new.")
        where = await browser.call("tool", "where")
        asked = await browser.until(where, "Which folders does the client work in?")
        assert "file:///work" in asked.text, "the folder of the command is offered"
        await browser.answer(where, 1, {"/roots": "file:///a\r\nfile:///b\r\n"})
        await browser.until(where, "file:///a, file:///b")


async def test_a_client_without_a_capability_is_answered_as_such_a_client() -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "refund", {"/order": "A-7"}, able=["roots"])
        ended = await browser.until(where, "failed")
        assert "as a client of 2026-07-28 with roots" in ended.words
        assert "elicitation" in ended.words
        page = await browser.get("/?kind=tool&name=ship")
        assert page.text.count(" checked") == 3, "the choice is kept: the era, one capability, the default"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_task_is_followed_to_its_end(era: str) -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "slow", era=era)
        await browser.until(where, "Go on?")
        await browser.answer(where, 1, {"/value": "true"})
        ended = await browser.until(where, "sure: True")
        assert "It became task" in ended.words
        where = await browser.call("tool", "slow", era=era, able=["forms"])
        await browser.until(where, "Go on?")
        await browser.answer(where, 1, {"/value": "false"})
        ended = await browser.until(where, "sure: False")
        assert "It became task" not in ended.words


async def test_prompts_resources_and_templates_are_read() -> None:
    async with trying() as (browser, _):
        where = await browser.call("prompt", "greet", {"/name": "Aiko"})
        await browser.until(where, "Say hello to Aiko, kind")
        where = await browser.call("resource", "shop://prices")
        await browser.until(where, "apple 1")
        where = await browser.call("template", "shop://orders/{number}", {"/number": "a b"})
        ended = await browser.until(where, "order a b")
        assert "shop://orders/a%20b" in ended.words


async def test_pictures_and_sounds_are_shown_and_text_is_only_text() -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "show")
        ended = await browser.until(where, "Result")
        assert "&lt;b&gt;text&lt;/b&gt;" in ended.text
        run = where.partition("run=")[2]
        picture = await browser.get(f"/try/runs/{run}/media/0")
        assert (picture.headers["content-type"], picture.body) == ("image/png", PICTURE)
        assert (await browser.get(f"/try/runs/{run}/media/1")).headers["content-type"] == "audio/wav"
        for wrong in ("2", "9", "x"):
            assert (await browser.get(f"/try/runs/{run}/media/{wrong}")).status == 404


async def test_errors_are_shown_as_what_they_are() -> None:
    async with trying() as (browser, _):
        failed = await browser.until(await browser.call("tool", "fail"), "The tool failed")
        assert "closed <today>" in failed.words
        where = await browser.call("tool", "ship", {"as": "json", ".": '{"size": "XL"}'})
        refused = await browser.until(where, "failed")
        assert "size" in refused.words, "JSON is sent as it is, to see what the server says"


async def test_a_form_that_does_not_fit_is_not_sent() -> None:
    async with trying() as (browser, _):
        code = (await browser.get("/?kind=tool&name=ship")).hidden("form_code")
        form = {"form_code": code, "kind": "tool", "name": "ship", "/size": '"S"', "/to/floor": "-1"}
        seen = await browser.post("/try", form)
        assert seen.status == 422
        assert "This is required." in seen.words
        assert "This call is not known" in (await browser.get("/try/runs/none/media/0")).words


async def test_structured_content_and_the_whole_result_can_be_unfolded() -> None:
    async with trying() as (browser, _):
        form = {"/to/city": "Kobe", "/size": '"M"', "/gift": "true"}
        ended = await browser.until(await browser.call("tool", "ship", form), "Structured content")
        assert '"city": "Kobe", "size": "M", "gift": true' in ended.words
        again = await browser.get(await browser.call("tool", "ship", form))
        assert 'value="Kobe"' in again.text, "the form holds what was sent"


async def test_a_call_can_be_cancelled() -> None:
    async with trying() as (browser, _):
        where = await browser.call("tool", "refund", {"/order": "A-7"})
        asked = await browser.until(where, "Refund A-7 how?")
        run = where.partition("run=")[2]
        await browser.post(f"/try/runs/{run}/cancel", {"form_code": asked.hidden("form_code")})
        ended = await browser.until(where, "The call was cancelled.")
        assert "not answered Refund A-7 how?" in ended.words


async def test_nothing_is_called_without_the_code_of_the_form() -> None:
    async with trying() as (browser, _):
        await browser.get("/")
        for path in ("/try", "/try/runs/x/cancel", "/try/runs/x/questions/1"):
            assert (await browser.post(path, {"kind": "tool", "name": "fail"})).status == 403


async def test_a_server_that_cannot_be_reached_is_told_of() -> None:
    async with trying() as (browser, pages):
        pages.status.where = "http://127.0.0.1:9/mcp"
        seen = await browser.get("/")
        assert (seen.status, "The server cannot be called right now" in seen.words) == (200, True)
        pages.status.failed("server.py cannot be loaded: SyntaxError: invalid syntax (line 3)")
        assert "SyntaxError: invalid syntax (line 3)" in (await browser.get("/")).words


async def test_a_server_with_nothing_says_what_to_do() -> None:
    async with trying(Server("bare")) as (browser, _):
        assert "There is nothing to call yet" in (await browser.get("/")).words
        assert "This is not here any more" in (await browser.get("/?kind=tool&name=gone")).words


async def test_old_calls_are_forgotten() -> None:
    async with trying() as (browser, _):
        first = await browser.call("tool", "fail")
        await browser.until(first, "The tool failed")
        for _ in range(31):
            await browser.until(await browser.call("tool", "fail"), "The tool failed")
        assert "The tool failed" not in (await browser.get(first)).words


async def events(browser: Any, path: str, wanted: list[str], act: Any = None) -> str:
    """What a stream of events sends until all wanted words have come."""
    sent = bytearray()
    whole = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if whole.is_set():
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.extend(event.get("body", b""))
        if all(words.encode() in sent for words in wanted):
            whole.set()

    path, _, query = path.partition("?")
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
    headers = [(b"host", b"127.0.0.1"), (b"cookie", cookie.encode())]
    streaming = asyncio.create_task(browser.app({**scope, "headers": headers}, receive, send))
    async with asyncio.timeout(20):
        if act is not None:
            await asyncio.sleep(0.2)
            act()
        waiting = asyncio.create_task(whole.wait())
        await asyncio.wait({waiting, streaming}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        streaming.cancel()
        await asyncio.wait({streaming})
    return sent.decode()


async def test_an_open_page_is_sent_the_parts_that_change() -> None:
    async with trying() as (browser, pages):
        where = await browser.call("tool", "refund", {"/order": "A-7"})
        await browser.until(where, "Refund A-7 how?")
        live = (
            (await browser.get(where))
            .text.partition('data-live="')[2]
            .partition('"')[0]
            .replace("&amp;", "&")
        )
        sent = await events(browser, live, ["question-1", "run-state", "run-log", "try-list"])
        assert "event: fragment" in sent
        failed = await events(browser, live, ["SyntaxError"], lambda: pages.status.failed("SyntaxError: x"))
        assert "The server cannot be loaded." in failed


async def test_a_page_whose_form_has_changed_is_loaded_again() -> None:
    async with trying() as (browser, _):
        live = "/try/events?form=of-an-older-version&kind=tool&name=ship"
        sent = await events(browser, live, ["event: reload"])
        assert "event: reload" in sent


async def test_words_of_a_hostile_server_stay_words() -> None:
    evil = '"><script>alert(1)</script>'
    server = Server("hostile", keys=[b"k" * 32])

    @server.tool(name="bad", title=evil, description=evil)
    async def bad(ctx: Context, it: Annotated[str, Field(title=evil, description=evil)] = evil) -> str:
        answer = await ctx.elicit(evil, Annotated[str, Field(title=evil, default=evil)])
        raise ToolError(f"{evil}{answer.action}")

    async with trying(server) as (browser, _):
        where = await browser.call("tool", "bad")
        asked = await browser.until(where, "the server asks")
        await browser.answer(where, 1, {}, action="decline")
        ended = await browser.until(where, "The tool failed")
        for seen in (asked, ended):
            assert "<script>alert" not in seen.text
            assert "&lt;script&gt;alert(1)" in seen.text


async def test_arguments_are_written_as_json_and_what_was_typed_is_taken_over() -> None:
    async with trying() as (browser, _):
        typed = {"/order": "A-7", "switch": "yes"}
        as_json = await browser.send("tool", "refund", typed)
        assert 'name="."' in as_json.text
        assert '"order": "A-7"' in as_json.words
        broken = await browser.send("tool", "refund", {".": '{"order":', "as": "json", "switch": "yes"})
        assert "This is not JSON" in broken.words
        form = await browser.send("tool", "refund", {".": '{"order": "B-8"}', "as": "json", "switch": "yes"})
        assert 'value="B-8"' in form.text
        called = await browser.send("tool", "refund", {".": '{"order": 5}', "as": "json"})
        assert "order" in (await browser.until(called.headers["location"].partition("#")[0], "failed")).words


async def test_the_page_says_why_calls_are_not_shown() -> None:
    async with trying() as (browser, pages):
        assert "cannot be shown" not in (await browser.get("/")).words
        pages.status.unseen = "Calls cannot be shown here."
        assert "Calls cannot be shown here." in (await browser.get("/")).words
