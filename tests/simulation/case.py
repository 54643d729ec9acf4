"""One case: a program in a world, run to its end; what happened, for the oracle to judge."""

import asyncio
import inspect
import logging
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ekiden.server import storage
from ekiden.tasks.store import ABANDONED_SECONDS
from tests.simulation import databases
from tests.simulation.acts import RUNS
from tests.simulation.answers import answer_to
from tests.simulation.clients import ModernClient, PushedClient, Stuck
from tests.simulation.faults import LEASE, Setting
from tests.simulation.loop import Deadlock, TooLong, VirtualLoop
from tests.simulation.programs import Program
from tests.simulation.sockets import SocketLoop, connecting
from tests.simulation.standing_by import SimulatedStandby
from tests.simulation.stores import leftovers
from tests.simulation.world import WORKER, Attempt, World, seeded_uuids

__all__ = ["Happened", "happen"]

_FOREVER = 200_000.0
"""Seconds after which every token, lease, round and task has expired."""


@dataclass
class Happened:
    """All that the oracle wants to know of one case."""

    world: World
    client: ModernClient | PushedClient | None = None
    reply: dict[str, Any] = field(default_factory=dict)
    endless: str = ""
    """Why the call did not end."""
    left: list[str] = field(default_factory=list)
    """What was left behind."""
    logged: list[str] = field(default_factory=list)
    forks: list["Fork"] = field(default_factory=list)
    program: Program | None = None
    """The version of the program that gave the last reply."""


@dataclass
class Fork:
    """A round that was repeated when all was over."""

    attempt: Attempt
    kind: str
    flips: frozenset[str]
    before: dict[str, Any]
    """What was replied to it at first."""
    began: list[str]
    """The effects that began in it at first."""
    all_flips: frozenset[str] = frozenset()
    """With those of the forks before it."""
    reply: dict[str, Any] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    """The effects that began in the repeat."""


def happen(seed: int, program: Program, setting: Setting, flips: frozenset[str] = frozenset()) -> Happened:
    """Run a case."""
    loop = SocketLoop(WORKER) if setting.store == "postgres" else VirtualLoop(WORKER)
    world = World(seed, program, setting, loop, flips)
    happened = Happened(world)
    with _patched(seed, happened.logged), ExitStack() as stack:
        if isinstance(loop, SocketLoop):
            databases.current().empty()
            stack.enter_context(connecting(loop))
        try:
            loop.run_until_complete(_whole(happened))
        except (Deadlock, TooLong, Stuck, TimeoutError) as problem:
            happened.endless = f"{type(problem).__name__}: {problem}"
        finally:
            _sweep_up(loop)
            for run in world.runs:
                RUNS.pop(id(run.ctx), None)
            world.clean()
    return happened


async def _whole(happened: Happened) -> None:
    world = happened.world
    await world.open()
    client = PushedClient(world) if world.setting.mode == "push" else ModernClient(world)
    happened.client = client
    happened.reply = await client.call()
    happened.program = world.runs[-1].program if world.runs else None
    if isinstance(client, ModernClient):
        for fault in world.setting.faults:
            if fault.kind in ("again", "fork"):
                await _repeat(happened, client, fault.kind, fault.at)
    await asyncio.sleep(3 * LEASE)
    await _look_for_leftovers(happened)


# Rounds that are repeated when all is over


async def _repeat(happened: Happened, client: ModernClient, kind: str, at: int) -> None:
    world = happened.world
    rounds = [
        (a, r) for a, r in client.history if "requestState" in a.params and a.params.get("inputResponses")
    ]
    if not rounds:
        return
    attempt, before = rounds[at % len(rounds)]
    fork = Fork(attempt, kind, frozenset(), before, [label for run in attempt.runs for label in run.began])
    params = attempt.params
    if kind == "fork":
        asked = next((r for a, r in client.history if r.get("requestState") == params["requestState"]), {})
        fork.flips = frozenset(_label(request) for request in asked.get("inputRequests", {}).values()) - {""}
        world.flips |= fork.flips
        fork.all_flips = world.flips
        responses = {
            key: answer_to(world.seed, asked["inputRequests"][key], world.flips)
            for key in params["inputResponses"]
            if key in asked.get("inputRequests", {})
        }
        if responses == params["inputResponses"]:
            return
        params = {**params, "inputResponses": responses}
    happened.forks.append(fork)
    count, number = len(world.effects), len(world.attempts)
    fork.reply = await client.call(params)
    fork.fresh = [effect.label for effect in world.effects[count:]]
    repeated = [run for each in world.attempts[number : number + 1] for run in each.runs]
    for effect in world.effects[count:]:
        # Where the repeat was let in rightly, which the oracle asks elsewhere, it is a history of its own.
        # So is what comes behind it: the client has gone back.
        if not fork.began or effect.run not in repeated:
            effect.flow += "'"


def _label(request: dict[str, Any]) -> str:
    params = request.get("params") or {}
    if request["method"] == "elicitation/create":
        return str(params["message"]).split()[0]
    if request["method"] == "sampling/createMessage":
        return str(params["messages"][0]["content"]["text"]).split()[0]
    return ""


# What is left


async def _look_for_leftovers(happened: Happened) -> None:
    world, left = happened.world, happened.left
    if world.store is not None:
        left += [
            what
            for what in leftovers(world.store, world.epoch + world.loop.time() + 1)
            if what.startswith("claim")
        ]
    for worker in world.alive:
        rounds: Any = worker.server._rounds
        if rounds.once.contenders:
            left.append("somebody who wants a round")
        left += [f"parked handler {key}" for key in rounds.parking._legs]
    await world.close()
    left += world.late
    await asyncio.sleep(1)
    here, gone = asyncio.current_task(), {effect.worker for effect in world.effects if world.overrun(effect)}
    for task in asyncio.all_tasks():
        owner = world.loop.owner(task)
        name = str(getattr(task.get_coro(), "__qualname__", task))
        # A branch that its own program left waiting for another one is the author's.
        is_orphan = world.program.loud and name.startswith("Run.")
        is_gone = world.crashes and _never_began(task) if owner is None else owner.dead or owner in gone
        if task is not here and not is_gone and not is_orphan:
            left.append(f"task {name}")
    if not world.crashes and not gone:
        if world.loop.threads:
            left.append("a thread")
        if world.loop.timers():
            left += [f"timer {h._callback!r:.80}" for h in world.loop._scheduled if not h.cancelled()]  # type: ignore[attr-defined]
    if world.store is not None:
        await asyncio.sleep(_FOREVER)
        now = world.epoch + world.loop.time()
        await world.store.purge(now=now)
        # Doubles of calls, too, with which nobody goes on.
        await world.store.tasks.forget(before=now + ABANDONED_SECONDS)
        left += leftovers(world.store, now)
        await world.store.close()


def _never_began(task: asyncio.Task[Any]) -> bool:
    """Before Python 3.12 nobody knows whose such a task is; but the living begin theirs."""
    coro = task.get_coro()
    return inspect.iscoroutine(coro) and inspect.getcoroutinestate(coro) == inspect.CORO_CREATED


# Around it


_NESTED = 100
"""`finally` blocks around one another that wait for something, at most."""


class _Notes(logging.Handler):
    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        told = [type(argument).__name__ for argument in record.args or () if isinstance(argument, Exception)]
        self._notes.append(f"{record.levelname} {' '.join(told)} {record.getMessage()} {error!r}")


@contextmanager
def _patched(seed: int, notes: list[str]) -> Iterator[None]:
    """Draws come from the seed, and logs are kept."""
    usual, uuid.uuid4 = uuid.uuid4, seeded_uuids(seed)
    standby, storage.Standby = storage.Standby, SimulatedStandby  # type: ignore[misc,assignment]
    logger, handler = logging.getLogger("ekiden"), _Notes(notes)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        uuid.uuid4 = usual
        storage.Standby = standby  # type: ignore[misc]
        logger.removeHandler(handler)
        logger.propagate = propagates


def _sweep_up(loop: VirtualLoop) -> None:
    """End what dead workers and endless calls have left, so that the next case begins in a clean process."""
    loop.most_passes = loop.passes + 5000
    loop.is_dead = None

    async def cancel_all() -> None:
        for _ in range(4):
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=1)

    with suppress(Deadlock, TooLong):
        loop.run_until_complete(cancel_all())
    with warnings.catch_warnings():
        # What a `finally` block would await now finds no loop.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close(task.get_coro())
    loop.close()


def _close(coro: Any) -> None:
    """Close a coroutine for good: each `finally` block in it that awaits something takes another try."""
    for _ in range(_NESTED):
        with suppress(BaseException):
            coro.close()
            break
