"""Programs: handlers as data. A tree of nodes out of a small grammar, drawn from a seed.

A program is a value: it can be printed as Python (`printing`), interpreted (`running`), cut smaller
(`shrink`), and changed as a new version of the server would change it (`deploys`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

__all__ = ["Node", "Program", "generate", "n", "nodes", "with_parts"]


@dataclass(frozen=True)
class Node:
    """One statement. `number` names it: in traces, questions, arguments and results."""

    kind: str
    number: int
    parts: tuple["Node", ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.more.get(name)


@dataclass(frozen=True)
class Program:
    """A handler. What it is decides which laws it is held to."""

    body: Node

    @property
    def loose(self) -> bool:
        """It waits outside of effects, so a replay may see another order: once and endings still hold."""
        return any(node.kind in LOOSE for node in nodes(self.body))

    @property
    def racy(self) -> bool:
        """What it does depends on what comes first: the push interpreter may rightly do something else."""
        every = list(nodes(self.body))
        return self.loose or self.loud or any(_is_racy(node) for node in every)

    @property
    def loud(self) -> bool:
        """A branch may raise while others go on; `gather` leaves them behind, and nobody waits for them."""
        every = list(nodes(self.body))
        return not self.straight and any(node["uncaught"] or node["loud"] for node in every)

    @property
    def straight(self) -> bool:
        """It has one branch only."""
        return not any(node.kind in PARALLEL for node in nodes(self.body))


LOOSE = ("nap",)
PARALLEL = ("gather", "group", "failing", "first", "each", "queue", "lock")
_RACY = ("first", "each", "queue", "lock", "failing")

ASKS = ("bool", "str", "int", "url", "sample", "roots")
STEP_SECONDS = (0.0, 0.31, 1.07, 2.53)
SCOPE_SECONDS = (0.5, 1.7, 4.2)
"""No sum of the former is one of the latter: who comes first is never a tie."""
SCOPES = ("timeout", "nested", "move_on", "fail_after")
_WITH_DEADLINES = 0.15
VALUES = {
    "text": 8,
    "dict": 5,
    "model": 3,
    "fails": 4,
    "raises": 2,
    "retried": 2,
    "unkept": 1,
    "big": 1,
    "wrong": 1,
}


def nodes(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for part in node.parts:
        yield from nodes(part)


def _is_racy(node: Node) -> bool:
    if node.kind in _RACY:
        return True
    if node.kind != "scope":
        return False
    (part,) = node.parts
    # A step that takes much longer than its scope, or much less, ends the same way in every world.
    return part.kind != "step" or part["value"] == "retried" or 0.1 < part["seconds"] / node["seconds"] < 2


class _Generator:
    def __init__(self, rng: Random, background: bool) -> None:
        self._rng = rng
        self._number = 0
        self._background = background
        self._most = rng.choice((4, 7, 7, 10, 14))
        self._loose = rng.random() < 0.06
        self._straight = rng.random() < 0.35

    def node(self, kind: str, *parts: Node, **more: Any) -> Node:
        self._number += 1
        return Node(kind, self._number, parts, more)

    def program(self) -> Program:
        parts = [self.any(0)]
        while self._number < self._most:
            parts.append(self.any(0))
        if self._background:
            parts.insert(self._rng.randrange(len(parts) + 1), self.node("background"))
        return Program(self.node("seq", *parts))

    def any(self, depth: int) -> Node:
        if depth >= 3 or self._number >= self._most or self._rng.random() < 0.5:
            return self.leaf()
        return self.inner(depth)

    def several(self, depth: int, least: int = 2) -> list[Node]:
        return [self.branch(depth + 1) for _ in range(self._rng.randint(least, 3))]

    def branch(self, depth: int) -> Node:
        """What one branch does: a few things, one after the other; now and then it raises at the end."""
        parts = [self.any(depth) for _ in range(self._rng.choice((1, 1, 2, 3)))]
        if not self._straight and self._rng.random() < 0.07:
            parts.append(self.node("raise", loud=True))
        return parts[0] if len(parts) == 1 else self.node("seq", *parts)

    def leaf(self) -> Node:
        kinds = [
            "ask",
            "step",
            "draw",
            "sleep",
            "checkpoint",
            "afterwards",
            "progress",
            "mutate",
            "consume",
            "pass",
        ]
        kind = self._rng.choices(kinds, (30, 34, 9, 4, 4, 3, 6, 6, 4, 2))[0]
        if self._loose and self._rng.random() < 0.2:
            return self.node("nap", seconds=self._rng.choice((0.13, 0.6)))
        match kind:
            case "ask":
                return self.ask()
            case "step":
                return self.step()
            case "draw":
                return self.node("draw", what=self._rng.choice(("uuid", "uuid", "random", "now")))
            case "sleep":
                return self.node("sleep", seconds=self._rng.choice((0.23, 0.71)))
            case "afterwards":
                return self.node("afterwards", fails=self._rng.random() < 0.3)
            case _:
                return self.node(kind)

    def ask(self) -> Node:
        form = self._rng.choices(ASKS, (5, 5, 3, 1, 3, 2))[0]
        return self.node("ask", form=form, keyed=form == "roots" or self._rng.random() < 0.2)

    def step(self, **more: Any) -> Node:
        rng = self._rng
        chosen = {
            "value": rng.choices(tuple(VALUES), tuple(VALUES.values()))[0],
            "thread": rng.random() < 0.3,
            "seconds": rng.choice(STEP_SECONDS) if rng.random() < 0.9 else 7.3,
            "keyed": rng.random() < 0.1,
            "uncaught": rng.random() < 0.12,
            "on_cut": rng.choice(("", "", "slow", "swallow")),
        }
        return self.node("step", **{**chosen, **more})

    def inner(self, depth: int) -> Node:
        kinds = {"scope": 14, "attempt": 8, "finally": 6, "loop": 4, "helper": 3, "choice": 5}
        if not self._straight:
            kinds |= {"gather": 12, "group": 8, "failing": 7, "first": 6, "each": 6, "queue": 5, "lock": 3}
        kind = self._rng.choices(tuple(kinds), tuple(kinds.values()))[0]
        match kind:
            case "scope":
                return self.scope(depth)
            case "attempt":
                return self.node("attempt", self.node("seq", self.any(depth + 1), self.perhaps_raise()))
            case "finally":
                body = self.node("seq", self.any(depth + 1), self.perhaps_raise())
                return self.node("attempt", self.node("finally", body, self.step(value="text")))
            case "loop":
                return self.node("loop", self.any(depth + 1), times=self._rng.randint(2, 3))
            case "helper":
                return self.node("helper", *self.several(depth, 1))
            case "choice":
                return self.node("choice", self.any(depth + 1), self.any(depth + 1))
            case "failing":
                failing = self.node("seq", self.any(depth + 1), self.node("raise"))
                return self.node("failing", failing, *self.several(depth, 1))
            case _:
                return self.node(kind, *self.several(depth))

    def perhaps_raise(self) -> Node:
        return self.node("raise" if self._rng.random() < 0.5 else "pass")

    def scope(self, depth: int) -> Node:
        style = self._rng.choice(SCOPES)
        seconds = self._rng.choice(SCOPE_SECONDS)
        part = (
            self.step(seconds=self._rng.choice((2.53, 9.7)))
            if self._rng.random() < 0.5
            else self.any(depth + 1)
        )
        return self.node("scope", part, style=style, seconds=seconds)

    def deadlines(self, rng: Random) -> Node:
        """A branch whose scope begins in the time of another's that fires, and that ends after it.

        A replay tells of the first step at once: the scope after it must not fire sooner for that.
        """
        self._rng = rng
        fires = self.scope_around(self.step(value="text", seconds=9.7), 1.7)
        in_time = [self.step(value="text", seconds=0.41) for _ in range(2)]
        match rng.choice(("one", "gather", "group", "then cut", "clean up")):
            case "one":
                part = in_time[0]
            case "then cut":
                part = self.node("seq", in_time[0], self.step(value="text", seconds=9.7))
            case "clean up":
                part = self.node("attempt", self.node("finally", *in_time))
            case kind:
                part = self.node(kind, *in_time)
        before = self.step(value="text", seconds=1.43)
        return self.node("gather", fires, self.node("seq", before, self.scope_around(part, 0.7)))

    def scope_around(self, part: Node, seconds: float) -> Node:
        return self.node("scope", part, style=self._rng.choice(SCOPES), seconds=seconds)


def generate(seed: int, *, background: bool = False) -> Program:
    """The program of a seed."""
    generator = _Generator(Random(f"program {seed}"), background)
    program = generator.program()
    rng = Random(f"deadlines {seed}")
    if rng.random() < _WITH_DEADLINES and not program.straight:
        parts = list(program.body.parts)
        parts.insert(rng.randrange(len(parts) + 1), generator.deadlines(rng))
        program = Program(with_parts(program.body, tuple(parts)))
    return program


def n(kind: str, number: int, *parts: Node, **more: Any) -> Node:
    """A node, written short: for cases that are kept as tests."""
    return Node(kind, number, parts, more)


def with_parts(node: Node, parts: tuple[Node, ...]) -> Node:
    """The same statement around other ones."""
    return replace(node, parts=parts)
