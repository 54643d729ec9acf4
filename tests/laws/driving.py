"""Servers of one tool, clients that say yes, and stores that fail when told to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ekiden import Context, RoundLimits, Server
from ekiden.stores.memory import MemoryStore
from ekiden.testing import CallFailed, Replicas, Round, ScriptedClient
from tests.acceptance import driving
from tests.acceptance.driving import EVERYTHING, accept, new_server, text
from tests.eras import old_client
from tests.serving import served
from tests.tasks.driving import QUICK, TaskClient

PATIENCE = 30.0
"""Seconds after which a reply is taken never to come."""

T = TypeVar("T")
Handler = Callable[..., Awaitable[Any]]

SHORT_LEASE = RoundLimits(lease_seconds=0.3)

HOW = ("rounds", "replicas", "parked", "task")
REPLAYED = ("rounds", "replicas", "task")


def yes(_key: str, _request: dict[str, Any]) -> Any:
    """Agree to everything."""
    return True


async def soon(awaitable: Awaitable[T], patience: float = PATIENCE) -> T:
    async with asyncio.timeout(patience):
        return await awaitable


def serve(
    handler: Handler, *, store: Any = None, rounds: RoundLimits | None = None, **options: Any
) -> Server:
    """A server whose one tool is `handler`."""
    server = new_server(store=store, rounds=rounds, tasks=QUICK)
    server.add_tool(handler, **{"name": "tool", **options})
    return server


async def two_more_rounds(ctx: Context) -> None:
    for n in range(2):
        await ctx.elicit(f"{n}?", bool)


class Client(driving.Client):
    """A client that says yes."""

    patience = PATIENCE

    def __init__(self, server: Any, answers: Any = yes, **options: Any) -> None:
        super().__init__(server, answers, **options)

    async def round(self, method: str, params: Mapping[str, Any]) -> Round:
        return await soon(ScriptedClient.round(self, method, params), self.patience + 1)

    async def reply(
        self, last: Round, responses: Mapping[str, Any], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """What the round after `last` came to, in a few words, whatever it is."""
        playing = asyncio.ensure_future(self.retry(last, responses, arguments=arguments))
        try:
            await asyncio.wait([playing], timeout=self.patience)
        finally:
            playing.cancel()
        if not playing.done():
            return "no reply"
        try:
            return said(playing.result().result)
        except CallFailed as error:
            return f"error {error.code}"


def said(result: Mapping[str, Any]) -> str:
    """A result in a few words."""
    if result["resultType"] == "input_required":
        asked = [r["params"].get("message", r["method"]) for r in result.get("inputRequests", {}).values()]
        return f"asks {', '.join(sorted(asked))}"
    words = str(result["content"][0]["text"])
    return f"failed: {words}" if result.get("isError") else words


class Runs:
    """What every run of a handler saw."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []

    def begin(self) -> list[Any]:
        """For one more run of the handler; it appends what it sees."""
        self.all.append([])
        return self.all[-1]

    def agree(self) -> list[Any]:
        """Every run saw the beginning of what the longest saw, which is given."""
        longest = max(self.all, key=len)
        for run in self.all:
            assert run == longest[: len(run)], self.all
        return longest


async def play(handler: Handler, how: str = "rounds", answers: Any = yes) -> str:
    """Play a handler to its end, in rounds or otherwise; its text."""
    if how == "task":
        return await _play_task(handler, answers)
    if how == "replicas":
        client: Any = Replicas(lambda: serve(handler)).client(answers)
        return text(await soon(client.call_tool("tool")))
    server = serve(handler, resume="parked" if how == "parked" else "replay")
    async with server.running():
        return text(await Client(server, answers).call_tool("tool"))


async def _play_task(handler: Handler, answers: Any) -> str:
    server = serve(handler, store=MemoryStore(), task="required")
    async with server.running(), asyncio.timeout(PATIENCE):
        client = TaskClient(server)
        task_id = await client.start()
        while (task := await client.get(task_id))["status"] in ("working", "input_required"):
            if task["status"] == "input_required":
                responses = {key: accept(answers(key, r)) for key, r in task["inputRequests"].items()}
                await client.update(task_id, responses)
            await asyncio.sleep(0.005)
        assert task["status"] == "completed", task
        return text({"resultType": "complete", **task["result"]})


async def play_pushed(handler: Handler, **fields: Any) -> str:
    """Play a handler for a client who is asked while it waits; what it came to."""
    async with served(serve(handler), quiet=False) as base, old_client.old_client(base) as client:

        def answer(asked: Mapping[str, Any]) -> Any:
            return old_client.accepted(asked["id"], **fields)

        reply = await soon(client.answered(old_client.call("tool"), answer))
        return said({"resultType": "complete", **reply["result"]})


async def first_then(
    old: Handler, new: Handler, *, store: Any = None, responses: Any = None, **options: Any
) -> str:
    """The first round with one version of the server, the second with another: what that came to."""
    before, after = (Client(serve(handler, store=store, **options)) for handler in (old, new))
    first = await before.ask("tool")
    answers = responses or {key: accept(True) for key in first.requests}
    return await after.reply(first, answers)


class Faulty:
    """A store whose methods fail, lie or dawdle when they are told to."""

    def __init__(self, store: Any = None) -> None:
        self._store = store or MemoryStore()
        self.failures: dict[str, int] = {}
        """How many more calls of a method fail."""
        self.cancels: dict[str, int] = {}
        """How many more calls of a method it cancels by itself, as a pool that is closed does."""
        self.away = False
        """Whether nothing works at all."""
        self.delays: dict[str, float] = {}
        """Seconds that a method takes."""
        self.results: dict[str, Any] = {}
        """What a method gives instead of doing anything."""
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        kept = getattr(self._store, name)
        if name in ("peek", "tasks") or not asyncio.iscoroutinefunction(kept):
            return kept

        async def call(*arguments: Any, **keywords: Any) -> Any:
            from ekiden import StoreUnavailable

            self.calls.append(name)
            await asyncio.sleep(self.delays.get(name, 0))
            if self.away or self.failures.get(name, 0) > 0:
                self.failures[name] = self.failures.get(name, 0) - 1
                raise StoreUnavailable(f"{name}: the store is away")
            if self.cancels.get(name, 0) > 0:
                self.cancels[name] -= 1
                raise asyncio.CancelledError
            if name in self.results:
                return self.results[name]
            return await kept(*arguments, **keywords)

        return call


async def settled(most: int, seconds: float = 1.0) -> list[asyncio.Task[Any]]:
    """The tasks that are left over when those that end by themselves have had the time to."""
    for _ in range(int(seconds * 100)):
        if len(asyncio.all_tasks()) <= most:
            return []
        await asyncio.sleep(0.01)
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


UNABLE = {"elicitation": EVERYTHING["elicitation"]}
"""A client that can be asked by forms only."""
