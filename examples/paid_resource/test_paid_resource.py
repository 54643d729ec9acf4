"""Nothing is paid for that the user did not agree to, and nothing is paid for twice."""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from cloud import Cloud, Project, Quote
from paid_resource import make_server

from ekiden.testing import DECLINE, CallFailed, Replicas, ScriptedClient

WANTED = {"name": "blog", "region": "tokyo"}
YES, NO = {"create": True}, {"create": False}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that all workers share."""
    monkeypatch.setenv("EKIDEN_KEYS", base64.b64encode(bytes(range(32))).decode())


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path / "cloud.db")


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_a_project_is_created_for_the_price_that_was_agreed_to(cloud: Cloud) -> None:
    client = ScriptedClient(make_server(cloud), {"blog in tokyo costs 10.00 a month. Create it?": YES})
    assert (
        text(await client.call_tool("create_project", WANTED))
        == "blog was created in tokyo, for 10.00 a month."
    )
    assert cloud.projects() == [Project(name="blog", region="tokyo", cents=1000)]


@pytest.mark.parametrize("answer", [NO, DECLINE])
async def test_a_user_who_does_not_agree_pays_nothing(cloud: Cloud, answer: Any) -> None:
    client = ScriptedClient(make_server(cloud), {"Create it?": answer})
    assert text(await client.call_tool("create_project", WANTED)) == "blog was not created."
    assert cloud.projects() == []


class Moving(Cloud):
    """A provider that has another price whenever it is asked."""

    def __init__(self, file: Path, prices: Iterable[int]) -> None:
        super().__init__(file)
        self._prices = iter(prices)

    async def quote(self, region: str) -> Quote:
        self.set_price(region, next(self._prices))
        return await super().quote(region)


async def test_a_higher_price_is_asked_about_again(tmp_path: Path) -> None:
    cloud = Moving(tmp_path / "cloud.db", [1000, 1200, 1200])
    client = ScriptedClient(make_server(cloud), {"costs 10.00": YES, "costs 12.00": YES})
    assert text(await client.call_tool("create_project", WANTED)).endswith("for 12.00 a month.")
    assert len(client.rounds) == 3
    assert [project.cents for project in cloud.projects()] == [1200]


async def test_a_lower_price_is_simply_paid(tmp_path: Path) -> None:
    cloud = Moving(tmp_path / "cloud.db", [1000, 900])
    client = ScriptedClient(make_server(cloud), {"costs 10.00": YES})
    assert text(await client.call_tool("create_project", WANTED)).endswith("for 9.00 a month.")
    assert [project.cents for project in cloud.projects()] == [900]


async def test_a_price_that_never_rests_ends_with_nothing_created(tmp_path: Path) -> None:
    cloud = Moving(tmp_path / "cloud.db", range(1000, 2000, 100))
    result = await ScriptedClient(make_server(cloud), {"Create it?": YES}).call_tool("create_project", WANTED)
    assert (result["isError"], "went up 3 times" in text(result)) == (True, True)
    assert cloud.projects() == []


async def test_a_repeated_approval_creates_one_project(cloud: Cloud, tmp_path: Path) -> None:
    server = make_server(cloud, f"sqlite:///{tmp_path}/rounds.db")
    async with server.running():
        client = ScriptedClient(server, {"Create it?": YES})
        first = await client.call_tool("create_project", WANTED)
        retry = client.answer(client.rounds[0])
        again = await client.round("tools/call", {"name": "create_project", "arguments": WANTED, **retry})
    assert text(again.result) == text(first)
    assert len(cloud.projects()) == 1


async def test_each_round_may_be_served_by_another_process(cloud: Cloud) -> None:
    replicas = Replicas(lambda: make_server(cloud), count=2)
    result = await replicas.client({"Create it?": YES}).call_tool("create_project", WANTED)
    assert text(result).startswith("blog was created")
    assert replicas.served == [0, 1]
    assert len(cloud.projects()) == 1


async def test_a_client_that_cannot_ask_its_user_creates_nothing(cloud: Cloud) -> None:
    with pytest.raises(CallFailed):
        await ScriptedClient(make_server(cloud), capabilities={}).call_tool("create_project", WANTED)
    assert cloud.projects() == []


async def test_an_unknown_region_is_an_error_of_the_tool(cloud: Cloud) -> None:
    result = await ScriptedClient(make_server(cloud)).call_tool(
        "create_project", {**WANTED, "region": "mars"}
    )
    assert (result["isError"], text(result)) == (True, "There is no region mars.")
