"""One process of the fleet: `ekiden run` or `ekiden worker`, forked from one that has imported everything.

To start Python and to import all that takes longer than anything else here, and on a busy machine far longer.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from ekiden.cli.main import main

__all__ = ["start"]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        __name__,
        "ekiden.cli.commands",
        "ekiden.cli.run",
        "ekiden.cli.task_worker",
        "ekiden.server.serving.http",
        "ekiden.stores.postgres",
        "ekiden.stores.sqlite.store",
        "tests.chaos.clients",  # A fork imports the module that was run, and so what that imports.
        "tests.chaos.judge",
        "uvloop",
    ]
)


def start(arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkServerProcess:
    """`ekiden` with these arguments, in a process of its own."""
    process = _forks.Process(target=_be, args=(list(arguments), dict(environment), str(log)), daemon=True)
    process.start()
    return process


def _be(arguments: list[str], environment: dict[str, str], log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.environ.update(environment)
    sys.argv = ["ekiden", *arguments]
    main()
