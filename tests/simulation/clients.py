"""Clients and the network: requests that come twice, replies that are lost, users who answer as they like."""

import asyncio
import json
from typing import Any

from ekiden.transports.server.memory import MemoryChannel
from tests.simulation.answers import NONSENSE, answer_to, unfit
from tests.simulation.world import WORKER, Attempt, Worker, World

__all__ = ["ModernClient", "PushedClient", "Stuck"]

_ELICITS = {"elicitation": {"form": {}, "url": {}}}
EVERYTHING: dict[str, Any] = {**_ELICITS, "sampling": {"tools": {}}, "roots": {}}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
_MOST_ROUNDS = 100
_MOST_TRIES = 25
_PATIENCE = 6000.0
"""Seconds after which a client takes a reply to be lost."""
_PASSING = ("store", "taken over", "shutting down", "another worker")
"""What an error says that a client does well to try again."""


class Stuck(Exception):
    """The call does not end."""


class ModernClient:
    """Drives one call over its rounds, or as a task, and never gives up before it must."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[str] = []
        self.history: list[tuple[Attempt, dict[str, Any]]] = []
        """The attempts whose replies counted, and their results."""
        self.unequal: list[str] = []
        self._id = 0
        self._tasks = TASKS if world.setting.mode == "tasks" else {}

    # The call

    async def call(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The final result, or the error that ended the call."""
        params = params or {"name": "tool", "arguments": {}}
        for _ in range(_MOST_ROUNDS):
            reply = await self.exchange(params)
            if "error" in reply or reply["result"].get("resultType") == "complete":
                return reply
            result = reply["result"]
            if result["resultType"] == "task":
                return await self.watch_task(result["taskId"])
            params = {"name": "tool", "arguments": {}}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
            if requests := result.get("inputRequests"):
                params["inputResponses"] = self._answers(requests)
        raise Stuck(f"no end within {_MOST_ROUNDS} rounds")

    def _answers(self, requests: dict[str, Any]) -> dict[str, Any]:
        world, number = self.world, len(self.world.attempts) + 1
        answers = {key: answer_to(world.seed, request, world.flips) for key, request in requests.items()}
        keys = sorted(answers)
        if world.fault("partial", number) and len(keys) > 1:
            for key in world.rng.sample(keys, len(keys) - 1):
                del answers[key]
        if world.fault("unfit", number) and (wrong := unfit(requests[keys[0]])) is not None:
            answers[keys[0]] = wrong
        if world.fault("stranger", number):
            answers["a stranger"] = {"action": "accept"}
        if world.fault("nonsense", number):
            answers[keys[-1]] = NONSENSE
        return answers

    # One round, until its reply has come

    async def exchange(self, params: dict[str, Any], method: str = "tools/call") -> dict[str, Any]:
        for _ in range(_MOST_TRIES):
            attempt, reply = await self._try(method, params)
            if reply is None:
                continue
            if "error" in reply:
                params = self._mended(params, reply["error"])
                if params is None:
                    return reply
                await asyncio.sleep(0.3)
                continue
            self._keep(attempt, reply)
            return reply
        raise Stuck(f"no reply within {_MOST_TRIES} tries: {json.dumps(params)[:80]}")

    def _keep(self, attempt: Attempt, reply: dict[str, Any]) -> None:
        self.history.append((attempt, reply["result"]))
        self.told += attempt.told

    def _mended(self, params: dict[str, Any], error: dict[str, Any]) -> Any:
        """The params to try again with; None if the error is the end."""
        given = params.get("inputResponses", {})
        wrong = [key for key, value in given.items() if value == NONSENSE]
        if error["code"] == -32602 and wrong:
            kept = {key: value for key, value in given.items() if key not in wrong}
            return {**params, "inputResponses": kept}
        if error["code"] == -32021 or any(word in error["message"] for word in _PASSING):
            return params
        return None

    async def _try(self, method: str, params: dict[str, Any]) -> tuple[Attempt, dict[str, Any] | None]:
        """Send a request, perhaps twice; the reply, if one arrives."""
        world, number = self.world, len(self.world.attempts) + 1
        await world.deploy(number)
        if late := world.fault("late", number):
            await asyncio.sleep(late.seconds)
        blind = bool(world.fault("blind", number))
        leave = world.fault("leave", number)
        double = world.fault("double", number)
        sends = [await self._send(method, params, blind=blind)]
        if double is not None:
            await asyncio.sleep(double.seconds)
            sends.append(await self._send(method, params))
        for attempt, task in sends:
            await self._wait(attempt, task, leave.seconds if leave and attempt is sends[0][0] else _PATIENCE)
        self._compare([attempt for attempt, _ in sends])
        if world.fault("drop", number):
            await asyncio.sleep(0.1)
            return sends[0][0], None
        for attempt, _ in sends:
            if attempt.reply is not None:
                return attempt, attempt.reply
        return sends[0][0], None

    async def _send(
        self, method: str, params: dict[str, Any], *, blind: bool = False
    ) -> tuple[Attempt, asyncio.Task[None]]:
        world = self.world
        worker = await world.living()
        parent = world.producers.get(params.get("requestState", ""))
        attempt = Attempt(len(world.attempts) + 1, worker, params, parent)
        world.attempts.append(attempt)
        capabilities = {**(_ELICITS if blind else EVERYTHING), **self._tasks}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "simulated", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "progressToken": "p",
        }
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": {**params, "_meta": meta}}
        deliver = self._deliver(attempt, message)
        return attempt, world.loop.create_task(deliver, context=worker.context(attempt))

    async def _deliver(self, attempt: Attempt, message: dict[str, Any]) -> None:
        channel = MemoryChannel(attempt.worker.server.endpoint)
        try:
            await channel.send(message)
            while "method" in (reply := await channel.receive()):
                if not attempt.worker.dead and reply["method"] == "notifications/progress":
                    attempt.told.append(reply["params"].get("message", ""))
            if not attempt.worker.dead:
                attempt.reply = reply
                token = reply.get("result", {}).get("requestState")
                if token is not None:
                    self.world.producers.setdefault(token, attempt.runs[-1] if attempt.runs else None)
        finally:
            if not attempt.worker.dead:
                await channel.close()

    async def _wait(self, attempt: Attempt, task: asyncio.Task[None], seconds: float) -> None:
        await asyncio.wait({task, attempt.worker.gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not attempt.worker.dead:
            task.cancel()  # The client leaves.
            await asyncio.wait(
                {task, attempt.worker.gone}, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
            attempt.reply = None
            if not task.done() and not attempt.worker.dead:
                raise Stuck(f"request {attempt.number} does not end although its client has left")
        if task.done() and not task.cancelled():
            task.result()

    def _compare(self, attempts: list[Attempt]) -> None:
        """Two requests that are the same get the same reply, but for those that begin a call."""
        replies = [a.reply["result"] for a in attempts if a.reply is not None and "result" in a.reply]
        if len(replies) == 2 and "requestState" in attempts[0].params:
            one, other = (
                {k: v for k, v in reply.items() if k in ("content", "inputRequests")} for reply in replies
            )
            if one != other:
                self.unequal.append(f"{one} and {other}")

    # Tasks

    async def watch_task(self, task_id: str) -> dict[str, Any]:
        """Look after a task until it has ended."""
        for looked in range(600):
            reply = await self.exchange({"taskId": task_id}, "tasks/get")
            if "error" in reply:
                return reply
            task = reply["result"]
            if task["status"] == "completed":
                return {"result": {**task["result"], "resultType": "complete"}}
            if task["status"] in ("failed", "cancelled"):
                return {"error": task.get("error") or {"code": 0, "message": task["status"]}}
            if requests := task.get("inputRequests"):
                update = {"taskId": task_id, "inputResponses": self._answers(requests)}
                await self.exchange(update, "tasks/update")
            await asyncio.sleep(0.4 if looked < 200 else 10.0)
        raise Stuck("the task does not end")


class PushedClient:
    """A client of 2025: it is asked while it waits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.told: list[str] = []

    async def call(self) -> dict[str, Any]:
        worker: Worker = await self.world.living()
        WORKER.set(worker)
        channel = MemoryChannel(worker.server.endpoint)
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": EVERYTHING,
            "clientInfo": {"name": "s", "version": "1"},
        }
        await channel.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        await channel.receive()
        await channel.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        params = {"name": "tool", "arguments": {}, "_meta": {"progressToken": "p"}}
        await channel.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        async with asyncio.timeout(_PATIENCE):
            while True:
                message = await channel.receive()
                if "method" not in message:
                    await channel.close()
                    return message
                if "id" in message:
                    answer = answer_to(self.world.seed, message, self.world.flips)
                    await channel.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
                elif message["method"] == "notifications/progress":
                    self.told.append(message["params"].get("message", ""))
