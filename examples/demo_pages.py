"""Ask anyone, by itself: a client that can ask nobody, a page in a browser, and the call that goes on.

With a Chromium the pages are filled in there, and pictures of them are saved in `.cache/pages`; without one
the same is done by HTTP. `--pictures FOLDER` saves them elsewhere.
"""

import argparse
import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx2
from mcp_types import TextContent
from rich.console import Console

from ekiden import Client
from ekiden.server.sealing.keys import new_key
from scripts.camera import SCHEMES, WIDTHS, save
from scripts.ports import free_port

SERVER = Path(__file__).parent / "people.py"
PATIENCE = 60.0
ARGUMENTS = {"to": "Sendai"}
BOOKING = {"/name": "Aiko", "/meal": '"rice"', "/quiet": "true"}
APPROVAL = {"/approve": "true", "/reason": "The fair is in May."}

console = Console(highlight=False)


class Reader(Protocol):
    """Somebody with a browser."""

    async def answer(self, link: str, name: str, values: Mapping[str, str]) -> None:
        """Open a link, fill in the form, and send it."""
        ...


class ByHttp:
    """Without a browser: the same requests."""

    async def answer(self, link: str, name: str, values: Mapping[str, str]) -> None:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(link)
            code = page.text.partition('name="form_code" value="')[2].partition('"')[0]
            form = {**values, "/seats": "2", "form_code": code, "action": "accept"}
            origin = link.partition("/ask/")[0]
            sent = await browser.post(link, data=form, headers={"origin": origin})
            if sent.status_code != 303:
                raise SystemExit(f"the form was not taken: {sent.status_code}")


class ByChromium:
    """With a browser, which also takes pictures."""

    def __init__(self, browser: Any, pictures: Path) -> None:
        self._browser = browser
        self._pictures = pictures

    async def answer(self, link: str, name: str, values: Mapping[str, str]) -> None:
        await asyncio.to_thread(self._answer, link, name, values)

    def _answer(self, link: str, name: str, values: Mapping[str, str]) -> None:
        self._browser.get(link)
        for scheme in SCHEMES:
            for width in WIDTHS:
                save(self._browser, self._pictures / f"{name}-{width}-{scheme}.png", width, scheme)
        for field, value in values.items():
            for control in self._browser.find_elements("name", field):
                if control.get_attribute("type") != "radio":
                    control.send_keys(value)
                elif control.get_attribute("value") == value:
                    control.click()
        save(self._browser, self._pictures / f"{name}-filled.png", 800, "light")
        self._browser.find_element("css selector", "button[value=accept]").click()
        self._browser.get(link)
        heading = self._browser.find_element("tag name", "h1").text
        save(self._browser, self._pictures / f"{name}-done.png", 800, "light")
        console.print(f"  the page says: {heading}", style="dim")


async def main(pictures: Path) -> None:
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        console.print("$ ekiden run examples/people.py", style="bold")
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ekiden.cli", "run", str(SERVER), "--port", str(port)),
            env={
                **os.environ,
                "EKIDEN_KEYS": new_key(),
                "PEOPLE_STORE": f"sqlite:///{folder}/people.db",
                "PEOPLE_ORIGIN": origin,
            },
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the demo, which stops the server itself.
        )
        assert server.stderr is not None
        log = Log(server.stderr)
        try:
            async with asyncio.timeout(PATIENCE):
                await log.find("is served at")
                await story(f"{origin}/mcp", log, pictures)
        finally:
            server.terminate()
            await server.wait()


class Log:
    """What the server writes."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    async def find(self, words: str) -> str:
        """The next line with these words."""
        while line := (await self._stream.readline()).decode():
            if words in line:
                return line
        raise SystemExit(f"the server ended without saying {words!r}")


async def story(url: str, log: Log, pictures: Path) -> None:
    if shutil.which("chromium") and shutil.which("chromedriver"):
        from scripts.chromium import running_chromium

        with running_chromium() as browser:
            await play(url, log, ByChromium(browser, pictures))
        console.print(f"Pictures of the pages: {pictures}", style="bold")
    else:
        console.print("There is no Chromium here (apt-get install chromium chromium-driver): by HTTP, then.")
        await play(url, log, ByHttp())


async def play(url: str, log: Log, reader: Reader) -> None:
    async with Client(url) as client:
        console.print("\nThe model calls book(to='Sendai'). Its client can show no form:", style="bold")
        told = await call(client)
        link = re.findall(r"http\S+/ask/\S+", told)[0]
        console.print("\nThe user opens the link and answers:", style="bold")
        await reader.answer(link, "user", BOOKING)
        console.print("\nThe model makes the same call again. It goes on, to the office:", style="bold")
        await call(client)
        line = await log.find("office@example.com is asked")
        console.print("\nThe office has been told, and answers:", style="bold")
        await reader.answer(re.findall(r"http\S+/ask/\S+", line)[0], "office", APPROVAL)
        console.print("\nThe same call, once more:", style="bold")
        done = await call(client)
        if "for Aiko" not in done:
            raise SystemExit("the call did not come to its end")


async def call(client: Client) -> str:
    result = await client.call_tool("book", ARGUMENTS)
    content = result.content[0]
    assert isinstance(content, TextContent)
    style = "green" if "for Aiko" in content.text else ""
    console.print(f"  {content.text}", style=style, soft_wrap=True)  # A link stays in one piece.
    return content.text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, default=Path(".cache/pages"))
    folder: Path = parser.parse_args().pictures
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(folder))
