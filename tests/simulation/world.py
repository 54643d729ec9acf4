"""The world: workers that die, a store that fails, a clock that jumps, and the book of all effects."""

import asyncio
import contextvars
import random
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from ekiden import Context, RoundLimits, Server, TaskLimits
from tests.simulation.deploys import deployed
from tests.simulation.faults import DEPLOYS, LEASE, Fault, Setting
from tests.simulation.loop import VirtualLoop
from tests.simulation.programs import Node, Program
from tests.simulation.running import Run
from tests.simulation.standing_by import IN_THREAD
from tests.simulation.stores import FaultyStore, new_store

__all__ = ["ATTEMPT", "EPOCH", "GRACE", "WORKER", "Attempt", "Effect", "Worker", "World"]

KEY = b"a key of the simulated workers!!"
EPOCH = 1_800_000_000.0
POSTGRES_EPOCHS = (1_000_000_000.0, 4_000_000_000.0)
"""The store is told the time by its callers. Only the jobs that wake workers, which are hints, go by the
clock of the database: to it, simulated time is long past, and all jobs come at once, or far ahead, and none
does."""
WORKER: contextvars.ContextVar["Worker | None"] = contextvars.ContextVar("worker", default=None)
ATTEMPT: contextvars.ContextVar["Attempt | None"] = contextvars.ContextVar("attempt", default=None)

GRACE = 10.0
"""Seconds that a worker which is told to stop has for the steps that run."""
_ROUNDS = RoundLimits(lease_seconds=LEASE)
_TASKS = TaskLimits(
    lease_seconds=LEASE,
    sweep_seconds=1.0,
    message_seconds=0.3,
    ttl_seconds=3000.0,
    keep_seconds=10.0,
    attempts=50,
)


@dataclass
class Effect:
    """A step's function that began."""

    flow: str
    label: str
    step: str
    worker: "Worker"
    began: float
    attempt: int
    """How often it had begun before, in this flow."""
    run: Run
    ended: float | None = None


@dataclass
class Attempt:
    """One request that a client sent, and what became of it."""

    number: int
    worker: "Worker"
    params: dict[str, Any]
    parent: Run | None
    """The run that gave the token that it brings."""
    runs: list[Run] = field(default_factory=list)
    reply: dict[str, Any] | None = None
    told: list[str] = field(default_factory=list)
    """Progress that came with the reply."""


class Worker:
    """One process: a server object with a memory of its own, which dies with it."""

    def __init__(self, world: "World", number: int, program: Program) -> None:
        self.world = world
        self.number = number
        self.dead = False
        self.died = float("inf")
        self.gone = world.loop.create_future()
        self.told_to_stop = float("inf")
        self.asking = 0
        """Calls to its store that have not ended."""
        self._stack = AsyncExitStack()
        self._ending: asyncio.Task[None] | None = None
        skew = world.setting.skews[number % 3]
        self._store = world.store_for_worker()
        store = None if self._store is None else FaultyStore(self._store, self)
        self.server = Server(
            "simulated",
            keys=[KEY],
            store=store,  # type: ignore[arg-type]  # passes on whatever a store has
            clock=lambda: world.epoch + world.loop.time() + skew,
            rounds=_ROUNDS,
            tasks=_TASKS,
        )

        async def tool(ctx: Context) -> str:
            return await world.new_run(program, ctx, self).whole()

        self.server.add_tool(tool, **dict(world.setting.options))

    def context(self, attempt: Attempt | None = None) -> contextvars.Context:
        """The context of what this worker does."""
        context = contextvars.Context()
        context.run(WORKER.set, self)
        context.run(ATTEMPT.set, attempt)
        return context

    async def start(self) -> None:
        await self._stack.enter_async_context(self.server.running())

    def end(self) -> asyncio.Task[None]:
        """Be told to stop, as a process is."""
        if self._ending is None:
            self.told_to_stop = self.world.loop.time()
            self._ending = self.world.loop.create_task(self._end(), context=self.context())
        return self._ending

    async def _end(self) -> None:
        await self._stack.aclose()
        if self.asking and not any(map(self.world.overrun, self.world.effects)):
            self.world.late.append(f"worker {self.number}, which has stopped and still asks its store")
        if self._store is not self.world.store:
            await self._store.close()

    async def stop(self) -> None:
        if not self.dead:
            ending = self.end()
            await asyncio.wait({ending, self.gone}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                ending.result()

    async def hang_if_dead(self) -> None:
        if self.dead:
            await self.world.loop.create_future()


class World:
    """One call of one program, from its first request to the time when nothing of it may be left."""

    def __init__(
        self,
        seed: int,
        program: Program,
        setting: Setting,
        loop: VirtualLoop,
        flips: frozenset[str] = frozenset(),
    ) -> None:
        self.seed = seed
        self.program = program
        self.setting = setting
        self.loop = loop
        self.flips = flips
        """Questions that are answered otherwise than usual."""
        self.rng = Random(f"chances {seed}")
        self.effects: list[Effect] = []
        self.runs: list[Run] = []
        self.attempts: list[Attempt] = []
        self.producers: dict[str, Run | None] = {}
        """The run that gave a token."""
        self.crashes = 0
        self.records: dict[tuple[str, str, Worker], list[float]] = {}
        """When a step was recorded, by its task if it has one, its name, and who recorded it."""
        self.store_away_until = -1.0
        self.stalls: list[tuple[Worker, str, float, float]] = []
        """Who stood still, how, from when and until when."""
        self.struggled: list[tuple[float, Worker]] = []
        self.fired: list[str] = []
        self.late: list[str] = []
        """What workers left behind when they were told to stop."""
        self.version = program
        self._store_calls = 0
        self._renewals = 0
        self._claims = 0
        self._begun = 0
        self.store: Any = None
        self.epoch = EPOCH
        self.workers: list[Worker] = []
        self._retired: list[Worker] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    # Coming and going

    async def open(self) -> None:
        random.seed(self.seed)
        kind = self.setting.store
        if kind == "postgres":
            self.epoch = POSTGRES_EPOCHS[self.seed % len(POSTGRES_EPOCHS)]
        if kind == "sqlite":
            self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        if kind != "none":
            self.store = new_store(kind, Path(self._folder.name) if self._folder else None)
        for number in range(self.setting.workers):
            self.workers.append(await self.new_worker(number))

    def store_for_worker(self) -> Any:
        """The store that all share; on Postgres they share the database, and each connects for itself."""
        return new_store("postgres") if self.setting.store == "postgres" else self.store

    async def new_worker(self, number: int) -> Worker:
        """A worker that has started. One that dies meanwhile is replaced, as whatever runs processes does."""
        while True:
            worker = Worker(self, number, self.version)
            starting = self.loop.create_task(worker.start(), context=worker.context())
            await asyncio.wait({starting, worker.gone}, return_when=asyncio.FIRST_COMPLETED)
            if not worker.dead:
                await starting
                return worker

    async def close(self) -> None:
        for worker in (*self.workers, *self._retired):
            await worker.stop()

    def clean(self) -> None:
        """After the loop has ended."""
        if self.store is not None and hasattr(self.store, "_file"):
            self.store._file._open.close()
        if self._folder is not None:
            self._folder.cleanup()

    # Faults

    def fault(self, kind: str, number: int) -> Fault | None:
        """The fault of this kind that is due now, if any."""
        for fault in self.setting.faults:
            if fault.kind == kind and fault.at == number:
                self.fired.append(kind)
                return fault
        return None

    def next_store_call(self) -> int:
        self._store_calls += 1
        return self._store_calls

    def next_renewal(self) -> int:
        self._renewals += 1
        return self._renewals

    def next_claim(self) -> int:
        self._claims += 1
        return self._claims

    def crash(self, worker: Worker) -> None:
        """Kill a process: from now on nothing that it does counts."""
        if worker.dead:
            return
        worker.dead, worker.died = True, self.loop.time()
        self.crashes += 1
        self.loop.is_dead = lambda owner: owner.dead
        if not worker.gone.done():
            worker.gone.set_result(None)

    def stall(self, worker: Worker, kind: str, seconds: float) -> None:
        """Have a worker stand still: all of it, or `blocked`: all but its threads."""
        now = self.loop.time()
        self.stalls.append((worker, kind, now, now + seconds))

        def concerns(context: contextvars.Context) -> bool:
            return context.get(WORKER) is worker and (kind == "frozen" or not context.get(IN_THREAD))

        self.loop.stall(seconds, concerns)

    async def living(self) -> Worker:
        """A worker that can be reached; dead ones have been started anew by now."""
        for number, worker in enumerate(self.workers):
            if worker.dead:
                self.workers[number] = await self.new_worker(number)
        return self.rng.choice(self.workers)

    def _retire(self, workers: list[Worker]) -> None:
        """A new version takes their place. Those who look for tasks are told to stop, and hand over."""
        self._retired += workers
        for worker in workers:
            if self.setting.mode == "tasks" and not worker.dead:
                worker.end()

    async def deploy(self, number: int) -> None:
        """If a new version is due now, all workers are replaced; the old ones end what they do."""
        for kind in DEPLOYS:
            if self.fault(kind, number) is not None:
                self.version = deployed(self.version, kind, self.rng)
                self._retire(self.workers)
                self.workers = [await self.new_worker(n) for n in range(len(self.workers))]

    # The book

    def new_run(self, program: Program, ctx: Context, worker: Worker) -> Run:
        run = Run(self, program, ctx, worker, attempt := ATTEMPT.get())
        if not worker.dead:
            self.runs.append(run)
            if attempt is not None:
                attempt.runs.append(run)
        return run

    def begins(self, run: Run, label: str) -> Effect:
        """A step's function begins."""
        flow, _, step = run.ctx.step_key.partition(":")
        before = sum(effect.label == label and effect.flow == flow for effect in self.effects)
        effect = Effect(flow, label, step, run.worker, self.loop.time(), before, run)
        if run.worker.dead:
            return effect
        self.effects.append(effect)
        run.began.append(label)
        self._begun += 1
        if fault := self.fault("blocked_step", self._begun):
            self.stall(run.worker, "blocked", fault.seconds)
        if fault := self.fault("crash_begin", self._begun):
            self.loop.call_later(fault.seconds, self.crash, run.worker)
        return effect

    def ends(self, effect: Effect, after: float = 0.0) -> None:
        """A step's function ends; one in a thread is called at once, and ends later."""
        if not effect.worker.dead:
            effect.ended = self.loop.time() + after
            if self.fault("crash_end", self._begun):
                self.crash(effect.worker)

    def seconds(self, node: Node) -> float:
        """How long a step takes here."""
        return float(node["seconds"] or 0.0) * self.setting.pace

    def overrun(self, effect: Effect) -> bool:
        """Whether it went on for longer than its worker, told to stop, had time: that process is gone."""
        deadline = effect.worker.told_to_stop + GRACE
        return effect.began < deadline and (effect.ended is None or effect.ended > deadline)

    def struggles(self, worker: Worker) -> None:
        """The store fails a worker that holds on to a claim."""
        self.struggled.append((self.loop.time(), worker))

    def recorded(self, task: str, step: str, worker: Worker) -> None:
        self.records.setdefault((task, step, worker), []).append(self.loop.time())

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in (*self.workers, *self._retired) if not worker.dead]


def seeded_uuids(seed: int) -> Callable[[], uuid.UUID]:
    """In place of `uuid.uuid4`: the same ids for the same seed."""
    rng = Random(f"uuids {seed}")
    return lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
