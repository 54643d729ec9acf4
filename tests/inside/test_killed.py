"""Two processes of each host behind one store; one is killed in the middle. Every call ends right."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.inside.processes import HOSTS, PATIENCE, HostProcess, HostProcesses, running
from tests.inside.test_tasks import ALL, YES
from tests.serving import events, headers_for, request

PROCESSES = 2
"""The first one is killed."""


class Relay:
    """A client whose every round goes to the other process, or to whichever is left."""

    def __init__(self, hosts: HostProcesses, client: httpx2.AsyncClient) -> None:
        self._hosts = hosts
        self._client = client

    async def send(self, turn: int, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; if its process is gone, the other one gets it."""
        message = request(method, params, request_id=f"{method}-{turn}", **ALL)
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    return await self._post(self._hosts[turn], message)
                turn += 1
                await asyncio.sleep(0.05)

    async def _post(self, process: HostProcess, message: dict[str, Any]) -> dict[str, Any]:
        response = await self._client.post(process.url, json=message, headers=headers_for(message))
        if response.headers["content-type"].startswith("text/event-stream"):
            said = events(response.text.replace("\r\n", "\n"))[-1]
        else:
            said = response.json()
        assert "result" in said, said
        result: dict[str, Any] = said["result"]
        return result

    async def call(self, number: int, tool: str, order: str) -> dict[str, Any]:
        """A whole call: all its rounds, and if it becomes a task, that to its end."""
        turn, answers = number, {}
        while True:
            result = await self.send(turn, "tools/call", name=tool, arguments={"order": order}, **answers)
            turn += 1
            if result["resultType"] != "input_required":
                return result if result["resultType"] == "complete" else await self._task(turn, result)
            answers = {
                "requestState": result["requestState"],
                "inputResponses": dict.fromkeys(result["inputRequests"], YES),
            }

    async def _task(self, turn: int, task: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while task["status"] != "completed":
                if questions := task.get("inputRequests"):
                    answers = dict.fromkeys(questions, YES)
                    await self.send(turn, "tasks/update", taskId=task["taskId"], inputResponses=answers)
                await asyncio.sleep(0.05)
                turn += 1
                task = await self.send(turn, "tasks/get", taskId=task["taskId"])
                assert task["status"] in ("working", "input_required", "completed"), task
        result: dict[str, Any] = task["result"]
        return result


async def survives(host: str, folder: Path, calls: int) -> None:
    """Run as many calls, half of them with tasks, and kill a process when a third of them has ended."""
    limits = httpx2.Limits(max_connections=20)
    with running(host, folder, PROCESSES) as hosts:
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False, limits=limits) as client:
            relay, ended, kill = Relay(hosts, client), 0, asyncio.Event()
            at_a_time = asyncio.Semaphore(8)

            async def run(number: int) -> str:
                nonlocal ended
                tool = ("pay", "parcel")[number % 2]
                async with at_a_time:
                    result = await relay.call(number, tool, f"{tool}-{number}")
                ended += 1
                if ended >= calls // 3:
                    kill.set()
                return str(result["content"][0]["text"])

            running_calls = [asyncio.create_task(run(number)) for number in range(calls)]
            await asyncio.wait_for(kill.wait(), PATIENCE)
            await asyncio.to_thread(hosts[0].kill)
            texts = await asyncio.wait_for(asyncio.gather(*running_calls), 2 * PATIENCE)
        for number, said in enumerate(texts):
            tool = ("pay", "parcel")[number % 2]
            order = f"{tool}-{number}"
            want = {
                "pay": f"receipt of {order}: accept, accept",
                "parcel": f"receipt of {order}, parcel of {order}: accept",
            }
            assert said == want[tool]
            # A crash between an effect and its journaling can repeat that one step, and no other.
            effects = hosts.effects(order)
            assert effects["charge"] in (1, 2)
            assert effects.total() <= 3
        repeated = [
            order.name for order in hosts.notes.iterdir() if max(hosts.effects(order.name).values()) > 1
        ]
        assert len(repeated) <= 8, "only what ran in the killed process at that moment can be repeated"


@pytest.mark.parametrize("host", HOSTS)
async def test_every_call_ends_although_a_process_is_killed(host: str, tmp_path: Path) -> None:
    await survives(host, tmp_path, 12)


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
async def test_fifty_calls_of_fifty_end_although_a_process_is_killed(host: str, tmp_path: Path) -> None:
    await survives(host, tmp_path, 50)
