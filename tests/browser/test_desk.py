"""A real Chromium looks at Calls and Tasks: a killed worker, a retry, an answer given on the page."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome

from ekiden import CallLost, Client, PendingCall, TransportError
from ekiden.server.sealing.keys import new_key
from scripts.camera import looks, overflow, save
from scripts.chromium import running_chromium
from scripts.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("desk")]

SERVER = Path(__file__).with_name("booking.py")
AXE = Path(".peers/node/node_modules/axe-core/axe.min.js")
PATIENCE = 60.0


@pytest.fixture(scope="module")
def browser() -> Generator[Chrome, None, None]:
    with running_chromium() as found:
        yield found


@contextmanager
def command(*words: str, says: str, **env: str) -> Generator[str, None, None]:
    """Run a command of ekiden; the line that it says when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ekiden.cli", *words],
        env={**os.environ, **env},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        heard: list[str] = []
        while line := process.stderr.readline():
            heard.append(line)
            if says in line:
                break
        assert says in "".join(heard[-1:]), heard
        os.set_blocking(process.stderr.fileno(), False)
        yield line
    finally:
        process.terminate()
        process.communicate(timeout=30)


class Opened:
    """A served server, and its pages in a browser."""

    def __init__(self, browser: Chrome, url: str, link: str) -> None:
        self.browser = browser
        self.url = url
        self.link = link
        self.origin = link.partition("/calls")[0]

    def text(self) -> str:
        found: str = self.browser.execute_script("return document.querySelector('main').innerText")
        return found

    def wait_for(self, words: str) -> None:
        """Wait until the page that is open says this by itself."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if words.lower() in self.text().lower():
                    return
            except StaleElementReferenceException:
                pass
            time.sleep(0.1)
        raise AssertionError(f"{words!r} did not appear:\n{self.text()}")

    def click(self, css: str) -> None:
        self.browser.find_element("css selector", css).click()

    def barriers(self) -> list[str]:
        """What axe-core finds wrong with the page: it is run beside the page's policy."""
        self.browser.execute_script(AXE.read_text())
        found = self.browser.execute_async_script(
            "const done = arguments[0];"
            "axe.run().then(f => done(f.violations.map("
            "v => v.id + ' ' + v.nodes.map(n => n.html).join(' '))))"
        )
        assert isinstance(found, list)
        return found

    def look(self, name: str, folder: Path) -> None:
        """Look at the open page at three widths, light and dark: nothing sticks out, axe finds nothing."""
        for width, scheme in looks(self.browser):
            assert overflow(self.browser) <= 0, (name, width)
            save(self.browser, folder / f"{name}-{width}-{scheme}.png", width, scheme)
            assert self.barriers() == [], (name, width, scheme)


@pytest.fixture
def opened(browser: Chrome, tmp_path: Path) -> Generator[Opened, None, None]:
    store, port = f"sqlite:///{tmp_path / 'store.db'}", free_port()
    env = {"EKIDEN_KEYS": new_key(), "BOOKING_MARKS": str(tmp_path)}
    run = ("run", str(SERVER), "--workers", "2", "--port", str(port), "--store", store)
    with ExitStack() as stack:
        stack.enter_context(command(*run, says="is served at", **env))
        ui = ("ui", "--store", store, "--port", str(free_port()), "--allow-actions", "--show-values")
        line = stack.enter_context(command(*ui, says="calls and tasks", **env))
        found = re.search(r"http\S+", line)
        assert found is not None
        yield Opened(browser, f"http://127.0.0.1:{port}/mcp", found[0])


async def begin(url: str, tool: str, **arguments: Any) -> Any:
    async with Client(url, elicit=nobody) as client:
        return await client.start_tool(tool, arguments)


async def nobody(_: Any) -> Any:
    raise AssertionError("questions are answered by hand here")


async def go_on(url: str, pending: PendingCall, value: object) -> Any:
    """Answer the only question. A round whose worker dies is sent again."""
    answers = {key: {"action": "accept", "content": {"value": value}} for key in pending.requests}
    for _ in range(20):
        try:
            async with Client(url, elicit=nobody) as client:
                return await client.resume(pending, answers)
        except (TransportError, CallLost):
            await asyncio.sleep(0.2)
    raise AssertionError("the round never ended")


def test_the_story_of_a_call_whose_worker_was_killed(opened: Opened, tmp_path: Path) -> None:
    opened.browser.get(opened.link)
    opened.wait_for("No calls yet")
    opened.look("calls-empty", tmp_path)
    pending = asyncio.run(begin(opened.url, "book", city="Hakone"))
    opened.wait_for("waits for an answer")
    opened.click("#rows a")
    opened.wait_for("Leg 1")
    opened.look("call-waiting", tmp_path)
    pending = asyncio.run(go_on(opened.url, pending, 3))
    opened.wait_for("its worker was lost")
    ended = asyncio.run(go_on(opened.url, pending, True))
    assert "Hakone" in ended.content[0].text
    opened.wait_for("completed")
    text = opened.text()
    assert text.count("its worker was lost") == 1
    legs = opened.browser.find_elements("css selector", ".story > li")
    assert len(legs) == 4
    workers = re.search(r"Workers\s+(\d)", text)
    assert workers is not None
    assert int(workers[1]) >= 2
    for words in ("How many nights?", "Send the receipt?", "reserve", "pay", "replayed", "reserved a room"):
        assert words in text, words
    opened.click("#test summary")
    assert "test_book_as_it_was_called" in opened.text()
    opened.look("call", tmp_path)
    opened.browser.get(opened.origin + "/calls")
    opened.look("calls", tmp_path)


def test_a_task_with_a_retry_is_answered_on_the_page(opened: Opened, tmp_path: Path) -> None:
    opened.browser.get(opened.link)
    opened.browser.get(opened.origin + "/tasks")
    opened.wait_for("No tasks yet")
    asyncio.run(begin(opened.url, "report", title="the year"))
    opened.wait_for("an answer of the client")
    opened.wait_for("Publish the year?")
    opened.look("tasks", tmp_path)
    opened.click("#rows a")
    opened.wait_for("2 tries")
    assert "the line is busy" in opened.text()
    opened.look("task", tmp_path)
    opened.click("input[type=radio][value=true]")
    opened.click("button[value=accept]")
    opened.wait_for("42 pages accept")
    opened.wait_for("completed")
    opened.browser.get(opened.origin + "/actions")
    opened.wait_for("The answer was taken.")
    opened.look("actions", tmp_path)
