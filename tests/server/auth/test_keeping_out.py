"""Nobody keeps others out by tokens that have to be verified: places, and keys that are slow to come."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ekiden import Auth, JWTVerifier, Principal, VerifiedToken
from ekiden.server.auth import fetching, jwks, verifying
from ekiden.server.auth.known import Known
from ekiden.server.auth.verifying import Verification, Verifications
from ekiden.signals import VerifierUnavailable
from tests.identity_provider import IdentityProvider
from tests.serving import served, soon

from .test_auth import called, whoami

RESOURCE = "http://localhost/mcp"


class Places:
    """Verifications that last until they are let go."""

    def __init__(self) -> None:
        self.verifications = Verifications(self._verify)
        self._go: dict[bytes, asyncio.Event] = {}
        self._count = 0

    async def _verify(self, token: bytes, digest: bytes) -> Known | None:
        await self._go.setdefault(digest, asyncio.Event()).wait()
        return None

    def begin(self, address: str, digest: bytes = b"", **options: bool) -> Verification | None:
        self._count += 1
        return self.verifications.begin(b"t", digest or b"%d" % self._count, address, **options)

    def let_go(self, digest: bytes) -> None:
        self._go.setdefault(digest, asyncio.Event()).set()


@asynccontextmanager
async def places() -> AsyncGenerator[Places, None]:
    before = asyncio.all_tasks()
    yield Places()
    tasks = asyncio.all_tasks() - before
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


@pytest.mark.parametrize("network", ["2001:db8:0:{:x}::1", "2001:db8:0:{:x}00::1"], ids=["/56", "/48"])
async def test_one_site_of_ipv6_does_not_take_all_places(network: str) -> None:
    async with places() as all_places:
        begun = [all_places.begin(network.format(number)) for number in range(64)]
        assert sum(each is not None for each in begun) < 64
        assert all_places.begin("203.0.113.7") is not None


async def test_a_site_that_shares_its_network_with_an_attacker_gets_a_place() -> None:
    async with places() as all_places:
        for number in range(64):
            all_places.begin(f"2001:db8:0:{number:x}::1")
        assert all_places.begin("2001:db8:0:ff00::1") is not None


async def test_who_comes_when_all_places_are_taken_waits_for_one() -> None:
    async with places() as all_places:
        for number in range(64):
            all_places.begin(f"10.0.0.{number}", b"first %d" % number)
        waiting = [all_places.begin("10.0.0.1", b"second"), all_places.begin("10.1.1.1", b"other")]
        assert None not in waiting
        all_places.let_go(b"other")
        all_places.let_go(b"first 9")
        # Whoever has fewest is first, not whoever waits longest.
        assert waiting[1] is not None
        assert await soon(waiting[1]) is None
        assert waiting[0] is not None
        assert not waiting[0].done()


async def test_only_so_many_wait() -> None:
    async with places() as all_places:
        begun = [all_places.begin(f"10.{number // 200}.0.{number % 200}") for number in range(400)]
        assert [each is not None for each in begun] == [True] * 320 + [False] * 80


async def test_who_waits_too_long_is_sent_away_and_is_not_counted_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifying, "_WAIT_SECONDS", 0.01)
    async with places() as all_places:
        for number in range(64):
            all_places.begin(f"10.0.0.{number}")
        waiting = all_places.begin("10.1.1.1")
        assert waiting is not None
        await soon(asyncio.wait([waiting]))
        assert waiting.cancelled()
        for number in range(32):
            assert all_places.begin("10.1.1.1", b"later %d" % number) is not None


async def test_a_token_that_was_valid_lately_needs_none_of_the_places() -> None:
    now, go_on = [1000.0], asyncio.Event()
    invented: list[str] = []

    class Slow:
        checks_audience = True
        cache_seconds = 5.0

        async def verify_token(self, token: str) -> VerifiedToken | None:
            if token == "good":
                return VerifiedToken(subject="zoe")
            invented.append(token)
            await go_on.wait()
            return None

    auth = Auth(RESOURCE, verifier=Slow(), clock=lambda: now[0])
    async with served(whoami(auth)) as base:
        assert (await called(base, "good")).status_code == 200
        flood = [asyncio.create_task(called(base, f"invented{number}")) for number in range(32)]
        async with asyncio.timeout(20):
            while len(invented) < 32:
                await asyncio.sleep(0.001)
        now[0] += 6  # It is verified again, although its address has no place left.
        again = await soon(called(base, "good"))
        other = await soon(called(base, "invented-too"))
        go_on.set()
        await asyncio.gather(*flood)
    assert (again.status_code, other.status_code) == (200, 503)


async def test_tokens_that_were_valid_lately_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "_LONGEST_SECONDS", 0.1)
    async with places() as all_places:
        begun = [all_places.begin("10.0.0.1", is_sure_to_be_real=True) for _ in range(200)]
        running = [each for each in begun if each is not None]
        await soon(asyncio.wait(running))
    assert {type(each.exception()) for each in running} == {VerifierUnavailable}
    assert len(running) == 200


async def test_a_token_that_is_refused_does_not_count_as_valid_lately() -> None:
    from ekiden.server.auth.known import KnownTokens

    known = KnownTokens()
    known.put(b"digest", Known(Principal("zoe"), 9e9, 1005.0, None), 1000.0)
    known.put(b"short", Known(Principal("zoe"), 1010.0, 1005.0, None), 1000.0)
    assert known.was_valid(b"digest", 1006.0)
    assert not known.was_valid(b"short", 1011.0)
    assert not known.was_valid(b"digest", 1000.0 + 2 * 3600)
    known.forget(b"digest")
    assert not known.was_valid(b"digest", 1006.0)


# Keys


class SlowProvider(IdentityProvider):
    """Its keys come when they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.waiting = asyncio.Event()

    async def jwks(self, request: Request) -> Response:
        self.waiting.set()
        await self.may_answer.wait()
        return await super().jwks(request)


@pytest.fixture
async def idp() -> AsyncGenerator[SlowProvider, None]:
    provider = SlowProvider()
    async with provider.running():
        yield provider
        provider.may_answer.set()


async def test_good_jwts_of_one_place_are_all_served_at_once(idp: SlowProvider) -> None:
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer))) as base:
        assert (await called(base, idp.token())).status_code == 200
        answers = await soon(asyncio.gather(*(called(base, idp.token()) for _ in range(100))))
    assert {answer.status_code for answer in answers} == {200}


async def test_a_jwt_whose_key_is_known_needs_none_of_the_places(idp: SlowProvider) -> None:
    async with served(whoami(Auth(RESOURCE, verifier=JWTVerifier(idp.issuer, refresh_seconds=0)))) as base:
        assert (await called(base, idp.token())).status_code == 200
        idp.may_answer.clear()
        idp.waiting.clear()
        invented = [
            asyncio.create_task(called(base, idp.token(headers={"kid": f"invented{number}"})))
            for number in range(32)
        ]
        await soon(idp.waiting.wait())
        answers = await soon(asyncio.gather(*(called(base, idp.token()) for _ in range(40))))
        idp.may_answer.set()
        await asyncio.gather(*invented)
    assert {answer.status_code for answer in answers} == {200}


async def test_a_verifier_that_adds_to_the_one_for_jwts_is_always_asked(idp: SlowProvider) -> None:
    class Denying(JWTVerifier):
        async def verify_token(self, token: str) -> VerifiedToken | None:
            found = await super().verify_token(token)
            return None if found is None or found.subject == "eve" else found

    async with served(whoami(Auth(RESOURCE, verifier=Denying(idp.issuer)))) as base:
        assert (await called(base, idp.token())).status_code == 200
        idp.user = "eve"
        assert (await called(base, idp.token())).status_code == 401


async def test_keys_that_do_not_come_hold_up_no_token_of_a_known_key(
    idp: SlowProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_SECONDS", 600.0)
    verifier = JWTVerifier(idp.issuer, keys_seconds=0.0, refresh_seconds=0.0)
    async with served(whoami(Auth(RESOURCE, verifier=verifier))) as base:
        assert (await called(base, idp.token())).status_code == 200
        idp.may_answer.clear()
        answers = [await soon(called(base, idp.token())) for _ in range(3)]
        await soon(idp.waiting.wait())
    assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_after_a_long_silence_a_token_waits_for_the_newest_keys(
    idp: SlowProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "_LATE_SECONDS", 0.0)
    verifier = JWTVerifier(idp.issuer, audience=RESOURCE, keys_seconds=0.0, refresh_seconds=0.0)
    assert await verifier.verify_token(idp.token()) is not None
    withdrawn = idp.token()
    idp.rotate("two", keep=False)
    assert await verifier.verify_token(withdrawn) is None
    await verifier.close()


async def test_after_a_long_silence_a_token_does_not_wait_long(
    idp: SlowProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "_LATE_SECONDS", 0.0)
    monkeypatch.setattr(jwks, "_SHORT_SECONDS", 0.05)
    verifier = JWTVerifier(idp.issuer, audience=RESOURCE, keys_seconds=0.0, refresh_seconds=0.0)
    assert await verifier.verify_token(idp.token()) is not None
    idp.may_answer.clear()
    assert await soon(verifier.verify_token(idp.token())) is not None
    # Nobody waits any more while the issuer is known to be slow.
    monkeypatch.setattr(jwks, "_SHORT_SECONDS", 1e9)
    assert await soon(verifier.verify_token(idp.token())) is not None
    await verifier.close()


async def test_fetching_keys_ends_with_the_server(idp: SlowProvider) -> None:
    verifier = JWTVerifier(idp.issuer, audience=RESOURCE, keys_seconds=0.0, refresh_seconds=0.0)
    assert await verifier.verify_token(idp.token()) is not None
    idp.may_answer.clear()
    before: set[Any] = asyncio.all_tasks()
    assert await verifier.verify_token(idp.token()) is not None
    await verifier.close()
    assert {task for task in asyncio.all_tasks() - before if "_fetch" in repr(task.get_coro())} == set()


async def test_a_token_of_an_unknown_key_waits_for_it(idp: SlowProvider) -> None:
    verifier = JWTVerifier(idp.issuer, audience=RESOURCE, refresh_seconds=0.0)
    assert await verifier.verify_token(idp.token()) is not None
    idp.rotate("two")
    assert verifier.verify_at_once(idp.token()) == (False, None)
    assert await verifier.verify_token(idp.token()) is not None
    idp.is_down = True
    other = JWTVerifier(idp.issuer, audience=RESOURCE)
    with pytest.raises(VerifierUnavailable):
        await other.verify_token(idp.token())
