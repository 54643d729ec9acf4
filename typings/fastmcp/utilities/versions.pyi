from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

def dedupe_with_versions(components: Sequence[T], key_fn: Callable[[T], str]) -> list[T]: ...
