"""A real Chromium without a screen, driven by Selenium, for tests of what browsers allow.

The system's Chromium and its driver are used: on Debian, the packages `chromium` and `chromium-driver`.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

__all__ = ["running_chromium"]

PATIENCE: Final = 60.0


def _found(*names: str) -> str:
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    raise AssertionError(f"there is no {names[0]}: install it, on Debian with `apt-get install {names[0]}`")


@contextmanager
def running_chromium(*, console: bool = False) -> Generator[Chrome, None, None]:
    """A browser with a profile of its own; it ends with the block. With `console` it keeps what pages log."""
    options = Options()
    options.binary_location = _found("chromium", "chromium-browser", "google-chrome")
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")
    if console:
        options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Its sandbox does not work for root.
    with tempfile.TemporaryDirectory(prefix="ekiden-chromium-") as profile:
        options.add_argument(f"--user-data-dir={profile}")
        browser = Chrome(options=options, service=Service(_found("chromedriver", "chromium-driver")))
        browser.set_script_timeout(PATIENCE)
        browser.set_page_load_timeout(PATIENCE)
        try:
            yield browser
        finally:
            browser.quit()
