"""What a value is thought to take in memory is about what it takes."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden.transports.server.large.sizes import size_of

N = 30_000


class Point(BaseModel):
    x: int
    y: int


class Option(BaseModel):
    a: int | None = None


@dataclass
class Plain:
    x: int
    y: int


@dataclass(slots=True)
class Slotted:
    x: int
    y: int


class Child(Slotted):
    __slots__ = ("z",)


def text(size: int) -> str:
    return "x" * size + str(size)


def rows(count: int, large_at: int, size: int) -> list[dict[str, Any]]:
    return [{"id": n + 1000, "text": text(size if n == large_at else 10)} for n in range(count)]


SHAPES: dict[str, Callable[[], object]] = {
    "models of two numbers": lambda: [Point(x=n + 1000, y=n + 1000) for n in range(N)],
    "models of nothing": lambda: [Option() for _ in range(N)],
    "dataclasses": lambda: [Plain(n + 1000, n + 1000) for n in range(N)],
    "dataclasses with slots": lambda: [Slotted(n + 1000, n + 1000) for n in range(N)],
    "their children": lambda: [Child(n + 1000, n + 1000) for n in range(N)],
    "dicts of two": lambda: [{"id": n + 1000, "v": n * 1.5} for n in range(N)],
    "dicts of one": lambda: [{"id": n + 1000} for n in range(N)],
    "dicts of many": lambda: [{f"k{k}": k * 1000 + n for k in range(40)} for n in range(N // 40)],
    "empty dicts": lambda: [{} for _ in range(N)],
    "empty lists": lambda: [[] for _ in range(N)],
    "pairs": lambda: [(n + 1000, n + 1000) for n in range(N)],
    "numbers": lambda: [n + 1000 for n in range(10 * N)],
    "a dict by name": lambda: {f"customer number {n} of the list": n for n in range(N)},
    "large numbers": lambda: [10**400 + n for n in range(N)],
    "every second text is long": lambda: [text(0 if n % 2 else 100 + n % 7) for n in range(N)],
    "every second row is long": lambda: [{"t": text(0 if n % 2 else 500 + n % 7)} for n in range(N)],
    "the second text is large": lambda: [text(3_000_000 if n == 1 else 1) for n in range(64)],
    "one row is large": lambda: rows(33, 17, 1_000_000),
    "one row of many is large": lambda: rows(5000, 4321, 10_000_000),
    "the first row is large": lambda: rows(10_000, 0, 900_000),
    "the last row is large": lambda: rows(10_000, 9_999, 900_000),
    "lists in lists": lambda: [
        [[[[1000 + n] for n in range(8)] for _ in range(8)] for _ in range(8)] for _ in range(16)
    ],
    "text with an emoji": lambda: [text(1000) + "\N{GRINNING FACE}" for _ in range(100)],
    "bytes": lambda: [b"x" * 1000 + bytes([n]) for n in range(100)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_size_is_about_what_a_value_takes(shape: str) -> None:
    tracemalloc.start()
    try:
        value = SHAPES[shape]()
        real, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert real / 2 < size_of(value) < real * 2


def test_a_value_that_contains_itself_has_a_size() -> None:
    circle: list[Any] = [text(100_000)]
    circle.append(circle)
    assert size_of(circle) > 100_000


def test_what_cannot_tell_its_size_has_one() -> None:
    class Silent:
        def __sizeof__(self) -> int:
            raise TypeError

    assert 0 < size_of([Silent()] * 3) < 2000


@pytest.mark.parametrize("value", [None, 5, "x", Point, print, Ellipsis, N])
def test_what_is_no_data_is_small(value: object) -> None:
    assert size_of([value]) < 2000
