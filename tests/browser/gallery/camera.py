"""Takes the pictures of one page, and refuses a page that is wider than its window."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.remote.webelement import WebElement

from scripts.camera import SCHEMES, WIDTHS, looks, overflow, save

PATIENCE = 30.0


class Camera:
    """A browser, and the folder that its pictures go to."""

    def __init__(self, browser: Chrome, folder: Path, docs: Path | None = None) -> None:
        self.browser = browser
        self._folder = folder
        self._docs = docs

    def open(self, url: str, says: str = "") -> None:
        """Open a page, and wait for these words."""
        self.browser.get(url)
        self.wait_for(says)

    def wait_for(self, words: str) -> None:
        """Wait until the page says this."""
        seen = until(lambda: words in self._text())
        assert seen, f"{words!r} is not on the page:\n{self._text()}"

    def _text(self) -> str:
        found: str = self.browser.execute_script("return document.body.innerText")
        return found

    def find(self, css: str) -> WebElement:
        """Wait for something on the page."""
        found: list[WebElement] | None = until(lambda: self.browser.find_elements("css selector", css))
        assert found, f"{css} is not on the page:\n{self._text()}"
        return found[0]

    def click(self, css: str) -> None:
        """Click on what this finds first."""
        assert until(lambda: self._clicked(css)), f"{css} cannot be clicked"

    def _clicked(self, css: str) -> bool:
        self.browser.find_element("css selector", css).click()
        return True

    def fill(self, css: str, text: str) -> None:
        """Type into a field."""
        self.find(css).send_keys(text)

    def show_in_docs(self, name: str, most: int) -> None:
        """A picture of the open page for the documentation, if those are wanted: its first `most` pixels."""
        if self._docs is not None:
            save(self.browser, self._docs / f"{name}.png", 1000, "light", most)

    def take(self, name: str) -> None:
        """Pictures of the open page."""
        too_wide = [
            (width, overflow(self.browser)) for width, _ in looks(self.browser) if overflow(self.browser) > 0
        ]
        for scheme in SCHEMES:
            for width in WIDTHS:
                save(self.browser, self._folder / f"{name}-{width}-{scheme}.png", width, scheme)
        print(f"  {name}" + (f": too wide at {too_wide}" if too_wide else ""), flush=True)
        assert not too_wide, name


def until(look: Callable[[], Any]) -> Any:
    """What `look` finds, once it finds something; None if it does not in time."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except WebDriverException:
            pass  # The page is being replaced.
        time.sleep(0.05)
    return None
