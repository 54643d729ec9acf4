"""Pictures of whole pages in a real Chromium, at three widths, light and dark."""

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["SCHEMES", "WIDTHS", "looks", "overflow", "save", "show_as"]

WIDTHS: Final = (360, 800, 1280)
"""A phone, a tablet, a desk."""
SCHEMES: Final = ("light", "dark")
_LOWEST: Final = 640


def show_as(browser: "Chrome", width: int, scheme: str, height: int = _LOWEST) -> None:
    """Show pages at this width, in these colours."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},  # No picture of something half way.
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def looks(browser: "Chrome") -> Generator[tuple[int, str], None, None]:
    """Show the open page at every width in all colours, one after the other; ends at the first again."""
    for scheme in SCHEMES:
        for width in WIDTHS:
            show_as(browser, width, scheme)
            yield width, scheme
    show_as(browser, WIDTHS[-1], SCHEMES[0])


def overflow(browser: "Chrome") -> int:
    """By how many pixels something is wider than the page."""
    wide: int = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    return wide


def save(browser: "Chrome", path: Path, width: int, scheme: str, most: int = 20_000) -> None:
    """A picture of the whole page, or of its first `most` pixels."""
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    show_as(browser, width, scheme)
    whole = browser.execute_script("return document.documentElement.scrollHeight")
    show_as(browser, width, scheme, min(most, max(_LOWEST, whole)))
    if not browser.save_screenshot(str(path)):
        raise OSError(f"{path} cannot be written")
    show_as(browser, width, scheme)
