"""What every bus between processes must do, as tests: inherit, say how it is opened, and let pytest collect
it.

    class TestMyBus(BusContract):
        @asynccontextmanager
        async def opened(self):
            yield MyBus(...), MyBus(...)

Needs a runner that awaits async tests, such as pytest-asyncio in its auto mode.
"""

import abc
import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Final

from ekiden.bus.port import Bus

__all__ = ["BusContract"]

_PATIENCE: Final = 20.0
_LAST: Final = b"the last"


class _Heard:
    """What one listener has heard."""

    def __init__(self) -> None:
        self.messages: list[bytes | None] = []
        self._changed = asyncio.Event()

    def __call__(self, message: bytes | None) -> None:
        self.messages.append(message)
        self._changed.set()

    async def until(self, message: bytes | None) -> list[bytes | None]:
        """Wait for a message; what came before it."""
        async with asyncio.timeout(_PATIENCE):
            while message not in self.messages:
                self._changed.clear()
                await self._changed.wait()
        return self.messages[: self.messages.index(message)]


class BusContract(abc.ABC):
    """Every test opens a bus twice, as two processes would."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[tuple[Bus, Bus]]:
        """Two ways into one bus."""

    async def test_what_is_published_is_heard_by_the_other(self) -> None:
        """From the moment when `listen` has returned."""
        async with self.opened() as (one, other):
            heard = _Heard()
            await other.listen(heard)
            one.publish(b"hello")
            assert await heard.until(b"hello") == []

    async def test_a_burst_is_heard_whole_and_in_order(self) -> None:
        """Also if it is more than the queues of sockets hold."""
        async with self.opened() as (one, other):
            heard = _Heard()
            await other.listen(heard)
            burst = [b"message %d" % number for number in range(900)]
            for message in [*burst, _LAST]:
                one.publish(message)
            assert await heard.until(_LAST) == burst

    async def test_equal_messages_are_all_heard_and_in_order(self) -> None:
        """On, off, on is not the same as on, off."""
        async with self.opened() as (one, other):
            heard = _Heard()
            await other.listen(heard)
            said = [b"on", b"off", b"on", b"on", b"off", b"on"]
            for message in [*said, _LAST]:
                one.publish(message)
            assert await heard.until(_LAST) == said

    async def test_nobody_hears_himself(self) -> None:
        """Only what the others publish."""
        async with self.opened() as (one, other):
            own, others = _Heard(), _Heard()
            await one.listen(own)
            await other.listen(others)
            one.publish(b"mine")
            await others.until(b"mine")
            other.publish(_LAST)
            assert await own.until(_LAST) == []

    async def test_two_listeners_of_one_process_both_hear(self) -> None:
        """And one that has ended hears no more."""
        async with self.opened() as (one, other):
            ending, staying = _Heard(), _Heard()
            end = await other.listen(ending)
            await other.listen(staying)
            one.publish(b"to both")
            await ending.until(b"to both")
            await staying.until(b"to both")
            end()
            one.publish(_LAST)
            await staying.until(_LAST)
            assert ending.messages == [b"to both"]

    async def test_who_listens_again_hears_again(self) -> None:
        """After all listeners of a process had ended."""
        async with self.opened() as (one, other):
            end = await other.listen(_Heard())
            end()
            heard = _Heard()
            await other.listen(heard)
            one.publish(b"again")
            await heard.until(b"again")

    async def test_what_is_too_long_is_heard_as_missed(self) -> None:
        """So the listener knows that there was something."""
        async with self.opened() as (one, other):
            heard = _Heard()
            await other.listen(heard)
            one.publish(b"x" * 1_000_000)
            assert await heard.until(None) == []

    async def test_a_flood_is_heard_or_known_to_be_missed(self) -> None:
        """A listener never believes to know all when it does not."""
        async with self.opened() as (one, other):
            heard = _Heard()
            await other.listen(heard)
            flood = [b"message %d" % number for number in range(5000)]
            for message in [*flood, _LAST]:
                one.publish(message)
            before = await heard.until(_LAST)
            assert before == flood or None in before

    async def test_what_was_published_before_closing_arrives(self) -> None:
        """A process that ends in order has said all that it had to say."""
        async with self.opened() as (one, other):
            heard = _Heard()
            await other.listen(heard)
            one.publish(_LAST)
            await one.close()
            await heard.until(_LAST)
