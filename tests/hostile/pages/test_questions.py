"""Calls that wait for people: a client cannot fill the store with them, nor ask people without an end."""

from typing import Any

import pytest

from ekiden import Context, Person, ProtocolError, RoundLimits, Server
from ekiden.pages.web.filling import Form
from ekiden.stores.memory import MemoryStore
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import Post, fill, link_in, pages_of, shop
from tests.processor import measured

_ROOM = 200_000


class _Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def _asking(post: Post, clock: _Clock, **options: Any) -> Server:
    """A server whose tool `buy` asks somebody else, and puts its argument into the question."""
    limits = RoundLimits(stored_bytes_per_principal=_ROOM, stored_bytes_without_principal=_ROOM)
    server = shop(MemoryStore(), [], post=post, clock=clock, rounds=limits, **options)

    @server.tool
    async def order(ctx: Context, what: str) -> str:
        return (await ctx.elicit(f"Order {what}?", str, who=Person("boss@example.com"))).action

    return server


async def _until_refused(caller: Caller, word: str) -> int:
    """How many calls are taken before one is refused."""
    for count in range(1000):
        try:
            await caller.call("order", what=f"{count} {word}")
        except ProtocolError:
            return count
    return 1000


@pytest.mark.parametrize(("letters", "least", "most"), [(50_000, 3, 3), (0, 15, 25)])
async def test_what_waits_for_people_has_a_bound(letters: int, least: int, most: int) -> None:
    word = "x" * letters
    post, clock = Post(), _Clock()
    server = _asking(post, clock)
    async with server.running():
        count = await _until_refused(Caller(server), word)
        assert least <= count <= most
        assert len(post.notices) == count
        clock.now += 86_500  # The questions have expired.
        assert await _until_refused(Caller(server), word + "again") >= least


async def test_a_call_that_is_made_again_while_it_waits_takes_nothing_more() -> None:
    server = _asking(Post(), _Clock())
    async with server.running():
        caller = Caller(server)
        for _ in range(100):
            assert "boss@example.com was asked" in text(await caller.call("order", what="a boat"))


async def test_one_principal_takes_nothing_of_the_room_of_another() -> None:
    server = _asking(Post(), _Clock(), principal=lambda request: request.session)
    async with server.running():
        assert await _until_refused(Caller(server, session="greedy"), "") < 1000
        told = await Caller(server, session="modest").call("refund", order=1)
        page = await fill(pages_of(server), link_in(text(told)), approve="true")
        assert page.status == 303


def test_a_thousand_choices_among_five_hundred_are_read_in_no_time() -> None:
    offered = [f"v{number}" for number in range(500)]
    form = Form({"type": "object", "properties": {"a": {"type": "array", "items": {"enum": offered}}}})
    with measured() as took:
        filled = form.read({"/a": ['"v499"'] * 990})
    assert took.moments < 10
    assert filled.values == {"a": ["v499"] * 990}
