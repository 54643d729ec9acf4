"""The reference has every span that the code makes, its attributes, and how a leg can end."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = (ROOT / "docs" / "reference" / "metrics.md").read_text()
SPANS: Final = PAGE.partition("## Spans\n")[2].partition("\n## ")[0]
SOURCES: Final = sorted((ROOT / "src" / "ekiden").rglob("*.py"))
ATTRIBUTE: Final = re.compile(r"(mcp|gen_ai|jsonrpc|rpc|error|ekiden)\.[a-z_.]+")


def makers() -> dict[Path, ast.Module]:
    """The modules that make spans, and the one that describes them."""
    parsed = {source: ast.parse(source.read_text()) for source in SOURCES if "telemetry" in source.parts}
    return {
        source: tree
        for source, tree in parsed.items()
        if source.name == "conventions.py" or "start_as_current_span" in source.read_text()
    }


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_spans_are_made_in_telemetry_alone_and_each_has_a_row() -> None:
    made = {
        source: text.count("start_as_current_span(")
        for source in SOURCES
        if "start_as_current_span(" in (text := source.read_text())
    }
    assert set(made) <= set(makers())
    rows = re.findall(r"^\| (?!span |-).*\| (internal|client|server|consumer) \|", SPANS, re.MULTILINE)
    assert len(rows) == sum(made.values())


def test_every_attribute_of_a_span_is_in_the_table() -> None:
    used = {text for tree in makers().values() for text in texts(tree) if ATTRIBUTE.fullmatch(text)}
    assert {"mcp.method.name", "jsonrpc.request.id", "ekiden.task.leg.ended"} <= used
    assert set(re.findall(r"`((?:mcp|gen_ai|jsonrpc|rpc|error|ekiden)\.[a-z_.]+)`", SPANS)) == used


def test_every_way_in_which_a_leg_ends_is_told() -> None:
    legs = next(tree for source, tree in makers().items() if source.name == "legs.py")
    known = {"handed over", "cancelled", "waiting for input", "sleeping", "completed", "failed"}
    assert known <= set(texts(legs))
    assert [way for way in known if f"`{way}`" not in SPANS] == []
