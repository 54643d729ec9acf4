"""A new version of a program: what a deploy in the middle of a call may bring."""

from random import Random

from tests.simulation.programs import Node, Program, nodes, with_parts

__all__ = ["deployed"]


def deployed(program: Program, kind: str, rng: Random) -> Program:
    """The program as its next version has it."""
    body = program.body
    if kind in ("more", "front", "between"):
        number = max(node.number for node in nodes(body)) + 1
        asks = Node("ask", number, (), {"form": "str", "quiet": True})
        at = {"more": len(body.parts), "front": 0}.get(kind, rng.randint(0, len(body.parts)))
        return Program(with_parts(body, (*body.parts[:at], asks, *body.parts[at:])))
    twins = {node["of"] for node in nodes(body) if node.kind == "twin"}
    steps = [node.number for node in nodes(body) if node.kind == "step" and _can(node, kind)]
    steps = [number for number in steps if number not in twins]
    return Program(_changed(body, rng.choice(steps), kind)) if steps else program


def _can(node: Node, kind: str) -> bool:
    return not node["keyed"] and (
        kind not in ("renamed", "twin") or node["value"] in ("text", "fails", "raises")
    )


def _changed(node: Node, number: int, kind: str) -> Node:
    if node.number != number:
        return with_parts(node, tuple(_changed(part, number, kind) for part in node.parts))
    if kind == "removed":
        return Node("pass", number)
    if kind == "twin":
        return Node("seq", -number, (Node("twin", -number - 1000, (), {"of": number}), node))
    return Node("step", number, (), {**node.more, kind: True})
