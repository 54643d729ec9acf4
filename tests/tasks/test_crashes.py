"""kill -9 at every commit, on files and on a real Postgres: the same result, every committed step once."""

import asyncio
import base64
import itertools
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from scripts.ports import free_port
from tests.acceptance.driving import headers_for, post, request
from tests.tasks.driving import WITH_TASKS, accept
from tests.warm import WarmProcess, python

SCRIPT = Path(__file__).with_name("crashing_server.py")
PATIENCE = 60.0

POINTS = [
    "create",
    "commit 1",
    "commit 2",
    "commit 3",
    "suspend 1",
    "claim 1",
    "suspend 2",
    "answer",
    "claim 2",
    "commit 4",
    "commit 5",
    "finish",
]
SAMPLE = {
    "after create",
    "before commit 2",
    "before claim 1",
    "after suspend 2",
    "after answer",
    "before finish",
}
LOST = {
    "before commit 1": "look",
    "before commit 2": "book",
    "before commit 4": "pay",
    "before commit 5": "mail",
}
"""The step that has run and is not committed. The third commit is the deadline of the sleep."""
STORES = ["sqlite", "postgres"]


def each(points: list[str], sample: set[str]) -> list[Any]:
    """Every point before and after; those beyond the sample take their time."""
    cases = [
        (store, f"{when} {point}")
        for store, point, when in itertools.product(STORES, points, ("before", "after"))
    ]
    return [
        pytest.param(*case, marks=() if case[1] in sample else pytest.mark.slow, id="-".join(case))
        for case in cases
    ]


class Shop:
    """A server that is started again whenever it has died."""

    def __init__(self, folder: Path, store: str) -> None:
        self.notes = folder / "notes"
        self._log = folder / "log"
        self._port = free_port()
        self._environment = {
            **os.environ,
            "STORE": store,
            "NOTES": str(self.notes),
            "EKIDEN_KEYS": base64.urlsafe_b64encode(bytes(range(32))).decode(),
        }
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._ids = itertools.count(1)
        self.deaths = 0

    def start(self, crash: str = "") -> None:
        with self._log.open("ab") as log:
            environment = {**self._environment, "CRASH": crash}
            self._process = python(str(SCRIPT), str(self._port), env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            finally:
                self._process.kill()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    def _revive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            assert self._process.returncode == -signal.SIGKILL, self._log.read_text()
            self.deaths += 1
            self.start()

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request, which is sent again if the server died over it."""
        message = request(method, params, next(self._ids), WITH_TASKS)
        name = params.get("taskId") or params.get("name") or ""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    reply = await post(self.url, message, **{"mcp-name": name})
                    assert headers_for(message)
                    assert "result" in reply.json(), (reply.json(), self._log.read_text())
                    result: dict[str, Any] = reply.json()["result"]
                    return result
                except httpx2.TransportError:
                    self._revive()
                    await asyncio.sleep(0.02)

    async def until(self, task_id: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while (task := await self.send("tasks/get", taskId=task_id))["status"] != status:
                assert task["status"] in ("working", "input_required"), task
                await asyncio.sleep(0.02)
        return task

    def ran(self) -> Counter[str]:
        """How often each step was run, by whichever process."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return Counter(line.split()[0] for line in lines)

    def keys(self) -> set[str]:
        """The keys that the steps had."""
        return {line.split()[1] for line in self.notes.read_text().splitlines()}


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Any, None, None]:
    made: list[Shop] = []

    def open_shop(store: str) -> Shop:
        url = request.getfixturevalue("database") if store == "postgres" else f"sqlite:///{tmp_path}/tasks.db"
        made.append(Shop(tmp_path, url))
        return made[-1]

    yield open_shop
    for one in made:
        one.stop()


@pytest.mark.parametrize(("store", "point"), each(POINTS, SAMPLE))
async def test_a_refund_survives_a_crash(shop: Any, store: str, point: str) -> None:
    refunds: Shop = shop(store)
    refunds.start(point)
    call = {"name": "refund", "arguments": {"order": "7"}}
    asked = await refunds.send("tools/call", **call)
    retry = {"requestState": asked["requestState"], "inputResponses": {"round": accept("yes")}}
    created = await refunds.send("tools/call", **call, **retry)
    assert created["resultType"] == "task", created
    task_id = created["taskId"]
    task = await refunds.until(task_id, "input_required")
    (key,) = task["inputRequests"]
    await refunds.send("tasks/update", taskId=task_id, inputResponses={key: accept("sure")})
    done = await refunds.until(task_id, "completed")
    assert done["result"]["content"][0]["text"] == "7 yes sure LOOK BOOK PAY MAIL"
    assert refunds.deaths == 1, f"it did not die {point}"
    again = await refunds.send("tools/call", **call, **retry)
    assert again["taskId"] == task_id, "one call is one task"
    expected = Counter(["look", "book", "pay", "mail"] + ([LOST[point]] if point in LOST else []))
    assert refunds.ran() == expected
    assert len(refunds.keys()) == 4, "a step that is run again has the key that it had"


@pytest.mark.parametrize(
    ("store", "point"), each(["cancel", "claim 1", "tidied"], {"after cancel", "before tidied"})
)
async def test_a_cancellation_survives_a_crash(shop: Any, store: str, point: str) -> None:
    waiting: Shop = shop(store)
    waiting.start(point)
    created = await waiting.send("tools/call", name="waits", arguments={})
    task_id = created["taskId"]
    await waiting.until(task_id, "input_required")
    await waiting.send("tasks/cancel", taskId=task_id)
    await waiting.until(task_id, "cancelled")
    async with asyncio.timeout(PATIENCE):
        while waiting.ran()["tidied"] == 0 or waiting.deaths == 0:
            await waiting.send("tasks/get", taskId=task_id)
            await asyncio.sleep(0.02)
    assert waiting.ran()["looked"] == 1
    assert waiting.ran()["tidied"] <= 2, "a clean-up may be run again, if its worker died over it"
