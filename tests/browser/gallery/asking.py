"""The pages on which people answer: every kind of form, and every end."""

import asyncio
import importlib
import os
import re
import tempfile
from types import ModuleType

from scripts.ports import free_port
from tests.browser.gallery.camera import Camera
from tests.pages.people.calling import Caller, text
from tests.serving import served

SHOWN = ("every", "bool", "one-text", "choice", "many", "several", "fifty", "arabic", "wide", "emoji")


def loaded(**variables: str) -> ModuleType:
    """The server, made anew with these variables."""
    os.environ.update(variables)
    from tests.browser.gallery import harsh

    return importlib.reload(harsh)


def link_in(words: str) -> str:
    return re.findall(r"http\S+/ask/\S+", words)[0]


async def asking(camera: Camera) -> None:
    """All pictures of questions."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EKIDEN_STORE"] = f"sqlite:///{folder}/harsh.db"
        try:
            await _by_link(camera)
            await _by_name(camera)
        finally:
            del os.environ["EKIDEN_STORE"]


async def _by_link(camera: Camera) -> None:
    port = free_port()
    harsh = loaded(HARSH_ORIGIN=f"http://127.0.0.1:{port}", HARSH_PEOPLE="")
    async with served(harsh.server, port=port):
        caller = Caller(harsh.server)
        links = {name: link_in(text(await caller.call("ask", which=name))) for name in SHOWN}
        links["elsewhere"] = link_in(text(await caller.call("elsewhere")))
        await asyncio.to_thread(_look, camera, links)


def _look(camera: Camera, links: dict[str, str]) -> None:
    for name, link in links.items():
        camera.open(link)
        camera.take(f"ask-{name}")
    camera.open(links["every"])
    camera.fill("[name='/mail']", "nobody")
    camera.click("button[value=accept]")
    camera.wait_for("Something is not right yet")
    camera.take("ask-wrong")
    camera.open(links["bool"])
    camera.click("input[type=radio]")
    camera.click("button[value=accept]")
    camera.wait_for("Thank you")
    camera.take("ask-answered")
    camera.open(links["choice"])
    camera.click("button[value=decline]")
    camera.wait_for("declined")
    camera.take("ask-declined")
    camera.open(links["many"][:-3] + "xyz", "does not open a question")
    camera.take("ask-expired")


async def _by_name(camera: Camera) -> None:
    port = free_port()
    harsh = loaded(HARSH_ORIGIN=f"http://127.0.0.1:{port}", HARSH_PEOPLE="known")
    async with served(harsh.server, port=port):
        link = link_in(text(await Caller(harsh.server).call("ask", which="emoji")))
        await asyncio.to_thread(_look_signed_in, camera, link)


def _look_signed_in(camera: Camera, link: str) -> None:
    camera.open(link, "Sign in first")
    camera.take("ask-sign-in")
    camera.browser.add_cookie({"name": "user", "value": "mallory"})
    camera.open(link, "for somebody else")
    camera.take("ask-wrong-person")
    camera.browser.delete_all_cookies()
