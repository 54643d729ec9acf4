"""`ekiden ui`: a port of its own, a link with a token, and nothing that was not allowed."""

import asyncio
import re
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2

from ekiden.stores.sqlite import SQLiteStore
from ekiden.testing.task_contract import new_record

from .driving import EKIDEN, PATIENCE, ekiden, environment


def stored(folder: Path) -> str:
    async def fill() -> None:
        store = SQLiteStore(folder / "store.db")
        await store.tasks.insert(new_record("task", tool="refund"), {})
        await store.close()

    asyncio.run(fill())
    return f"sqlite:///{folder / 'store.db'}"


@contextmanager
def serving(*words: str, before: Sequence[str] = ()) -> Generator[str, None, None]:
    """The link that the command prints."""
    process = subprocess.Popen(
        [*before, *EKIDEN, "ui", "--port", "0", *words], env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http\S+", line := process.stderr.readline())
        assert found is not None, line
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_the_link_opens_the_pages_and_nothing_else_does(tmp_path: Path) -> None:
    with (
        serving("--store", stored(tmp_path), "--call", "abc") as link,
        httpx2.Client(timeout=PATIENCE) as browser,
    ):
        origin = link.partition("/calls")[0]
        assert re.search(r"/calls/abc\?token=[\w-]{20,}$", link)
        assert browser.get(origin + "/tasks").status_code == 401
        assert browser.get(origin + "/tasks?token=guessed").status_code == 401
        assert browser.get(link.replace("calls/abc", "tasks"), follow_redirects=True).status_code == 200
        page = browser.get(origin + "/tasks")
        assert "refund" in page.text
        assert "Cancel the task" not in browser.get(origin + "/tasks/task").text
        assert browser.get(origin + "/tasks", headers={"host": "evil.example"}).status_code == 421
        assert "script-src 'self'" in page.headers["content-security-policy"]


def test_actions_are_there_if_they_are_allowed(tmp_path: Path) -> None:
    with (
        serving("--store", stored(tmp_path), "--allow-actions") as link,
        httpx2.Client(timeout=PATIENCE) as browser,
    ):
        origin = link.partition("/calls")[0]
        browser.get(link, follow_redirects=True)
        assert "Cancel the task" in browser.get(origin + "/tasks/task").text


def test_what_cannot_work_is_said_at_once(tmp_path: Path) -> None:
    missing = ekiden("ui", "--store", f"sqlite:///{tmp_path}/no.db", "--port", "0")
    assert "there is no store" in missing.stderr
    assert "belongs to one process" in ekiden("ui", "--store", "memory:", "--port", "0").stderr
    sealed = ekiden("ui", "--store", stored(tmp_path), "--sealed", "--port", "0")
    assert "needs the keys of the server" in sealed.stderr
    relay = str(Path(__file__).parent.parent.parent / "examples" / "relay.py")
    without = ekiden("ui", "--store", stored(tmp_path), "--server", relay, "--port", "0")
    assert "has no auth=" in without.stderr


def test_connections_on_which_nothing_is_sent_keep_nobody_out(tmp_path: Path) -> None:
    few = ("sh", "-c", 'ulimit -n 300 && exec "$@"', "sh")
    with serving("--store", stored(tmp_path), before=few) as link, ExitStack() as idle:
        host, port = link.removeprefix("http://").partition("/")[0].split(":")
        for number in range(400):
            opened = idle.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
            if number % 2:  # A form that never arrives.
                head = f"POST /sign-in HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: 9\r\n\r\na"
                with suppress(OSError):
                    opened.sendall(head.encode())
        assert _opens(link)


def _opens(link: str) -> bool:
    """Whether a browser that tries again gets in before long."""
    until = time.monotonic() + 15.0
    while time.monotonic() < until:
        with httpx2.Client(timeout=15.0) as browser, suppress(httpx2.TransportError):
            if browser.get(link, follow_redirects=True).status_code == 200:
                return True
        time.sleep(0.2)
    return False


def test_live_pages_are_served_and_given_back_when_they_are_closed(tmp_path: Path) -> None:
    with (
        serving("--store", stored(tmp_path)) as link,
        httpx2.Client(timeout=PATIENCE) as browser,
    ):
        assert browser.get(link, follow_redirects=True).status_code == 200
        address = link.partition("/calls")[0] + "/live/tasks"
        for _ in range(60):
            with browser.stream("GET", address) as response:
                assert response.status_code == 200
                assert "refund" in next(text for text in response.iter_text() if "fragment" in text)
