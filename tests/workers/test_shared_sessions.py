"""Sessions of 2025 that lie in a store: any process takes any message, and none of them is missed when it
dies."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from ekiden.server.sealing.keys import new_key
from tests.cli.driving import ekiden

from .cluster import Worker, free_port
from .listeners import url
from .old_session import OldSession, client

SCRIPT = Path(__file__).with_name("shared_server.py")
T = TypeVar("T")

LOST_SECONDS = 20.0
"""Longer than the lease of a stream, shorter than the client's patience."""


@contextlib.contextmanager
def processes(folder: Path, **settings: str) -> Iterator[tuple[Worker, Worker]]:
    pair = [Worker(free_port(), folder / f"log-{n}", settings, SCRIPT) for n in range(2)]
    with contextlib.ExitStack() as stack:
        for worker in pair:
            stack.callback(worker.stop)
            worker.start()
        for worker in pair:
            worker.await_listening()
        yield pair[0], pair[1]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def lasting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Worker, Worker]]:
    folder = tmp_path_factory.mktemp("shared")
    store = f"sqlite:///{folder}/sessions.db"
    if request.param == "postgres":
        store = request.getfixturevalue("postgres").new_database()
        assert ekiden("store", "migrate", store).returncode == 0
    with processes(folder, STORE=store) as pair:
        yield pair


@pytest.fixture
def two(lasting: tuple[Worker, Worker]) -> Iterator[tuple[Worker, Worker]]:
    """Two processes with one store, and nothing else in common. What a test does to them is mended."""
    for worker in lasting:
        if not worker.runs:
            worker.start()
            worker.await_listening()
    yield lasting
    for worker in lasting:
        assert "Traceback" not in worker.log.read_text(), worker.log.read_text()


async def repeat_twice(session: OldSession, asks: int, answers: int, word: str) -> str:
    """A call at one process whose questions are answered at another."""
    async with session.calling(asks, "twice", word=word) as stream:
        for _ in range(2):
            asked = await stream.until("elicitation/create")
            said = asked["params"]["message"].removeprefix("Repeat ")
            assert await session.answer(answers, asked, said) == 202
        result = (await stream.message())["result"]
        text: str = result["content"][0]["text"]
        return text


async def test_any_process_takes_the_next_request(two: tuple[Worker, Worker]) -> None:
    one, other = two
    session = await OldSession.open(one.port, ready_at=other.port)
    served = [int(await session.call(worker.port, "who")) for worker in (one, other, one, other)]
    assert served == [one.pid, other.pid, one.pid, other.pid]
    assert await repeat_twice(session, other.port, one.port, "a") == f"a a! by {other.pid}"


async def test_a_session_outlives_the_process_that_opened_it(two: tuple[Worker, Worker]) -> None:
    """Killed, or replaced in order: the id stays good."""
    one, other = two
    session = await OldSession.open(one.port)
    one.kill()
    assert await repeat_twice(session, other.port, other.port, "a") == f"a a! by {other.pid}"
    one.start()
    await one.ready()
    other.stop()
    assert await repeat_twice(session, one.port, one.port, "b") == f"b b! by {one.pid}"


async def test_a_session_that_was_deleted_is_gone_everywhere(two: tuple[Worker, Worker]) -> None:
    one, other = two
    session = await OldSession.open(one.port)
    assert await session.call(other.port, "who")
    async with client() as http:
        ended = await http.delete(url(one.port), headers=session.headers)
    assert ended.status_code == 200
    async with asyncio.timeout(10):
        while (await session.post(other.port, session.request("ping"))).status_code != 404:
            await asyncio.sleep(0.01)
    assert (await session.post(one.port, session.request("ping"))).status_code == 404


async def test_a_session_belongs_to_its_principal_at_every_process(two: tuple[Worker, Worker]) -> None:
    one, other = two
    session = await OldSession.open(one.port)
    thief = OldSession(session.id, user="mallory")
    statuses = [(await thief.post(w.port, thief.request("ping"))).status_code for w in (one, other, one)]
    assert statuses == [404, 404, 404]
    assert (await session.post(other.port, session.request("ping"))).status_code == 200


async def test_a_call_is_cancelled_through_any_process(two: tuple[Worker, Worker]) -> None:
    one, other = two
    session = await OldSession.open(one.port)
    async with session.getting(other.port) as changes, session.calling(one.port, "long") as stream:
        watch = session.request("resources/subscribe", uri="note://cancelled")
        assert (await session.post(one.port, watch)).status_code == 200
        await stream.until("notifications/progress")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await session.post(other.port, cancel)).status_code == 202
        async with asyncio.timeout(LOST_SECONDS):
            told = await changes.until("notifications/resources/updated")
        assert told["params"] == {"uri": "note://cancelled"}


async def test_subscriptions_and_changes_may_be_at_other_processes_than_the_stream(
    two: tuple[Worker, Worker],
) -> None:
    one, other = two
    session = await OldSession.open(one.port)
    heard: list[str] = []
    async with session.getting(one.port) as changes:
        for number in range(30):
            uri, port = f"note://{number}", (one if number % 2 else other).port
            assert (await session.post(port, session.request("resources/subscribe", uri=uri))).is_success
            await session.call((one if number % 3 else other).port, "change", uri=uri)
            async with asyncio.timeout(LOST_SECONDS):
                while uri not in heard:
                    heard.append((await changes.until("notifications/resources/updated"))["params"]["uri"])
    # One that was accepted elsewhere is told of once more, because it may have changed meanwhile.
    assert list(dict.fromkeys(heard)) == [f"note://{number}" for number in range(30)]
    assert max(Counter(heard).values()) <= 2


async def test_a_stream_for_changes_that_moves_to_another_process_misses_nothing(
    two: tuple[Worker, Worker],
) -> None:
    one, other = two
    session = await OldSession.open(one.port)
    async with session.getting(one.port):
        await session.post(one.port, session.request("resources/subscribe", uri="note://1"))
    await session.call(one.port, "change", uri="note://1")
    async with session.getting(other.port) as changes, asyncio.timeout(LOST_SECONDS):
        assert (await changes.until("notifications/resources/updated"))["params"] == {"uri": "note://1"}


# Streams that broke off


async def test_a_stream_goes_on_at_another_process(two: tuple[Worker, Worker]) -> None:
    """The call runs where it began; its events, questions and result come by the other."""
    one, other = two
    session = await OldSession.open(one.port)
    async with session.calling(one.port, "count") as stream:
        asked = await stream.until("elicitation/create")
        last = stream.last_id
    async with session.getting(other.port, last) as rest, asyncio.timeout(LOST_SECONDS):
        assert await session.answer(other.port, asked, "yes") == 202
        for number in (2, 3):
            assert (await rest.until("notifications/progress"))["params"]["progress"] == number
            asked = await rest.until("elicitation/create")
            assert await session.answer(one.port if number == 2 else other.port, asked, "yes") == 202
        result = await rest.message()
        assert result["result"]["content"][0]["text"] == f"counted by {one.pid}"
        with pytest.raises(EOFError):
            await rest.message()
    async with session.getting(other.port, rest.last_id) as over, asyncio.timeout(LOST_SECONDS):
        with pytest.raises(EOFError):
            await over.message()


async def test_a_client_that_comes_back_late_gets_all_it_missed_from_the_store(
    two: tuple[Worker, Worker],
) -> None:
    one, other = two
    session = await OldSession.open(one.port)
    async with session.calling(one.port, "twice", word="a") as stream:
        asked = await stream.until("elicitation/create")
        first = stream.last_id
        assert await session.answer(one.port, asked, "a") == 202
        asked = await stream.until("elicitation/create")
        assert await session.answer(one.port, asked, "a!") == 202
        result = await stream.message()
    one.stop()
    async with session.getting(other.port, first) as rest, asyncio.timeout(LOST_SECONDS):
        assert await rest.message() == asked
        assert await rest.message() == result


@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_the_call_of_a_process_that_is_gone_ends_with_an_error(
    two: tuple[Worker, Worker], end: str
) -> None:
    """It does not hang, and the session goes on."""
    one, other = two
    session = await OldSession.open(one.port)
    async with session.calling(one.port, "twice", word="a") as stream:
        asked = await stream.until("elicitation/create")
        last = stream.last_id
        one.kill() if end == "killed" else one.stop()
    async with session.getting(other.port, last) as rest, asyncio.timeout(LOST_SECONDS):
        assert await session.answer(other.port, asked, "a") == 202
        lost = await rest.message()
        assert lost["id"] == 1
        assert "send the request again" in lost["error"]["message"]
        with pytest.raises(EOFError):
            await rest.message()
    assert await repeat_twice(session, other.port, other.port, "b") == f"b b! by {other.pid}"


async def test_an_unknown_place_in_a_stream_is_refused(two: tuple[Worker, Worker]) -> None:
    one, _ = two
    session = await OldSession.open(one.port)
    async with client() as http:
        headers = {**session.headers, "accept": "text/event-stream", "last-event-id": "12345_6"}
        assert (await http.get(url(one.port), headers=headers)).status_code == 400


# Many


class Crowd:
    """Sessions of four calls each, no two messages in a row to the same process, while one is killed.

    A call that was running in that process is made again; its session goes on.
    """

    def __init__(self, two: tuple[Worker, Worker], count: int) -> None:
        self._two = two
        self._count = count
        self._half = asyncio.Event()
        self._at_a_time = asyncio.Semaphore(10)
        self.served: Counter[int] = Counter()
        """How many calls each process served."""

    async def run(self) -> None:
        async with asyncio.timeout(300):
            await asyncio.gather(self._kill(), *(self._live(number) for number in range(self._count)))

    async def _kill(self) -> None:
        await self._half.wait()
        self._two[0].kill()
        await asyncio.to_thread(self._two[0].start)
        await self._two[0].ready()

    async def _live(self, number: int) -> None:
        async with self._at_a_time:
            session = await self._persistently(number, self._open)
            for turn in range(4):
                await self._persistently(number + turn, partial(self._call, session, f"{number}-{turn}"))

    async def _open(self, worker: Worker, _: Worker) -> OldSession:
        return await OldSession.open(worker.port)

    async def _call(self, session: OldSession, word: str, worker: Worker, other: Worker) -> None:
        answers = other if other.runs else worker
        text = await repeat_twice(session, worker.port, answers.port, word)
        said, _, pid = text.rpartition(" by ")
        assert said == f"{word} {word}!"
        self.served[int(pid)] += 1
        if self.served.total() == 2 * self._count:
            self._half.set()

    async def _persistently(self, turn: int, act: Callable[[Worker, Worker], Awaitable[T]]) -> T:
        """Try it at the processes in turn, until one does it."""
        for attempt in range(turn, turn + 20):
            try:
                return await act(self._two[attempt % 2], self._two[(attempt + 1) % 2])
            except (httpx2.TransportError, EOFError):
                await asyncio.sleep(0.1)
        raise AssertionError("no process did it")


async def test_sessions_without_affinity_all_end_right_while_a_process_is_killed(
    two: tuple[Worker, Worker],
) -> None:
    crowd = Crowd(two, 12)
    await crowd.run()
    assert crowd.served.total() == 48
    assert len(crowd.served) == 3, "both processes, and the one that came back"


@pytest.mark.slow
async def test_a_hundred_of_a_hundred_sessions_without_affinity_end_right_while_a_process_is_killed(
    tmp_path: Path, database: str
) -> None:
    with processes(tmp_path, STORE=database) as two:
        crowd = Crowd(two, 100)
        await crowd.run()
    assert crowd.served.total() == 400
    assert len(crowd.served) == 3


async def test_sealed_sessions_go_on_at_another_process(tmp_path: Path, database: str) -> None:
    with processes(tmp_path, STORE=database, EKIDEN_KEYS=new_key()) as (one, other):
        session = await OldSession.open(one.port, ready_at=other.port)
        assert await repeat_twice(session, other.port, one.port, "secret") == f"secret secret! by {other.pid}"
