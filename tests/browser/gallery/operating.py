"""`ekiden ui`: signing in, lists, stories and the audit log of an operator, with and without values."""

import asyncio
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ekiden.server.sealing.keys import new_key
from scripts.ports import free_port
from tests.browser.gallery.camera import Camera
from tests.browser.test_desk import SERVER, begin, command, go_on

GUARDED = """
from ekiden import Auth, Principal, Server, StaticTokens

scopes = frozenset({"ekiden:look", "ekiden:values", "ekiden:act"})
tokens = StaticTokens({"all": Principal("ann@example.com", scopes=scopes)})
server = Server("guarded", auth=Auth("https://mcp.example/mcp", verifier=tokens))
"""


def operating(camera: Camera) -> None:
    """All pictures of `ekiden ui`."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        guarded = Path(folder, "guarded.py")
        guarded.write_text(GUARDED)
        store, port = f"sqlite:///{folder}/store.db", free_port()
        env = {"EKIDEN_KEYS": new_key(), "BOOKING_MARKS": folder}
        run = ("run", str(SERVER), "--workers", "2", "--port", str(port), "--store", store)
        stack.enter_context(command(*run, says="is served at", **env))
        with_values = ("ui", "--store", store, "--port", "0", "--allow-actions", "--server", str(guarded))
        origin = _link(stack.enter_context(command(*with_values, says="calls and tasks", **env)))
        masked = ("ui", "--store", store, "--port", "0")
        link = _link(stack.enter_context(command(*masked, says="calls and tasks", **env)))
        _sign_in(camera, origin)
        _play(f"http://127.0.0.1:{port}/mcp")
        _look(camera, origin.partition("/calls")[0])
        _look_masked(camera, link)


def _link(line: str) -> str:
    return re.findall(r"http\S+", line)[0]


def _sign_in(camera: Camera, origin: str) -> None:
    camera.open(origin, "Paste an access token")
    camera.take("ui-sign-in")
    camera.fill("#token", "wrong")
    camera.click("button.is-main")
    camera.wait_for("not accepted")
    camera.take("ui-sign-in-wrong")
    camera.fill("#token", "all")
    camera.click("button.is-main")
    camera.wait_for("No calls yet")
    camera.open(origin.replace("/calls", "/actions"), "Nothing was done yet")
    camera.take("ui-audit-none")


def _play(url: str) -> None:
    pending = asyncio.run(begin(url, "book", city="Hakone"))
    pending = asyncio.run(go_on(url, pending, 3))
    asyncio.run(go_on(url, pending, True))
    asyncio.run(begin(url, "book", city="Sendai"))
    for title in ("the year", "the month", "the week"):
        asyncio.run(begin(url, "report", title=title))


def _look(camera: Camera, origin: str) -> None:
    camera.open(f"{origin}/calls", "completed")
    camera.take("ui-calls")
    camera.open(f"{origin}/calls?state=completed", "book")
    camera.click("#rows a")
    camera.wait_for("its worker was lost")
    camera.take("ui-story")
    camera.show_in_docs("call", 1500)
    camera.open(f"{origin}/tasks", "Publish the week?")
    camera.show_in_docs("tasks", 640)
    camera.click("#rows a")
    camera.wait_for("2 tries" if "2 tries" in camera.browser.page_source else "Publish")
    camera.take("ui-task")
    camera.show_in_docs("task", 1300)
    camera.click("input[type=radio][value=true]")
    camera.click("button[value=accept]")
    camera.wait_for("completed")
    camera.take("ui-task-done")
    camera.click("form[action$=again] button")
    camera.wait_for("What you can do")
    camera.click("button.is-danger")
    camera.wait_for("cancelled")
    camera.open(f"{origin}/tasks", "cancelled")
    camera.take("ui-tasks")
    camera.open(f"{origin}/actions", "The answer was taken.")
    camera.take("ui-audit")


def _look_masked(camera: Camera, link: str) -> None:
    camera.open(link, "completed")
    origin = link.partition("/calls")[0]
    camera.open(f"{origin}/calls?state=completed", "book")
    camera.click("#rows a")
    camera.wait_for("masked")
    camera.take("ui-story-masked")
    camera.open(f"{origin}/tasks", "an answer")
    camera.take("ui-tasks-masked")
    camera.open(f"{origin}/tasks?state=waiting", "an answer")
    camera.click("#rows a")
    camera.wait_for("masked")
    camera.take("ui-task-masked")
