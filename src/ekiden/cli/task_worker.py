"""`ekiden worker`: runs the tasks of a server in a process that does not serve clients."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from ekiden.cli.keys import use_keys_file
from ekiden.cli.loading import load_server
from ekiden.cli.serving.job import set_up_logging
from ekiden.cli.terminal.screen import say
from ekiden.errors import UsageError

if TYPE_CHECKING:
    from ekiden.server.server import Server

__all__ = ["run_tasks"]


def run_tasks(
    spec: str,
    store: str | None,
    keys_file: Path | None,
    grace: float | None,
    log_level: str,
    metrics_port: int | None = None,
) -> None:
    """Run tasks until a signal; then other workers go on with them."""
    use_keys_file(keys_file)
    if store is not None:
        os.environ["EKIDEN_STORE"] = store
    set_up_logging(log_level)
    server = load_server(spec)
    if not server.has_tasks:
        raise UsageError(f"{server.name} has no tool that can become a task: @server.tool(task=...)")
    if not server.shares_tasks:
        raise UsageError("a worker needs a store that others share: sqlite:///FILE or postgresql://...")
    if grace is not None:
        server.stop_tasks_within(grace)
    if metrics_port is not None:
        from ekiden.telemetry.prometheus import serve_metrics

        serve_metrics(metrics_port)
    from ekiden.server.serving.loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_work(server))


async def _work(server: "Server") -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with server.running():
        if server.renews_keys:
            loop.add_signal_handler(signal.SIGHUP, server.renew_keys)
        say(f"the tasks of {server.name} are run by process {os.getpid()}")
        await stop.wait()
