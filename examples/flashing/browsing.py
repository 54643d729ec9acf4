"""For the tests: a person who opens a link and sends the form that is there."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2

T = TypeVar("T")


async def answer_page(browser: httpx2.AsyncClient, link: str, action: str = "accept", **fields: str) -> str:
    """Open the link, fill in the form, send it; the page that was shown."""
    page = await browser.get(link)
    assert page.status_code == 200, page.text
    found = re.search(r'name="form_code" value="([^"]+)"', page.text)
    assert found is not None, page.text
    form = {"form_code": found[1], "action": action, **{f"/{name}": value for name, value in fields.items()}}
    origin = "/".join(link.split("/", 3)[:3])
    sent = await browser.post(link, data=form, headers={"origin": origin})
    assert sent.status_code == 303, sent.text
    return page.text


async def until(look: Callable[[], Awaitable[T | None]], seconds: float = 60.0) -> T:
    """What a look finds at last."""
    async with asyncio.timeout(seconds):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.02)


def said(result: Any) -> str:
    """The words of a result."""
    return str(result["content"][0]["text"])
