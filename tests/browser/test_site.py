"""The built site: links lead somewhere, nothing is loaded from another host, Chromium has no complaint."""

import functools
import http.server
import json
import re
import threading
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.support.wait import WebDriverWait

from scripts.chromium import running_chromium
from scripts.ports import free_port
from scripts.site.__main__ import build

ROOT = Path(__file__).parent.parent.parent
AXE = ROOT / ".peers" / "node" / "node_modules" / "axe-core" / "axe.min.js"
SAMPLE = [
    "",
    "tutorial/first-server/",
    "how-to/tasks/",
    "how-to/move-from-fastmcp/",
    "reference/api/server/",
    "reference/commands/",
    "why/architecture/",
]
WIDTHS = (360, 820, 1280)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site() -> Path:
    return build()


@pytest.fixture(scope="module")
def address(site: Path) -> Generator[str, None, None]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Generator[Chrome, None, None]:
    with running_chromium(console=True) as found:
        yield found


class Links(HTMLParser):
    """What a page links to and loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(filter(None, (given.get("id"), given.get("name"))))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given["href"])


def pages_of(site: Path) -> dict[str, Links]:
    found = (page for page in site.rglob("*.html") if page.name != "404.html")
    return {
        f"/{page.relative_to(site).as_posix().removesuffix('index.html')}": Links(page.read_text())
        for page in found
    }


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    pages = pages_of(site)
    dead = []
    for here, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme:
                continue
            target, anchor = urldefrag(urljoin(here, link))
            if target in pages:
                if anchor and anchor not in pages[target].anchors and not anchor.startswith("__"):
                    dead.append(f"{here}: {link}")
            elif not (site / target.lstrip("/")).is_file():
                dead.append(f"{here}: {link}")
    assert len(pages) > 80
    assert dead == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    foreign = {link for page in pages_of(site).values() for link in page.loaded if urlsplit(link).netloc}
    styles = [
        found
        for sheet in site.rglob("*.css")
        for found in re.findall(r"url\((https?:[^)]+)", sheet.read_text())
    ]
    assert (foreign, styles) == (set(), [])


def test_models_find_every_page_as_markdown(site: Path) -> None:
    folder = next(site.glob("*/llms.txt")).parent
    links = re.findall(r"\]\(([^)]+)\)", (folder / "llms.txt").read_text())
    assert len(links) > 60
    assert [link for link in links if not (folder / link).is_file()] == []


def test_no_page_complains_in_the_console(site: Path, address: str, browser: Chrome) -> None:
    complaints = []
    for here in pages_of(site):
        browser.get(urljoin(address, here))
        complaints += [(here, entry["message"]) for entry in browser.get_log("browser")]
    assert complaints == []


@pytest.mark.parametrize(
    ("page", "diagrams"), [("", 1), ("why/architecture/", 3), ("why/replay/", 2), ("why/tasks/", 1)]
)
def test_diagrams_are_drawn(page: str, diagrams: int, address: str, browser: Chrome) -> None:
    browser.get(f"{address}0.1/{page}")
    drawn = "return document.querySelectorAll('div.mermaid').length"
    WebDriverWait(browser, 30).until(lambda chromium: chromium.execute_script(drawn) == diagrams)


def test_the_search_finds_a_page(address: str, browser: Chrome) -> None:
    index = json.loads((ROOT / ".cache/site/html/0.1/search.json").read_text())
    assert any("elicit" in json.dumps(item) for item in index["items" if "items" in index else "docs"])
    browser.get(f"{address}0.1/")
    assert browser.execute_script(
        "return document.querySelector('[data-md-component=search], .md-search') !== null"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(address: str, browser: Chrome, scheme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    found = []
    for page in SAMPLE:
        browser.get(f"{address}0.1/{page}")
        browser.execute_script(AXE.read_text())
        for violation in browser.execute_async_script("axe.run().then(r => arguments[0](r.violations))"):
            found += [(page, violation["id"], node["html"][:120]) for node in violation["nodes"][:2]]
    assert found == []


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(address: str, browser: Chrome, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    wide = []
    for page in SAMPLE:
        browser.get(f"{address}0.1/{page}")
        if browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(page)
    assert wide == []
