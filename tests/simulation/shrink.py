"""A failing case made small: what it still fails without is left out, of its program and of its world."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tests.simulation.case import Happened, happen
from tests.simulation.faults import Setting
from tests.simulation.oracle import Violation, judge
from tests.simulation.printing import expression_of, python_of
from tests.simulation.programs import Node, Program, nodes, with_parts

__all__ = ["explain", "shrunk"]

_MOST_TRIES = 600
_MOST_REAL_TRIES = 60
"""On a database a try takes half a second."""
_MOST_RUNS = 8


def shrunk(seed: int, program: Program, setting: Setting, law: str) -> tuple[Program, Setting]:
    """The smallest case found that breaks the same law."""
    tries = 0
    most = _MOST_REAL_TRIES if setting.store == "postgres" else _MOST_TRIES
    smaller = True
    while smaller and tries < most:
        smaller = False
        for candidate in islice(_smaller(program, setting), most - tries):
            tries += 1
            if _breaks(seed, *candidate, law):
                (program, setting), smaller = candidate, True
                break
    return program, setting


def _breaks(seed: int, program: Program, setting: Setting, law: str) -> bool:
    return any(violation.law == law for violation in judge(happen(seed, program, setting)))


def _smaller(program: Program, setting: Setting) -> Iterator[tuple[Program, Setting]]:
    faults = setting.faults
    for number in range(len(faults)):
        yield program, replace(setting, faults=faults[:number] + faults[number + 1 :])
    for number in [node.number for node in nodes(program.body)][1:]:
        for body in _without(program.body, number):
            yield Program(body), setting
    if setting.workers > 1:
        yield program, replace(setting, workers=setting.workers - 1)
    if any(setting.skews):
        yield program, replace(setting, skews=(0.0, 0.0, 0.0))
    if setting.latency:
        yield program, replace(setting, latency=0.0)
    for node in nodes(program.body):
        for plainer in _plainer(node):
            yield Program(_put(program.body, node.number, plainer)), setting


def _without(body: Node, number: int) -> Iterator[Node]:
    """The program without a node, or with one of its parts in its place."""
    found = next(node for node in nodes(body) if node.number == number)
    if found.kind != "pass":
        yield _put(body, number, None)
        for part in found.parts:
            yield _put(body, number, part)


def _put(node: Node, number: int, other: Node | None) -> Node:
    if node.number == number:
        return other or Node("pass", number)
    parts = (_put(part, number, other) for part in node.parts)
    if node.kind in ("seq", "gather", "group", "lock"):
        kept = tuple(p for p, old in zip(parts, node.parts, strict=True) if other or old.number != number)
        return with_parts(node, kept or (Node("pass", number),))
    return with_parts(node, tuple(parts))


def _plainer(node: Node) -> Iterator[Node]:
    for name, plain in (
        ("thread", False),
        ("keyed", False),
        ("uncaught", False),
        ("on_cut", ""),
        ("seconds", 0.0),
        ("value", "text"),
    ):
        if node.kind == "step" and node[name] != plain:
            yield replace(node, more={**node.more, name: plain})


def explain(happened: Happened, violations: list[Violation]) -> str:
    """A failure for a reader: the program, the world, what broke, and what each run saw."""
    world = happened.world
    lines = [f"seed {world.seed}", "", python_of(world.program), "", _world(world.setting), ""]
    lines += [f"BROKEN  {violation}" for violation in violations]
    lines += ["", f"the call ended with: {str(happened.reply)[:400]}", ""]
    for number, run in enumerate(world.runs[:_MOST_RUNS]):
        where = f"request {run.attempt.number}" if run.attempt else "a leg of the task"
        lines.append(
            f"run {number} ({where}, worker {run.worker.number}{', which died' if run.worker.dead else ''})"
        )
        lines += [
            f"    {branch:8} {label:6} {event:8} {value:.100}" for branch, label, event, value in run.trace
        ]
    lines += ["", "effects"]
    for effect in world.effects[:40]:
        ended = "never ended" if effect.ended is None else f"ended {effect.ended:.2f} s"
        lines.append(
            f"    {effect.label:6} began {effect.began:.2f} s, {ended}, worker {effect.worker.number}"
        )
    lines += [
        "",
        "to keep it as a test, put this into kept.py:",
        f"Program({expression_of(world.program.body)}),",
    ]
    return "\n".join([*lines, f"{world.setting},"])


def _world(setting: Setting) -> str:
    faults = [f"{f.kind} at {f.at}{f' ({f.seconds} s)' if f.seconds else ''}" for f in setting.faults]
    options = [f"{name}={value!r}" for name, value in setting.options]
    about = [setting.mode, f"store {setting.store}", f"{setting.workers} worker(s)", *options]
    about += [f"steps take {setting.pace:g} times as long"] if setting.pace != 1 else []
    about += [f"the store takes {setting.latency} s"] if setting.latency else []
    return f"{', '.join(about)}; faults: {', '.join(faults) or 'none'}"
