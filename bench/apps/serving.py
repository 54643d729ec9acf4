"""How every contestant is served: the same uvicorn, the same options, the same command line.

`python -m bench.apps.<name>_app PORT [--tools N] ...`
"""

import argparse
from typing import Any

import uvicorn


def arguments() -> argparse.ArgumentParser:
    """The command line that all apps share; an app may add options of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--tools", type=int, default=3, help="how many tools are registered, 3 or more")
    return parser


def serve(application: Any, port: int) -> None:
    """Serve on uvicorn with uvloop and httptools until terminated."""
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        access_log=False,
        server_header=False,
        log_level="warning",
    )
