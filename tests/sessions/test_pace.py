"""What one client has other processes told of comes at a pace, so that it cannot fill the bus."""

import asyncio
from typing import Any, cast

from ekiden.sessions.pace import Pace
from ekiden.sessions.shared import SessionRules, SharedSessions
from tests.simulation.virtual_time import VirtualTimeLoop


def test_what_is_too_much_at_once_waits_and_others_do_not() -> None:
    async def run() -> list[tuple[str, float]]:
        pace, loop, went = Pace(), asyncio.get_running_loop(), list[tuple[str, float]]()
        begun = loop.time()

        async def go(client: str) -> None:
            await pace.turn(client)
            went.append((client, loop.time() - begun))

        await asyncio.gather(*(go("greedy") for _ in range(300)), go("modest"))
        return went

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        went = runner.run(run())
    late = [when for client, when in went if client == "greedy" and when > 0.004]
    assert len(late) >= 199
    assert 0.9 < max(late) < 1.2
    assert [when < 0.5 for client, when in went if client == "modest"] == [True]


async def test_cancellations_of_unknown_requests_do_not_fill_the_bus() -> None:
    published: list[bytes] = []

    class Bus:
        def publish(self, message: bytes) -> None:
            published.append(message)

    rules = SessionRules(10, 10, 60.0, 60.0)
    shared = SharedSessions(cast("Any", None), cast("Any", Bus()), "s", rules, lambda: 0.0)
    asking = [
        asyncio.create_task(shared.cancel(f"session {number % 7}", number, "eve")) for number in range(20_000)
    ]
    while not published:
        await asyncio.sleep(0)
    assert len(published) < 10_000  # All of them, before. How many depends on how long a pass takes.
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
