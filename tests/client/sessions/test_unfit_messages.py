"""Messages that do not belong into a session of 2025: the server's are not answered, ours are not sent."""

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, InvalidResult, ServerError
from tests.client.sessions.old import VERSION, OldServer
from tests.serving import served

OLDER = ["2025-06-18", "2025-03-26", "2024-11-05"]
"""Versions without tasks."""
BEFORE = [("2025-03-26", False), ("2024-11-05", False)]
"""Versions without elicitation."""


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


@pytest.mark.parametrize("version", OLDER)
async def test_a_server_of_a_version_without_tasks_is_sent_nothing_about_tasks(version: str) -> None:
    old = OldServer(version)
    async with served(old.app) as base, Client(f"{base}/mcp", mode="legacy") as client:
        task = client.task("t")
        for about_task in (task.status, task.cancel, task.wait):
            with pytest.raises(ServerError, match=f"Version {version} has no tasks/") as refused:
                await about_task()
            assert refused.value.code == -32601
    assert not any(method.startswith("tasks/") for method in old.methods())


@pytest.mark.parametrize("version", [VERSION, *OLDER])
async def test_a_task_of_2026_on_an_old_session_is_refused(version: str) -> None:
    old = OldServer(version)
    async with served(old.app) as base, Client(f"{base}/mcp", mode="legacy") as client:
        with pytest.raises(InvalidResult, match=f"A server of {version} must not send tasks of 2026"):
            await client.call_tool("task of 2026")
    assert not any(method.startswith("tasks/") for method in old.methods())


@pytest.mark.parametrize(("version", "may_ask"), [(VERSION, True), ("2025-06-18", True), *BEFORE])
async def test_only_servers_of_versions_with_elicitation_may_ask_the_user(
    version: str, may_ask: bool
) -> None:
    old = OldServer(version)
    elicit = Asked()
    async with served(old.app) as base, Client(f"{base}/mcp", mode="legacy", elicit=elicit) as client:
        await client.call_tool("ask")
    (answer,) = [message for message in old.heard if "method" not in message]
    assert answer.get("error", {}).get("code") == (None if may_ask else -32601)
    assert elicit.times == (1 if may_ask else 0)
