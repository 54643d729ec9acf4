"""What holds answers, tokens or headers is printed by its name alone, whoever prints it."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.pretty import Pretty

from ekiden.rounds.asks import RoundQuestions
from ekiden.rounds.handler_task import HandlerTask
from ekiden.rounds.journal import Entry, Journal
from ekiden.rounds.leg import Leg
from ekiden.rounds.replay import Replay
from ekiden.server.rounds.owning.claim import RoundClaim
from ekiden.server.rounds.owning.once import Once
from ekiden.stores.memory import MemoryStore
from ekiden.transports.server.reply import Reply

SECRET = "swordfish"


async def _send(_event: Any) -> None:
    pass


def _journal() -> Journal:
    return Journal.of({"a:word": Entry("answer", "", SECRET, 0)})


QUESTIONS = RoundQuestions("Tool 'pay'", {"word": SECRET}, None, {})
REPLAY = Replay(HandlerTask("Tool 'pay'"), _journal(), QUESTIONS, lambda: 0.0)
HOLDERS = [
    _journal(),
    Journal.of({"a:word": Entry("answer", "", SECRET, 0)}),
    QUESTIONS,
    REPLAY,
    Leg(REPLAY),
    RoundClaim(Once(MemoryStore(), lambda: 0.0, lease=1.0, keep=1.0), "flow.1", SECRET, {"word": SECRET}),
    Reply(_send, {b"authorization": SECRET.encode()}, 1.0),
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_what_it_holds_is_not_printed(holder: object) -> None:
    out = StringIO()
    Console(file=out, width=1000).print(Pretty(holder))
    for printed in (repr(holder), f"{holder}", out.getvalue()):
        assert type(holder).__name__ in printed
        assert SECRET not in printed


def test_it_equals_only_itself_and_shares_nothing() -> None:
    one, other = Journal(), Journal()
    assert one != other
    assert len({one, other}) == 2
    one.add("a:word", Entry("answer", "", SECRET, 0))
    assert other.entries == {}
    assert not other.unsaved
