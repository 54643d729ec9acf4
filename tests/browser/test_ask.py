"""A real Chromium answers a question: by keyboard, on a phone, in the dark, without JavaScript."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from ekiden import Context, Pages, Server
from scripts.camera import SCHEMES, WIDTHS, looks, overflow
from scripts.chromium import running_chromium
from scripts.ports import free_port
from tests.pages.people.calling import Caller, text
from tests.serving import served

pytestmark = pytest.mark.slow

AXE = Path(".peers/node/node_modules/axe-core/axe.min.js")
RUN_AXE = """
const done = arguments[arguments.length - 1];
const told = found => found.violations.map(v => v.id + ": " + v.nodes.map(n => n.html).join(" "));
axe.run(document).then(found => done(told(found)));
"""


class Booking(BaseModel):
    name: Annotated[str, Field(title="Your name", min_length=2)]
    email: Annotated[str, Field(title="E-mail", json_schema_extra={"format": "email"})]
    seats: Annotated[int, Field(title="Seats", ge=1, le=9)] = 2
    meal: Annotated[Literal["fish", "rice"], Field(title="Meal")]
    extras: Annotated[list[Literal["window", "quiet"]], Field(title="Extras")] = Field(default_factory=list)
    insured: Annotated[bool, Field(title="Insure it?")]
    note: Annotated[str, Field(title="Anything else", max_length=500)] = ""


@pytest.fixture(scope="module")
def browser() -> Generator[Chrome, None, None]:
    with running_chromium() as found:
        yield found


def travel(port: int) -> Server:
    origin = f"http://127.0.0.1:{port}"
    server = Server(
        "travel",
        title="Travel desk",
        keys=[b"k" * 32],
        store="memory:",
        pages=Pages(origin, wait_seconds=0.0),
    )

    @server.tool(title="Book a journey")
    async def book(ctx: Context, to: str) -> str:
        """Book a train."""
        answer = await ctx.elicit(f"A journey to {to}: please tell who travels, and how.", Booking)
        return "declined" if answer.data is None else answer.data.model_dump_json()

    return server


def barriers(browser: Chrome) -> list[str]:
    """What axe-core finds wrong with the page. It is run beside the page's policy, as a debugger would."""
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
    found: list[str] = browser.execute_async_script(RUN_AXE)
    return found


def on_page(browser: Chrome, link: str) -> dict[str, Any]:
    """Look at a question in all sizes and colours, send a wrong form, then fill it in by keyboard alone."""
    seen: dict[str, Any] = {}
    browser.get(link)
    for width, scheme in looks(browser):
        seen[f"{scheme} {width}"] = barriers(browser)
        seen[f"{scheme} {width} overflow"] = overflow(browser)
    browser.find_element(By.CSS_SELECTOR, "button[value=accept]").click()
    WebDriverWait(browser, 20).until(lambda page: page.find_elements(By.CLASS_NAME, "problem"))
    seen["wrong"] = barriers(browser)
    seen["problems"] = len(browser.find_elements(By.CLASS_NAME, "problem"))
    _type_all(browser)
    seen["done"] = heading(browser, "Thank you")
    seen["done barriers"] = barriers(browser)
    return seen


def heading(browser: Chrome, words: str) -> str:
    """The heading, once it is this one: a form takes a moment."""
    WebDriverWait(browser, 20).until(lambda page: words in page.find_element(By.TAG_NAME, "h1").text)
    return browser.find_element(By.TAG_NAME, "h1").text


def _type_all(browser: Chrome) -> None:
    """From the first field on, with Tab, letters, arrows and Space."""
    browser.find_element(By.NAME, "/name").click()
    keys = ActionChains(browser)
    keys.send_keys("Aiko", Keys.TAB, "aiko@example.com", Keys.TAB, Keys.TAB, Keys.SPACE, Keys.TAB, Keys.SPACE)
    keys.send_keys(Keys.TAB, Keys.TAB, Keys.SPACE, Keys.TAB, "by keyboard", Keys.TAB, Keys.ENTER)
    keys.perform()


async def test_a_question_is_answered_by_keyboard_in_all_sizes_and_colours_without_barriers(
    browser: Chrome,
) -> None:
    port = free_port()
    server = travel(port)
    async with served(server, port=port):
        caller = Caller(server)
        told = text(await caller.call("book", to="Sendai"))
        link = next(word for word in told.split() if word.startswith("http"))
        seen = await asyncio.to_thread(on_page, browser, link)
        done = text(await caller.call("book", to="Sendai"))
    sizes = {f"{scheme} {width}" for scheme in SCHEMES for width in WIDTHS}
    assert [found for size in sizes for found in seen[size]] == []
    assert all(seen[f"{size} overflow"] <= 0 for size in sizes)
    assert seen["problems"] >= 4
    assert (seen["wrong"], seen["done barriers"]) == ([], [])
    assert seen["done"] == "Thank you. The answer was taken."
    assert '"name":"Aiko"' in done
    assert '"seats":2' in done
    assert '"note":"by keyboard"' in done


async def test_a_question_is_answered_without_javascript(browser: Chrome) -> None:
    port = free_port()
    server = travel(port)

    def declined(link: str) -> str:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            browser.get(link)
            browser.find_element(By.CSS_SELECTOR, "button[value=decline]").click()
            return heading(browser, "declined")
        finally:
            browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    async with served(server, port=port):
        caller = Caller(server)
        told = text(await caller.call("book", to="Sendai"))
        link = next(word for word in told.split() if word.startswith("http"))
        assert await asyncio.to_thread(declined, link) == "The question was declined."
        assert text(await caller.call("book", to="Sendai")) == "declined"
