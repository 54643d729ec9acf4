"""A Chromium at the page of `ekiden dev`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from scripts.camera import overflow, save
from tests.cli.developing.running import Developing
from tests.cli.developing.running import until as sooner_or_later

ROOT = Path(__file__).parent.parent.parent
AXE = ROOT / ".peers" / "node" / "node_modules" / "axe-core" / "axe.min.js"


def until(look: Callable[[], Any]) -> Any:
    """What `look` finds on a page. What it looks at may be replaced meanwhile."""
    return sooner_or_later(look, (WebDriverException,))


class Page:
    """What a person does at the page."""

    def __init__(self, browser: Chrome, dev: Developing) -> None:
        self.browser = browser
        self.dev = dev
        browser.get(dev.link)

    def choose(self, name: str) -> None:
        until(lambda: self.browser.find_element(By.LINK_TEXT, name)).click()
        until(lambda: self.browser.find_element(By.TAG_NAME, "h1").text == name)

    def see(self, words: str) -> None:
        """Wait until the page has these words."""
        until(lambda: words in self.browser.find_element(By.ID, "main").text)

    def field(self, name: str) -> WebElement:
        found: WebElement = until(lambda: next(iter(self.browser.find_elements(By.NAME, name)), None))
        return found

    def type(self, name: str, text: str) -> None:
        self.field(name).send_keys(text)

    def put(self, name: str, text: str) -> None:
        """For controls that take letters in an order of their own, which depends on the language."""
        self.browser.execute_script("arguments[0].value = arguments[1]", self.field(name), text)

    def pick(self, name: str, token: str) -> None:
        """A button or an option."""
        found = (
            f'[name="{name}"][value={json.dumps(token)}], [name="{name}"] option[value={json.dumps(token)}]'
        )
        until(lambda: self.browser.find_elements(By.CSS_SELECTOR, found))[0].click()

    def press(self, label: str) -> None:
        self.browser.find_element(By.XPATH, f"//button[normalize-space()='{label}']").click()

    def click(self, css: str) -> None:
        """Click on something that may be drawn again at this moment."""
        until(lambda: self.browser.find_element(By.CSS_SELECTOR, css).click() is None)

    def complaints(self) -> list[str]:
        """What Chromium has written to its console."""
        return [entry["message"] for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]

    def barriers(self) -> list[str]:
        """What axe-core finds wrong with the page."""
        self.browser.execute_script(AXE.read_text())
        script = "const done = arguments[0]; axe.run().then((found) => done(found.violations))"
        found = self.browser.execute_async_script(script)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]

    def look(self, path: Path, width: int, *, dark: bool) -> None:
        """A picture of the whole page."""
        save(self.browser, path, width, "dark" if dark else "light")
        assert overflow(self.browser) <= 0, "nothing is wider than the page"
