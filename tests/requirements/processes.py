"""Server processes: how they are started and ended."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tests.warm import WarmProcess, python

Process: TypeAlias = "subprocess.Popen[bytes] | WarmProcess"

PATIENCE = 30.0

_PACKAGE = (__package__ or "").split(".")
_ROOT = Path(__file__).parents[len(_PACKAGE)]


def start(*arguments: str, **pipes: Any) -> "Process":
    """Start a server of `servers.py` as a process of its own."""
    module = ".".join([*_PACKAGE, "servers"])
    return python("-m", module, *arguments, cwd=_ROOT, **pipes)


def stop(process: "Process") -> int:
    """End a process that we started: politely first."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(PATIENCE)


@contextmanager
def slowed_down(pid: int) -> Iterator[None]:
    """Meanwhile a process that we started comes last: whatever races with it has the best of chances."""
    if sys.platform != "linux":
        yield
        return
    ours = os.sched_getaffinity(0)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {min(ours)})
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
    os.sched_setaffinity(0, {min(ours)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)
