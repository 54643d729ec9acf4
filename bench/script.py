"""How a script that measures is run: pinned to a core, in its contestant's environment, to its JSON."""

import json
import subprocess
from typing import Any, Final

from bench.exchange import PATH
from bench.failure import BenchFailure
from bench.servers import CONTESTANTS, ROOT, Running, cores

_SECONDS: Final = 300


def run_script(contestant: str, module: str, *arguments: str, core: int | None = None) -> Any:
    """What the script prints last. It runs on the core of the load, beside the server, or on a given one."""
    pinned = str(cores()[1] if core is None else core)
    command = ["taskset", "-c", pinned, CONTESTANTS[contestant].interpreter(), "-m", module, *arguments]
    try:
        finished = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise BenchFailure(f"{module} failed: {error.stderr[-2000:]}") from None
    except subprocess.TimeoutExpired:
        raise BenchFailure(f"{module} did not end within {_SECONDS} s") from None
    return json.loads(finished.stdout.splitlines()[-1])


def run_client(contestant: str, server: Running, *options: str) -> Any:
    """Have a contestant's client make calls to the server."""
    url = f"http://127.0.0.1:{server.port}{PATH}"
    with server.blamed():
        return run_script(contestant, f"bench.clients.{contestant}_client", url, *options)
