"""Tests are handed to the workers of xdist in chunks of neighbours.

For every test that ends, xdist counts what is left of all that a worker was ever given, and sends more in a
message. With thousands of tests that are handed out one by one it does so for seconds.
"""

from collections import Counter
from typing import Any, Final

import pytest
from xdist.scheduler import LoadGroupScheduling

_CHUNK: Final = 8
"""Few, so that no worker has much left when the others have ended: the smallest chunks are the last ones."""


class _Chunks(LoadGroupScheduling):
    """As `--dist loadgroup`, where tests of one file that belong to no group are a few together."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._chunks: dict[str, str] = {}
        self._found: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        if nodeid not in self._chunks:
            self._chunks[nodeid] = self._chunk_of(nodeid)
        return self._chunks[nodeid]

    def _chunk_of(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if scope != nodeid:
            return scope
        file = nodeid.partition("::")[0]
        self._found[file] += 1
        return f"{file} {(self._found[file] - 1) // _CHUNK}"


@pytest.hookimpl(optionalhook=True)  # Without xdist there is no such hook.
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Chunks | None:
    return _Chunks(config, log) if config.getvalue("dist") == "loadgroup" else None
