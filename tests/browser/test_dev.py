"""`ekiden dev` in a real Chromium: forms of every kind, questions in both eras, reload, no barriers."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from scripts.chromium import running_chromium
from tests.browser.developing import Page, until
from tests.cli.developing.running import SERVER, Developing, developing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dev")]


@pytest.fixture(scope="module")
def browser() -> Generator[Chrome, None, None]:
    with running_chromium(console=True) as found:
        yield found


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Generator[Developing, None, None]:
    with developing(tmp_path_factory.mktemp("dev")) as found:
        yield found


@pytest.fixture
def page(browser: Chrome, dev: Developing) -> Page:
    return Page(browser, dev)


def test_every_kind_of_field_can_be_filled_in(page: Page) -> None:
    page.choose("every")
    assert "Any letters <b>at all</b>." in page.browser.page_source.replace("&lt;", "<").replace("&gt;", ">")
    for name, text in {
        "/text": 'say "hi" <now>',
        "/essay": "two\nlines",
        "/code": "abc",
        "/mail": "aiko@example.com",
        "/page": "https://example.com/a?b=c",
        "/count": "3",
        "/price": "2.5",
        "/to/city": "Kobe",
        "/to/floor": "2",
        "/tags": '["x", "y"]',
    }.items():
        page.type(name, text)
    page.put("/day", "2026-07-28")
    page.put("/moment", "2026-07-28T09:30")
    page.pick("/sure", "true")
    page.pick("/size", '"M"')
    page.pick("/color", '"white"')
    page.pick("/toppings", '"egg"')
    page.press("Call")
    page.see("This must match ^[A-Z]{3}$.")
    assert page.field("/text").get_attribute("value") == 'say "hi" <now>', "what was typed is still there"
    page.field("/code").clear()
    page.type("/code", "ABC")
    page.press("Call")
    page.see("Structured content")
    page.click("#run-data summary")
    shown = json.loads(until(lambda: page.browser.find_element(By.CSS_SELECTOR, "#run-data pre").text))
    assert shown == {
        "text": 'say "hi" <now>',
        "essay": "two\nlines",
        "code": "ABC",
        "mail": "aiko@example.com",
        "page": "https://example.com/a?b=c",
        "day": "2026-07-28",
        "moment": "2026-07-28T09:30:00+00:00",
        "count": 3,
        "price": 2.5,
        "sure": True,
        "size": "M",
        "color": "white",
        "toppings": ["egg"],
        "to": {"city": "Kobe", "floor": 2},
        "tags": ["x", "y"],
        "again": None,
        "nothing": None,
        "left": "a default",
    }


@pytest.mark.parametrize(("era", "version"), [("modern", "2026-07-28"), ("legacy", "2025-11-25")])
def test_questions_are_answered_on_the_page_without_loading_it_again(
    page: Page, era: str, version: str
) -> None:
    page.choose("refund")
    page.type("/order", "A-7")
    page.pick("era", era)
    page.press("Call")
    page.browser.execute_script("window.same = true")
    page.see("Refund A-7 how?")
    page.see("looking up A-7")
    page.pick("/value", '"voucher"')
    page.press("Answer")
    page.see("How many pieces?")
    page.type("/value", "3")
    page.press("Answer")
    page.see("3 of A-7 by voucher")
    page.see(f"as a client of {version} that can do everything")
    assert page.browser.execute_script("return window.same"), "it was the same page all the time"


def test_a_call_is_made_and_answered_by_keyboard(page: Page) -> None:
    page.choose("refund")
    page.type("/order", "B-1")
    page.pick("era", "modern")
    page.type("/order", Keys.ENTER)
    page.see("Refund B-1 how?")
    first = page.field("/value")
    page.browser.execute_script("arguments[0].focus()", first)
    first.send_keys(Keys.SPACE)
    page.browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.see("How many pieces?")
    page.type("/value", "2" + Keys.ENTER)
    page.see("2 of B-1 by card")


def test_what_is_typed_stays_while_the_call_goes_on(page: Page) -> None:
    page.choose("refund")
    page.type("/order", "C-1")
    page.press("Call")
    page.see("Refund C-1 how?")
    page.pick("/value", '"card"')
    page.press("Answer")
    page.see("How many pieces?")
    page.type("/value", "70")
    page.browser.execute_script("document.querySelector('.question').noValidate = true")
    page.press("Answer")
    page.see("This must be 10 or less.")
    assert page.field("/value").get_attribute("value") == "70"
    page.press("Cancel the call")
    page.see("The call was cancelled.")


def test_what_was_called_is_there_on_the_page_calls(page: Page) -> None:
    page.choose("refund")
    page.type("/order", "D-4")
    page.press("Call")
    page.see("Refund D-4 how?")
    page.pick("/value", '"card"')
    page.press("Answer")
    page.see("How many pieces?")
    page.browser.find_element(By.LINK_TEXT, "its story").click()
    until(lambda: "/calls/" in page.browser.current_url)
    page.see("D-4")
    page.browser.find_element(By.LINK_TEXT, "Calls").click()
    page.see("refund")
    until(lambda: page.browser.find_element(By.CSS_SELECTOR, ".table a")).click()
    page.see("How many pieces?")
    assert page.browser.find_element(By.LINK_TEXT, "Try")
    page.browser.find_element(By.LINK_TEXT, "Tasks").click()
    until(lambda: page.browser.current_url.endswith("/tasks"))


def test_a_mistake_in_the_file_is_shown_and_its_correction_too(page: Page) -> None:
    page.choose("greet")
    page.type("/name", "Aiko")
    page.dev.file.write_text(SERVER + "\n\ndef broken(:\n")
    page.see("The server cannot be loaded.")
    page.see("SyntaxError")
    page.dev.file.write_text(SERVER + "\n\n@server.tool\nasync def fresh() -> str:\n    return 'new'\n")
    page.see("fresh")
    assert page.field("/name").get_attribute("value") == "Aiko", "the form is the same: it was left alone"
    page.choose("fresh")
    page.press("Call")
    page.see("new")
    page.dev.file.write_text(SERVER)
    until(lambda: "fresh" not in page.browser.find_element(By.ID, "try-list").text)


def test_nothing_is_served_without_the_token(page: Page) -> None:
    page.browser.delete_all_cookies()
    page.browser.get(page.dev.origin)
    page.see("Open this page with the link that the command has printed")
    page.complaints()  # That the page is refused is written there, too.


def test_there_are_no_barriers_and_no_complaints_in_any_width_and_colour(page: Page, tmp_path: Path) -> None:
    page.complaints()
    page.choose("every")
    assert page.barriers() == []
    page.choose("refund")
    page.type("/order", "A-7")
    page.press("Call")
    page.see("Refund A-7 how?")
    for width in (360, 820, 1280):
        for dark in (False, True):
            page.look(tmp_path / f"asked-{width}-{'dark' if dark else 'light'}.png", width, dark=dark)
            assert page.barriers() == []
    page.pick("/value", '"card"')
    page.press("Answer")
    page.see("How many pieces?")
    page.type("/value", "3")
    page.press("Answer")
    page.see("3 of A-7 by card")
    assert page.barriers() == []
    assert page.complaints() == []
