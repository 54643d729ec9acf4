"""What happens to questions by themselves, and how people are told."""

import asyncio
import hashlib
import hmac
import json
import logging
import socketserver
import threading
from typing import Any

import msgspec
import pytest

from ekiden import (
    Context,
    HttpRequest,
    MailNotifier,
    Notice,
    Pages,
    Person,
    Server,
    UsageError,
    WebhookNotifier,
)
from ekiden.pages.people.notifiers import to_log
from ekiden.people.store import PeopleRow
from ekiden.server.people import minding
from ekiden.server.people.minding import mind
from ekiden.server.people.people import People
from ekiden.stores.memory import MemoryStore
from tests.pages.people.calling import Caller, text
from tests.pages.people.shop import ORIGIN, Approval, Post, fill, pages_of, shop
from tests.serving import served

NOTICE = Notice(
    kind="asked",
    person="a@example.com",
    link=f"{ORIGIN}/ask/x.y",
    message="Pay?\nBcc: everybody@example.com",
    server="The Shop\r\nBcc: x@example.com",
    target="pay",
    until=1_000_000.0,
)


class World:
    def __init__(self, store: Any) -> None:
        self.now = 1_000_000.0
        self.post = Post()
        self.ran: list[str] = []
        self.server = shop(store, self.ran, post=self.post, clock=lambda: self.now)
        waiting = self.server._rounds.people
        assert waiting is not None
        self.people: People = waiting.people
        self.caller = Caller(self.server, elicitation={})

    async def after(self, seconds: float) -> list[tuple[str, str]]:
        """What people were told by then."""
        self.now += seconds
        del self.post.notices[:]
        await mind(self.people)
        return [(notice.kind, notice.person) for notice in self.post.notices]


async def test_a_question_that_cannot_be_read_keeps_nobody_else_from_being_reminded(store: Any) -> None:
    world = World(store)
    async with world.server.running():
        await world.caller.call("buy")
        broken = PeopleRow(
            id="0" * 32,
            call="another",
            audience=world.people.audience,
            due=1.0,
            expires=world.now + 9000.0,
            data=b"!",
        )
        await world.people.store.add(broken)
        assert await world.after(601) == [("reminded", "finance@example.com")]
        assert await world.after(1) == []
        row = await world.people.store.load(broken.id)
        assert row is not None
        assert row.due == world.now + 59.0


async def test_a_person_is_reminded_then_the_next_is_asked_then_the_default_counts(store: Any) -> None:
    world = World(store)
    async with world.server.running():
        await world.caller.call("buy")
        first = world.post.path()
        assert await world.after(599) == []
        assert await world.after(2) == [("reminded", "finance@example.com")]
        assert await world.after(1) == []
        assert world.post.notices == []
        assert await world.after(1500) == [("reminded", "finance@example.com")]
        assert await world.after(1500) == [("asked", "boss@example.com")]
        second = world.post.path()
        browser = pages_of(world.server)
        assert (await browser.get(first)).status == 404
        assert "asks boss@example.com" in (await browser.get(second)).words
        assert await world.after(3601) == []
        asked = await world.caller.call("buy")
        answers = {key: {"action": "accept", "content": {"size": "small"}} for key in asked["inputRequests"]}
        assert text(await world.caller.call("buy", asked["requestState"], answers)) == "False late small"
        assert "<form" not in (await browser.get(second)).text


async def test_an_answer_that_comes_while_the_question_goes_to_the_next_is_too_late(store: Any) -> None:
    world = World(store)
    async with world.server.running():
        await world.caller.call("buy")
        answer = world.people.answer

        async def answer_late(*arguments: Any, **more: Any) -> bool:
            """The person was let in; then the deadline passes."""
            assert await world.after(3601) == [("asked", "boss@example.com")]
            return await answer(*arguments, **more)

        world.people.answer = answer_late  # type: ignore[method-assign]  # the race that is tested
        late = await fill(pages_of(world.server), world.post.path(), approve="true")
        world.people.answer = answer  # type: ignore[method-assign]  # it is over
        assert late.status == 409
        assert "gone to somebody else" in late.words
        assert "asks boss@example.com" in (await pages_of(world.server).get(world.post.path())).words


async def test_without_a_default_the_deadline_is_a_decline() -> None:
    world = World(MemoryStore())

    @world.server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Well?", bool, who=Person("a@example.com", deadline=10))).action

    async with world.server.running():
        await world.caller.call("ask")
        await world.after(11)
        assert text(await world.caller.call("ask")) == "decline"


async def test_if_a_person_cannot_be_told_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(MemoryStore())
    async with world.server.running():
        world.post.is_broken = True
        with caplog.at_level(logging.ERROR):
            await world.caller.call("buy")
        assert "finance@example.com was not told" in caplog.text
        world.post.is_broken = False
        assert await world.after(1) == []
        assert await world.after(30) == [("asked", "finance@example.com")]
        assert (await fill(pages_of(world.server), world.post.path(), approve="true")).status == 303


async def test_a_question_that_cannot_be_read_keeps_no_other_from_being_minded(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(store)
    async with world.server.running():
        broken = PeopleRow(
            id="b" * 32,
            call="gone",
            audience=world.people.audience,
            due=1.0,
            expires=world.now + 1e6,
            data=b"?",
        )
        await store.people.add(broken)
        await world.caller.call("buy")
        assert await world.after(601) == [("reminded", "finance@example.com")]
    assert "could not be looked after" in caplog.text


async def test_a_question_whose_key_is_gone_keeps_no_other_from_being_minded() -> None:
    store, post, now = MemoryStore(), Post(), [1_000_000.0]
    for key in (b"a" * 32, b"b" * 32):
        server = Server(
            "shop",
            keys=[key],
            store=store,
            seal_store=True,
            clock=lambda: now[0],
            pages=Pages(ORIGIN, notify=post, wait_seconds=0),
        )

        @server.tool
        async def ask(who: str, ctx: Context) -> str:
            return (await ctx.elicit("Well?", bool, who=Person(who, remind=10))).action

        async with server.running():
            await Caller(server).call("ask", who=key[:1].decode())
            del post.notices[:]
            now[0] += 11
            waiting = server._rounds.people
            assert waiting is not None
            await mind(waiting.people)
        assert [notice.person for notice in post.notices] == [key[:1].decode()]


async def test_a_notifier_that_hangs_for_one_person_does_not_delay_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(minding, "_LOOK_SECONDS", 1000.0)
    world, hangs = World(MemoryStore()), asyncio.Event()

    async def notify(notice: Notice) -> None:
        if notice.person == "slow@example.com" and notice.kind == "reminded":
            await hangs.wait()
        await world.post(notice)

    world.people.pages.notify = notify

    @world.server.tool
    async def ask(who: str, ctx: Context) -> str:
        return (await ctx.elicit("Well?", bool, who=Person(who, remind=10))).action

    async with world.server.running():
        for who in ("slow@example.com", "quick@example.com"):
            await world.caller.call("ask", who=who)
            world.now += 1
        del world.post.notices[:]
        world.now += 11
        looking = asyncio.create_task(mind(world.people))
        async with asyncio.timeout(10):
            while not world.post.notices:
                await asyncio.sleep(0.01)
        assert [notice.person for notice in world.post.notices] == ["quick@example.com"]
        hangs.set()
        await looking


async def test_of_many_processes_one_reminds(store: Any) -> None:
    world = World(store)
    async with world.server.running():
        await world.caller.call("buy")
        world.now += 601
        del world.post.notices[:]
        await asyncio.gather(*(mind(world.people) for _ in range(8)))
        assert len(world.post.notices) == 1


async def test_the_server_minds_its_questions_by_itself() -> None:
    world = World(MemoryStore())
    async with world.server.running():
        await world.caller.call("buy")
        world.now += 601
        async with asyncio.timeout(20):
            while len(world.post.notices) < 2:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "person",
    [
        Person(""),
        Person("two\nlines"),
        Person("a", remind=0),
        Person("a", deadline=-1),
        Person("a", escalate=("b",)),
        Person("a", default=True),
        Person("a", deadline=1, default="not a yes or no"),
    ],
)
async def test_a_person_that_makes_no_sense_is_refused(
    person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(MemoryStore())

    @world.server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("Well?", bool, who=person)
        except UsageError as error:
            return str(error)
        return "asked"

    async with world.server.running():
        assert text(await world.caller.call("ask")) not in ("asked", "")
        assert world.post.notices == []


async def test_the_log_has_the_link(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await to_log(NOTICE)
    assert NOTICE.link in caplog.text


async def test_a_webhook_gets_json_with_a_signature_and_a_refusal_is_a_failure() -> None:
    got: list[HttpRequest] = []
    hooked = Server("hooked", keys=[b"k" * 32])

    @hooked.route("/hook", methods=["POST"])
    async def hook(request: HttpRequest) -> str:
        got.append(request)
        return "thanks"

    async with served(hooked) as base:
        await WebhookNotifier(f"{base}/hook", secret="s3cret")(NOTICE)
        with pytest.raises(OSError, match="404") as raised:
            await WebhookNotifier(f"{base}/nowhere")(NOTICE)
        assert "nowhere" not in repr(raised.value), "whoever knows the URL can post there"
    with pytest.raises(OSError, match="could not be called") as raised:
        await WebhookNotifier(f"{base}/hook")(NOTICE)
    assert "/hook" not in repr(raised.value)
    assert json.loads(got[0].body)["link"] == NOTICE.link
    expected = hmac.new(b"s3cret", got[0].body, hashlib.sha256).hexdigest()
    assert got[0].headers["x-ekiden-signature"] == expected


class _Smtp(socketserver.StreamRequestHandler):
    """As much of SMTP as it takes to get one mail."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        lines: list[str] = []
        while line := self.rfile.readline().decode().strip():
            word = line.partition(" ")[0].upper()
            if word == "DATA":
                self.wfile.write(b"354 go on\r\n")
                while (data := self.rfile.readline().decode()) != ".\r\n":
                    lines.append(data)
                self.server.mails.append("".join(lines))  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
            if word == "QUIT":
                return


async def test_a_mail_has_the_link_and_what_is_asked_cannot_add_a_header() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Smtp) as server:
        mails: list[str] = []
        server.mails = mails  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        notify = MailNotifier(
            "127.0.0.1", server.server_address[1], sender="shop@example.com", encrypted=False
        )
        await notify(NOTICE)
        await asyncio.to_thread(thread.join, 10)
    head, _, body = mails[0].replace("\r\n", "\n").partition("\n\n")
    assert "To: a@example.com" in head
    assert "\nBcc:" not in head
    assert NOTICE.link in body
    assert "12 Jan 1970" in body


@pytest.mark.parametrize(
    "person", ["a@example.com, b@example.com", "a@example.com,b@example.com", "two: a@b, c@d;"]
)
def test_a_mail_goes_to_one_address(person: str) -> None:
    notify = MailNotifier("127.0.0.1", sender="shop@example.com")
    with pytest.raises(UsageError, match="one person"):
        notify.message(msgspec.structs.replace(NOTICE, person=person))


def test_a_default_is_spelled_as_the_content_of_an_answer() -> None:
    from ekiden.rounds.asks import PAGED, PAGES
    from ekiden.server.questions.addressed import addressed
    from ekiden.server.questions.forms import form_for

    ask = form_for(Approval).ask("Well?")
    made = addressed(ask, Person("a", deadline=1, default=Approval(approve=True)), {PAGES: PAGED})
    assert made.person is not None
    assert made.person.default == {"approve": True, "reason": ""}
    assert made.digest != ask.digest
