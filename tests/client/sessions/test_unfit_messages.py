"""Messages that do not belong into a session of 2025: the server's are not answered, ours are not sent."""

from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client
from tests.client.sessions.old import OldServer
from tests.serving import served


class Asked:
    """A callback that counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    async def __call__(self, params: ElicitRequestFormParams) -> ElicitResult:
        self.times += 1
        return ElicitResult(action="accept", content={"value": True})


async def test_a_question_before_the_end_of_the_handshake_is_refused() -> None:
    old = OldServer(early=["elicitation/create"])
    elicit = Asked()
    async with served(old.app) as base, Client(f"{base}/mcp", mode="legacy", elicit=elicit) as client:
        assert elicit.times == 0
        await client.call_tool("ask")
    (answer,) = old.early_answers
    assert answer["error"]["code"] == -32600
    assert "before the handshake is complete" in answer["error"]["message"]
    assert elicit.times == 1, "after the handshake it may ask"


async def test_a_ping_before_the_end_of_the_handshake_is_answered() -> None:
    old = OldServer(early=["ping"])
    async with served(old.app) as base, Client(f"{base}/mcp", mode="legacy"):
        assert [answer["result"] for answer in old.early_answers] == [{}]


async def test_a_question_whose_id_is_null_is_not_answered() -> None:
    old = OldServer()
    elicit = Asked()
    async with served(old.app) as base, Client(f"{base}/mcp", mode="legacy", elicit=elicit) as client:
        await client.call_tool("nameless")
        await client.call_tool("ask")
    assert elicit.times == 1
    (answer,) = [message for message in old.heard if "method" not in message]
    assert answer["id"] is not None
