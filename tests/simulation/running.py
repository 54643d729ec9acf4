"""The interpreter: one run of a program as a handler, with a trace of all that it saw.

Whatever a branch sees goes into the arguments of its later steps, into its later questions and into the
result: a wrong value shows. What was drawn (`ctx.uuid()` and its like) goes into arguments and questions as
it is, and into results by name, so that results of two runs can be compared.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import anyio

from ekiden import Context, Retry, StepFailed
from tests.simulation import twins
from tests.simulation.acts import ACTS, RUNS, Basket, Declined, audit, consume, plain, plain_in_thread
from tests.simulation.programs import Node, Program, nodes

if TYPE_CHECKING:
    from tests.simulation.world import Attempt, Worker, World

__all__ = ["Event", "Frame", "ProgramError", "Run"]

Event = tuple[str, str, str, str]
"""Branch, label, what happened, value."""

_FORMS: dict[str, type] = {"bool": bool, "str": str, "int": int}
_UNKEEPABLE = ("unkept", "big", "wrong")


class ProgramError(Exception):
    """What a program raises by itself."""


@dataclass
class Frame:
    """What one branch has seen."""

    branch: str
    seen: list[Any] = field(default_factory=list)
    objects: list[dict[str, Any]] = field(default_factory=list)
    drawn: str = ""

    def child(self, number: int) -> "Frame":
        return Frame(f"{self.branch}.{number}", [self.mix()], [], self.drawn)

    def mix(self) -> str:
        return f"{crc32(json.dumps(self.seen).encode()):x}"


class Run:
    """One run of a handler: in one round, or in one leg of a task."""

    def __init__(
        self, world: "World", program: Program, ctx: Context, worker: "Worker", attempt: "Attempt | None"
    ) -> None:
        self.world = world
        self.ctx = ctx
        RUNS[id(ctx)] = self
        self.worker = worker
        self.attempt = attempt
        self.program = program
        self.trace: list[Event] = []
        self.unwound: list[Event] = []
        """What it saw when its leg was over: nothing of that counts."""
        self.began: list[str] = []
        """Labels of the effects that began in this run."""
        self.closed = False
        self._nodes = {node.number: node for node in nodes(program.body)}
        self._progress = 0

    def node(self, label: str) -> Node:
        """The node of a label; those of the simulation's own steps are plain."""
        head = label.partition("~")[0]
        if head.isdigit():
            return self._nodes[int(head)]
        return Node("step", 0, (), {"value": "fails" if head.startswith("x") else "text"})

    async def whole(self) -> str:
        """The handler: its result is all that it saw."""
        frame = Frame("m")
        try:
            value = await self.run(self.program.body, frame, "")
        except Exception as error:
            value = self.spelled(error)
            self.note(frame, "end", "raised", value)
        finally:
            self.closed = True
        return json.dumps(value)

    def note(self, frame: Frame, label: str, event: str, value: Any) -> None:
        """Something was seen."""
        if not self.closed and not self.worker.dead:
            trace = self.unwound if getattr(self.ctx._leg, "replay", self.ctx._leg).is_over else self.trace
            trace.append((frame.branch, label, event, json.dumps(value)))

    def saw(self, frame: Frame, label: str, event: str, value: Any) -> Any:
        """Something was seen that later steps of the branch depend on."""
        self.note(frame, label, event, value)
        frame.seen.append(value)
        return value

    def spelled(self, error: BaseException) -> str:
        if isinstance(error, BaseExceptionGroup):
            return " & ".join(sorted(self.spelled(part) for part in error.exceptions))
        return f"!{type(error).__name__}: {error}"

    async def run(self, node: Node, frame: Frame, at: str) -> Any:
        asyncio.current_task().owner = self.worker  # type: ignore[union-attr]  # Who made it is not known of every task.
        if self.worker.dead:
            if isinstance(sys.exc_info()[1], GeneratorExit):
                raise GeneratorExit  # Its remains are thrown away, perhaps while another case runs.
            await asyncio.get_running_loop().create_future()  # A dead process does nothing more.
        does: Callable[..., Coroutine[Any, Any, Any]] = getattr(self, f"on_{node.kind}")
        return await does(node, frame, at)

    # Effects

    async def on_ask(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{node.number}{at}"
        message, key = f"{label} {frame.mix()} {frame.drawn}", f"k{label}" if node["keyed"] else None
        match node["form"]:
            case "sample":
                sampled: Any = await self.ctx.sample(message, max_tokens=9, key=key)
                value = sampled.content.text
            case "roots":
                value = [str(root.uri) for root in await self.ctx.list_roots(key=key)]
            case "url":
                value = (await self.ctx.elicit_url(message, "https://example.com/", key=key)).action
            case form:
                answer = await self.ctx.elicit(message, _FORMS[form], key=key)
                value = f"{answer.action} {getattr(answer, 'data', None)}"
        if node["quiet"]:  # A question of a new version, on which nothing else depends.
            return self.note(frame, label, "answer", value)
        return self.saw(frame, label, "answer", value)

    async def on_step(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{node.number}{at}"
        try:
            got = await self.step(node, frame, label)
        except (StepFailed, Declined) as error:
            value = self.saw(frame, label, "failure", self.spelled(error))
            if node["uncaught"]:
                raise ProgramError(label) from error
            return value
        except Exception as error:
            if node["value"] not in _UNKEEPABLE:
                raise
            return self.saw(frame, label, "failure", f"!unkept {type(error).__name__ == 'CancelledError'}")
        if isinstance(got, Basket):
            got = got.model_dump()
        if isinstance(got, dict):
            frame.objects.append(got)
        return self.saw(frame, label, "value", json.loads(json.dumps(got)))

    async def step(self, node: Node, frame: Frame, label: str) -> Any:
        act = ACTS.get(node["value"], (plain, plain_in_thread))[bool(node["thread"])]
        act = audit if node["renamed"] else act
        retry = Retry(attempts=3, seconds=0.2) if node["value"] == "retried" else None
        mix = frame.mix() + ("+" if node["changed"] else "")
        key = f"k{label}" if node["keyed"] else None
        return await self.ctx.step(
            act, label, mix, frame.drawn, self.ctx, key=key, raises=(Declined,), retry=retry
        )

    async def act(self, label: str, frame: Frame) -> Any:
        """A plain step of the simulation's own, which depends on all that was seen."""
        value = await self.ctx.step(plain, label, frame.mix(), frame.drawn, self.ctx)
        return self.saw(frame, label, "value", value)

    async def on_draw(self, node: Node, frame: Frame, at: str) -> Any:
        drawn = {"uuid": self.ctx.uuid, "random": self.ctx.random, "now": self.ctx.now}[node["what"]]()
        frame.drawn = str(drawn)
        self.note(frame, f"{node.number}{at}", "drawn", frame.drawn)
        frame.seen.append(f"<{node['what']} {node.number}{at}>")
        return frame.seen[-1]

    async def on_sleep(self, node: Node, frame: Frame, at: str) -> Any:
        await self.ctx.sleep(node["seconds"])
        return self.saw(frame, f"{node.number}{at}", "slept", "slept")

    async def on_checkpoint(self, node: Node, frame: Frame, at: str) -> Any:
        await self.ctx.checkpoint()
        return self.saw(frame, f"{node.number}{at}", "passed", "passed")

    async def on_background(self, node: Node, frame: Frame, at: str) -> Any:
        await self.ctx.background()
        return self.saw(frame, f"{node.number}{at}", "passed", "in background")

    async def on_afterwards(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{'x' if node['fails'] else 'c'}{node.number}{at}"
        self.ctx.on_complete(plain, label, frame.mix(), frame.drawn, self.ctx)

    async def on_progress(self, node: Node, frame: Frame, at: str) -> Any:
        self._progress += 1
        await self.ctx.progress(self._progress, message=f"{node.number}{at}")
        self.note(frame, f"{node.number}{at}", "told", self._progress)

    async def on_consume(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{node.number}{at}"
        held: dict[str, Any] = {"items": ["a", frame.mix()]}
        await self.ctx.step(consume, label, held, self.ctx)
        return self.saw(frame, label, "left", held)

    # Plain Python

    async def on_twin(self, node: Node, frame: Frame, at: str) -> Any:
        """A step of a new version: all but its module is as in the step that follows."""
        label = f"{node['of']}{at}"
        self.note(
            frame,
            f"t{label}",
            "value",
            await self.ctx.step(twins.plain, label, frame.mix(), frame.drawn, self.ctx),
        )

    async def on_mutate(self, node: Node, frame: Frame, at: str) -> Any:
        if not frame.objects:
            return None
        frame.objects[-1]["items"].append("more")
        return self.saw(frame, f"{node.number}{at}", "holds", json.loads(json.dumps(frame.objects[-1])))

    async def on_pass(self, node: Node, frame: Frame, at: str) -> Any:
        await asyncio.sleep(0)

    async def on_nap(self, node: Node, frame: Frame, at: str) -> Any:
        await asyncio.sleep(node["seconds"])

    async def on_raise(self, node: Node, frame: Frame, at: str) -> Any:
        raise ProgramError(f"{node.number}{at}")

    async def on_seq(self, node: Node, frame: Frame, at: str) -> Any:
        return [await self.run(part, frame, at) for part in node.parts]

    on_helper = on_seq

    async def on_loop(self, node: Node, frame: Frame, at: str) -> Any:
        return [await self.run(node.parts[0], frame, f"{at}~{turn}") for turn in range(node["times"])]

    async def on_choice(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{node.number}{at}"
        answer = await self.ctx.elicit(f"{label} {frame.mix()} {frame.drawn}", bool)
        yes = self.saw(frame, label, "chose", answer.action == "accept" and bool(answer.data))
        return await self.run(node.parts[0 if yes else 1], frame, at)

    async def on_attempt(self, node: Node, frame: Frame, at: str) -> Any:
        try:
            return await self.run(node.parts[0], frame, at)
        except Exception as error:
            return self.saw(frame, f"{node.number}{at}", "caught", self.spelled(error))

    async def on_finally(self, node: Node, frame: Frame, at: str) -> Any:
        try:
            return await self.run(node.parts[0], frame, at)
        finally:
            await self.run(node.parts[1], frame, at)

    # Branches

    def _branches(self, node: Node, frame: Frame, at: str) -> list[Coroutine[Any, Any, Any]]:
        return [self.run(part, frame.child(n), at) for n, part in enumerate(node.parts)]

    async def on_gather(self, node: Node, frame: Frame, at: str) -> Any:
        values = list(await asyncio.gather(*self._branches(node, frame, at)))
        frame.seen.append(values)
        return values

    async def on_group(self, node: Node, frame: Frame, at: str) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(branch) for branch in self._branches(node, frame, at)]
        except* Exception as error:
            self.saw(frame, f"{node.number}{at}", "caught", self.spelled(error))
        values = [task.result() if not task.cancelled() and not task.exception() else None for task in tasks]
        frame.seen.append(values)
        return values

    on_failing = on_group

    async def on_lock(self, node: Node, frame: Frame, at: str) -> Any:
        lock = asyncio.Lock()

        async def locked(number: int) -> Any:
            async with lock:
                return await self.run(node.parts[number], frame.child(number), at)

        values = list(await asyncio.gather(*map(locked, range(len(node.parts)))))
        frame.seen.append(values)
        return values

    async def on_first(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{node.number}{at}"
        tasks = [asyncio.create_task(branch) for branch in self._branches(node, frame, at)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.saw(frame, label, "first", [number for number, task in enumerate(tasks) if task in done])
        finally:
            await _left(tasks)
        return await self.act(f"f{label}", frame)

    async def on_each(self, node: Node, frame: Frame, at: str) -> Any:
        label = f"{node.number}{at}"
        tasks = [asyncio.create_task(branch) for branch in self._branches(node, frame, at)]
        try:
            for number, future in enumerate(asyncio.as_completed(tasks)):
                try:
                    self.saw(frame, label, "next", await future)
                except ProgramError as error:
                    self.saw(frame, label, "next", self.spelled(error))
                await self.act(f"e{label}~{number}", frame)
        finally:
            await _left(tasks)
        return frame.seen[-1]

    async def on_queue(self, node: Node, frame: Frame, at: str) -> Any:
        label, queue = f"{node.number}{at}", asyncio.Queue[Any]()

        async def produce(number: int) -> None:
            try:
                queue.put_nowait(await self.run(node.parts[number], frame.child(number), at))
            except Exception as error:
                queue.put_nowait(self.spelled(error))

        tasks = [asyncio.create_task(produce(number)) for number in range(len(node.parts))]
        try:
            for number in range(len(tasks)):
                self.saw(frame, label, "got", await queue.get())
                await self.act(f"q{label}~{number}", frame)
        finally:
            await _left(tasks)
        return frame.seen[-1]

    # Scopes

    async def on_scope(self, node: Node, frame: Frame, at: str) -> Any:
        style, seconds, (part,) = node["style"], node["seconds"], node.parts
        ended: Any = "moved on"
        try:
            if style == "timeout":
                async with asyncio.timeout(seconds):
                    ended = await self.run(part, frame, at)
            elif style == "nested":
                async with asyncio.timeout(seconds + 0.2), asyncio.timeout(seconds):
                    ended = await self.run(part, frame, at)
            elif style == "move_on":
                with anyio.move_on_after(seconds):
                    ended = await self.run(part, frame, at)
            else:
                with anyio.fail_after(seconds):
                    ended = await self.run(part, frame, at)
        except TimeoutError:
            ended = "timed out"
        if ended in ("moved on", "timed out"):
            self.saw(frame, f"{node.number}{at}", "scope", ended)
        return ended


async def _left(tasks: list[asyncio.Task[Any]]) -> None:
    """Leave no branch behind."""
    for task in tasks:
        task.cancel()
        task.add_done_callback(_forget_error)
    # Not `gather`: cancelled itself, it raises what cancelled a branch, which is of no scope of anyio.
    await asyncio.wait(tasks)


def _forget_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # Marks it as seen.
