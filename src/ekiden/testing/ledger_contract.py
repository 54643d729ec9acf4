"""What every ledger of rounds must do, as tests: inherit, say how it is opened, and let pytest collect it.

    class TestMyStore(LedgerContract):
        @asynccontextmanager
        async def opened(self):
            yield MyStore(...), MyStore(...)

Needs a runner that awaits async tests, such as pytest-asyncio in its auto mode.
"""

import abc
import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from ekiden.rounds.journal import Entry
from ekiden.rounds.ledger import (
    ABANDONED_SECONDS,
    Busy,
    Claim,
    Claimed,
    Ledger,
    Recorded,
    Refused,
    Renewal,
    Unfinished,
)

__all__ = ["LedgerContract"]

_LEASE: Final = 10.0
_NOW: Final = 1000.0
_EXPIRES: Final = 5000.0


def _step(value: Any) -> Entry:
    return Entry("step", "digest", value)


async def _claim(
    ledger: Ledger, history: str = "yes", *, now: float = _NOW, instead_of: Busy | None = None
) -> Claim:
    return await ledger.claim(
        "round", history, now=now, lease=_LEASE, expires=_EXPIRES, instead_of=instead_of
    )


async def _owned(ledger: Ledger, history: str = "yes", *, now: float = _NOW) -> int:
    claim = await _claim(ledger, history, now=now)
    assert isinstance(claim, Claimed), claim
    return claim.fence


async def _renew(ledger: Ledger, fence: int, *, now: float, expires: float = _EXPIRES) -> bool:
    return (await ledger.renew({"round": Renewal(fence, expires)}, until=now + _LEASE))["round"]


async def _watched(ledger: Ledger, *, now: float) -> Busy:
    """The owner, as another claim sees it."""
    seen = await _claim(ledger, now=now)
    assert isinstance(seen, Busy), seen
    return seen


class LedgerContract(abc.ABC):
    """Every test opens an empty ledger, twice: as two processes would."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[tuple[Ledger, Ledger]]:
        """Two ways into one empty ledger."""

    # One owner

    async def test_one_of_many_claims_wins(self) -> None:
        """And all others are told of the same owner."""
        async with self.opened() as (one, other):
            claims = await asyncio.gather(*(_claim(one if n % 2 else other) for n in range(20)))
            won = [claim for claim in claims if isinstance(claim, Claimed)]
            assert won == [Claimed(1, {})]
            assert claims.count(Busy(1, _NOW + _LEASE)) == 19

    async def test_a_lease_that_has_run_out_is_not_taken_over_at_once(self) -> None:
        """The store may have been away: the owner renews as soon as it is back."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            late = _NOW + 50 * _LEASE
            assert await _claim(other, now=late) == Busy(fence, _NOW + _LEASE)
            assert await _renew(one, fence, now=late)
            assert await _claim(other, now=late) == Busy(fence, late + _LEASE)
            assert await one.commit("round", fence, {"s:1": _step(1)})

    async def test_a_round_is_taken_from_an_owner_who_was_watched(self) -> None:
        """From then on the old owner changes nothing."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            assert await one.commit("round", fence, {"s:1": _step(1)})
            owner = await _watched(other, now=_NOW + 1)
            late = _NOW + _LEASE
            assert await _claim(other, now=late, instead_of=owner) == Claimed(fence + 1, {"s:1": _step(1)})
            await self._check_powerless(one, fence)
            assert await _claim(one, now=late, instead_of=owner) == Busy(fence + 1, late + _LEASE)

    async def test_a_round_is_not_taken_from_an_owner_who_lives(self) -> None:
        """Neither before the lease has run out, nor after it was renewed."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            owner = await _watched(other, now=_NOW + 1)
            assert await _claim(other, now=_NOW + _LEASE - 1, instead_of=owner) == owner
            assert await _renew(one, fence, now=_NOW + 5)
            late = _NOW + 50 * _LEASE
            assert await _claim(other, now=late, instead_of=owner) == Busy(fence, _NOW + 5 + _LEASE)
            assert await one.commit("round", fence, {"s:1": _step(1)})

    async def test_of_many_who_watched_one_takes_the_round(self) -> None:
        """All others see the new owner."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            owner = await _watched(other, now=_NOW)
            late = _NOW + _LEASE
            tries = [_claim(one if n % 2 else other, now=late, instead_of=owner) for n in range(20)]
            claims = await asyncio.gather(*tries)
            assert claims.count(Claimed(fence + 1, {})) == 1
            assert claims.count(Busy(fence + 1, late + _LEASE)) == 19

    async def test_clocks_that_differ_make_no_second_owner(self) -> None:
        """One is ahead or behind by up to a third of a lease: an owner that renews in time stays it."""
        for skew in (_LEASE / 3, -_LEASE / 3):
            async with self.opened() as (one, other):
                fence = await _owned(one)
                now = _NOW
                for _ in range(10):
                    owner = await _watched(other, now=now + skew)
                    now += _LEASE / 3
                    assert await _renew(one, fence, now=now)
                    for late in (now + skew, now + _LEASE / 2 + skew):
                        assert isinstance(await _claim(other, now=late, instead_of=owner), Busy)
                assert await one.finish("round", fence, b"done")

    async def test_many_claims_are_renewed_at_once(self) -> None:
        """Each by its own fence and with its own end: those that are lost cost the others nothing."""
        async with self.opened() as (one, other):
            ids = [f"round {number}" for number in range(1000)]
            for round_id in ids:
                claim = await one.claim(round_id, "yes", now=_NOW, lease=_LEASE, expires=_EXPIRES)
                assert claim == Claimed(1, {})
            assert await one.finish(ids[1], 1, b"done")
            await one.release(ids[2], 1)
            await one.release(ids[3], 1)
            assert await other.claim(ids[3], "yes", now=_NOW, lease=1.0, expires=_EXPIRES) == Claimed(2, {})
            wanted = {round_id: Renewal(1, _EXPIRES + place) for place, round_id in enumerate(ids)}
            until = _NOW + 5 * _LEASE
            lost = [*ids[1:4], "unknown"]
            renewed = await one.renew({**wanted, "unknown": Renewal(1, _EXPIRES)}, until=until)
            assert renewed == {**dict.fromkeys(ids, True), **dict.fromkeys(lost, False)}
            assert await other.renew({}, until=until) == {}
            owners = [
                await other.claim(round_id, "yes", now=_NOW, lease=_LEASE, expires=0.0)
                for round_id in ids[:5]
            ]
            free = Claimed(2, {})
            assert owners == [Busy(1, until), Recorded(b"done"), free, Busy(2, _NOW + 1.0), Busy(1, until)]
            assert await one.finish(ids[5], 1, b"five")
            assert await one.look(ids[5], "yes", now=_EXPIRES + 5) == Recorded(b"five")
            assert await one.look(ids[5], "yes", now=_EXPIRES + 5.1) is None

    # The end of a claim

    async def test_a_round_that_was_given_back_is_claimed_at_once(self) -> None:
        """From what was committed; and the one that gave it back changes nothing any more."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            assert await one.commit("round", fence, {"s:1": _step(1)})
            await one.release("round", fence)
            await self._check_powerless(one, fence)
            assert await _claim(other) == Claimed(fence + 1, {"s:1": _step(1)})
            await one.release("round", fence)
            assert isinstance(await _claim(one), Busy)

    async def test_a_round_that_has_ended_is_recorded(self) -> None:
        """Recording it twice is the same as once; recording something else is not."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            outcome = bytes(range(256)) * 400
            assert await one.finish("round", fence, outcome)
            assert await one.finish("round", fence, outcome)
            assert not await one.finish("round", fence, b"else")
            await one.release("round", fence)
            await self._check_powerless(one, fence)
            assert await _claim(other) == Recorded(outcome)
            assert await _claim(other, now=_NOW + 2 * _LEASE) == Recorded(outcome)

    async def test_an_unknown_round_has_no_owner(self) -> None:
        """Whatever fence it names."""
        async with self.opened() as (one, _):
            await self._check_powerless(one, 1)
            assert isinstance(await _claim(one), Claimed)

    async def _check_powerless(self, ledger: Ledger, fence: int) -> None:
        assert not await _renew(ledger, fence, now=_NOW)
        assert not await ledger.commit("round", fence, {"s:late": _step("late")})
        assert not await ledger.finish("round", fence, b"late")

    # One history

    async def test_a_round_belongs_to_the_history_that_owns_it(self) -> None:
        """While it runs, after its lease, and when it has ended."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            for now in (_NOW, _NOW + 2 * _LEASE):
                assert await _claim(other, "no", now=now) == Refused()
                assert await other.look("round", "no", now=now) == Refused()
                assert await other.look("round", "yes", now=now) == Unfinished()
            assert await one.finish("round", fence, b"done")
            assert await _claim(other, "no") == Refused()
            assert await other.look("round", "no", now=_NOW) == Refused()
            assert await other.look("round", "yes", now=_NOW) == Recorded(b"done")

    async def test_a_round_with_entries_keeps_its_history(self) -> None:
        """Also when it has no owner."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            assert await one.commit("round", fence, {"s:1": _step(1)})
            await one.release("round", fence)
            assert await _claim(other, "no") == Refused()
            assert await other.look("round", "no", now=_NOW) == Refused()
            assert await other.look("round", "yes", now=_NOW) == Unfinished()
            assert await _owned(other) == fence + 1

    async def test_a_round_that_was_given_back_without_entries_is_free(self) -> None:
        """For any history; then it belongs to that one."""
        async with self.opened() as (one, other):
            await one.release("round", await _owned(one))
            assert await other.look("round", "no", now=_NOW) is None
            fence = await _owned(other, "no")
            assert fence == 2
            assert await _claim(one) == Refused()
            assert await other.finish("round", fence, b"done")
            assert await one.look("round", "no", now=_NOW) == Recorded(b"done")

    async def test_looking_claims_nothing(self) -> None:
        """A round that was never claimed stays so."""
        async with self.opened() as (one, other):
            assert await one.look("round", "yes", now=_NOW) is None
            assert await other.look("round", "no", now=_NOW) is None
            fence = await _owned(other, "no")
            assert fence == 1
            if one.is_new("round"):
                raise AssertionError("a ledger that knows at once has forgotten a round")

    # Entries

    async def test_entries_keep_the_order_in_which_they_were_committed(self) -> None:
        """Not that of their names; and one that is committed again moves to the end."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            names = [f"s:{n * 7 % 20}" for n in range(20)]
            for name in names[:10]:
                assert await one.commit("round", fence, {name: _step(name)})
            assert await one.commit("round", fence, {name: _step(name) for name in names[10:]})
            assert await one.commit("round", fence, {names[3]: _step("again"), "d:now": _step(None)})
            await one.release("round", fence)
            claim = await _claim(other)
            assert isinstance(claim, Claimed)
            assert list(claim.entries) == [*names[:3], *names[4:], names[3], "d:now"]
            assert claim.entries[names[3]] == _step("again")
            assert claim.entries[names[4]] == _step(names[4])

    async def test_entries_come_back_whatever_they_are_called(self) -> None:
        """A name that the database does not like must not fail a commit: the effect has happened."""
        names = ["s:\0nul\0", "s:" + "k" * 5000, "s:" + "k" * 5001, "s:\ud800", "s:\u6f22'\"%s?\n", ""]
        values: list[Any] = [None, True, 1.5, 2**63, "\0", b"\xff", ["x" * 100_000, {"deep": [[]]}]]
        async with self.opened() as (one, other):
            fence = await _owned(one)
            entries = {name: _step([name[:10].encode("utf-8", "replace"), values]) for name in names}
            assert await one.commit("round", fence, entries)
            await one.release("round", fence)
            claim = await _claim(other)
            assert isinstance(claim, Claimed)
            assert claim.entries == entries
            assert list(claim.entries) == names

    async def test_commits_at_the_same_time_are_all_kept(self) -> None:
        """Branches of a handler end their steps together."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            commits = [one.commit("round", fence, {f"s:{n}": _step(n)}) for n in range(30)]
            assert all(await asyncio.gather(*commits))
            await one.release("round", fence)
            claim = await _claim(other)
            assert isinstance(claim, Claimed)
            assert sorted(entry.value for entry in claim.entries.values()) == list(range(30))

    # Forgetting

    async def test_what_has_expired_is_forgotten(self) -> None:
        """A claim after that finds nothing, whether it was removed or not."""
        for purges in (True, False):
            async with self.opened() as (one, other):
                fence = await _owned(one)
                assert await one.commit("round", fence, {"s:1": _step(1)})
                assert await one.finish("round", fence, b"done")
                late = _EXPIRES + 1
                if purges:
                    await other.purge(now=late)
                assert await other.look("round", "no", now=late) is None
                claim = await _claim(other, "no", now=late)
                assert isinstance(claim, Claimed)
                assert claim.entries == {}
                if not purges:
                    assert claim.fence == fence + 1, "a fence is not used twice"

    async def test_nothing_is_forgotten_before_its_time_is_over(self) -> None:
        """Not in its last moment, either."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            assert await one.finish("round", fence, b"done")
            await one.put_journal("journal", b"data", expires=_EXPIRES)
            lost = await one.claim("lost", "yes", now=_NOW, lease=_LEASE, expires=_EXPIRES)
            assert lost == Claimed(1, {})
            await other.purge(now=_EXPIRES)
            assert await one.look("round", "yes", now=_EXPIRES) == Recorded(b"done")
            assert await _claim(other, "no", now=_EXPIRES) == Refused()
            assert await one.get_journal("journal") == b"data"
            dead = _NOW + _LEASE + ABANDONED_SECONDS
            assert dead > _EXPIRES
            for now, owner in ((dead, Busy(1, _NOW + _LEASE)), (dead + 1, Claimed(1, {}))):
                await one.purge(now=now)
                claim = await other.claim("lost", "yes", now=now, lease=_LEASE, expires=now + 1)
                assert claim == owner, "nothing was renewed for so long"

    async def test_a_round_that_runs_is_never_forgotten(self) -> None:
        """Not until its owner has been dead for a day."""
        async with self.opened() as (one, other):
            fence = await _owned(one)
            late = _EXPIRES + 1
            await other.purge(now=late)
            assert await _claim(other, now=late) == Busy(fence, _NOW + _LEASE)
            assert await _renew(one, fence, now=late, expires=late + 100)
            assert await one.finish("round", fence, b"done")
            await other.purge(now=late + 99)
            assert await other.look("round", "yes", now=late + 99) == Recorded(b"done")
            await other.purge(now=late + 101)
            assert isinstance(await _claim(other, now=late + 101), Claimed)
            long_after = late + 101 + _LEASE + ABANDONED_SECONDS + 1
            await one.purge(now=long_after)
            assert await _claim(other, "no", now=long_after) == Claimed(1, {})

    async def test_journals_are_kept_until_they_expire(self) -> None:
        """Then they are gone."""
        async with self.opened() as (one, other):
            assert await one.get_journal("journal") is None
            await one.put_journal("journal", b"\0one", expires=_EXPIRES)
            await one.put_journal("journal", b"\0two", expires=_EXPIRES)
            await one.purge(now=_EXPIRES - 1)
            assert await other.get_journal("journal") == b"\0two"
            await other.purge(now=_EXPIRES + 1)
            assert await one.get_journal("journal") is None
