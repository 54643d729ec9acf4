"""Heads of 64 kB that anybody can send to a page: none of them keeps the event loop for long."""

from typing import Any

import pytest

from ekiden.pages.web.messages import read_request
from ekiden.stores.memory import MemoryStore
from tests.pages.browsing import Seen
from tests.pages.people.shop import pages_of, shop
from tests.processor import measured

_LONG = 64_000
_MOST_MOMENTS = 20
"""Of the processor. What was quadratic took from one second to a minute."""

_PATHS = {
    "parts": "/a" * (_LONG // 2),
    "slashes": "/" * _LONG + "a",
    "parts below a page": "/ask" + "/a" * (_LONG // 2),
    "letters": "/ask/" + "a" * _LONG,
    "dots": "/ask/" + "../" * (_LONG // 3),
}
_COOKIES = {
    "quotes": 'a="' + '\\"' * (_LONG // 2) + '"',
    "escapes": 'a="' + "\\134" * (_LONG // 4) + '"',
    "separators": ";" * _LONG,
    "names": "a;" * (_LONG // 2),
    "pairs": "a=b;" * (_LONG // 4),
    "equals": "=" * _LONG,
    "spaces": "a" + " " * _LONG + "b",
    "unread": "$a=b " * (_LONG // 5),
}


async def _opened(path: str, **headers: str) -> tuple[float, Seen]:
    """How long a page takes the processor, and the page."""
    browser = pages_of(shop(MemoryStore(), []))
    await browser.get("/ask/nothing")  # What is made once.
    with measured() as took:
        seen = await browser.get(path, **headers)
    return took.moments, seen


@pytest.mark.parametrize("what", _PATHS)
async def test_a_long_path_takes_no_time(what: str) -> None:
    moments, seen = await _opened(_PATHS[what])
    assert seen.status == 404
    assert moments < _MOST_MOMENTS


@pytest.mark.parametrize("what", _COOKIES)
async def test_a_long_cookie_takes_no_time(what: str) -> None:
    moments, seen = await _opened("/ask/nothing", cookie=_COOKIES[what])
    assert seen.status == 404
    assert moments < _MOST_MOMENTS


async def _nothing() -> dict[str, Any]:
    raise AssertionError("a GET has no body")


@pytest.mark.parametrize("other", ["odd", "a b=c", '"', "$Version=1", "a=b=c", "={};\t", "x=\u00e9"])
async def test_a_cookie_of_somebody_else_hides_none_of_ours(other: str) -> None:
    for header in (
        "__Host-ekiden-form={0}; {1}",
        "{1}; __Host-ekiden-form={0}",
        "{1};__Host-ekiden-form={0}",
    ):
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"cookie", header.format("c" * 43, other).encode("latin-1"))],
        }
        request = await read_request(scope, _nothing, form_bytes=10)
        assert request.cookies["__Host-ekiden-form"] == "c" * 43
