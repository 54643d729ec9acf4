"""What it costs to find room for one more session."""

import asyncio
from typing import Any

import pytest

from ekiden import SessionLimits
from ekiden.server.legacy.room import SessionRoom
from ekiden.signals import SessionsFull


class _Session:
    principal = ""

    def __init__(self, client: str, looks: list[int]) -> None:
        self.client = client
        self.used_at = asyncio.get_running_loop().time()
        self._looks = looks

    @property
    def in_use(self) -> bool:
        self._looks[0] += 1
        return True


async def test_a_client_that_is_refused_again_and_again_has_all_sessions_looked_through_once() -> None:
    looks = [0]
    room = SessionRoom(SessionLimits(sessions=1000, busy_seconds=10_000.0))
    sessions: dict[str, Any] = {str(number): _Session("greedy", looks) for number in range(1000)}
    for session in sessions.values():
        room.enter(session)
    for _ in range(50):
        with pytest.raises(SessionsFull):
            room.to_end(sessions, "", "greedy")
        assert room.unused_of("greedy", sessions) is None  # Where sessions lie in a store.
    assert looks[0] < 25 * 1000  # 50,000, before. A busy machine may look once a second.
    assert room.to_end(sessions, "", "modest") == []  # A quarter more is there for others.
