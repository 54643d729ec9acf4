"""Starts a server as a host would, to see that it answers."""

import asyncio
import os
import shlex
from typing import Final

from ekiden.cli.installing.launching import Launch
from ekiden.cli.targets import TargetOptions, open_client
from ekiden.errors import EkidenError, UsageError

__all__ = ["check_launch"]

_SECONDS: Final = 120.0
"""The first start of `uv run` downloads what the server needs."""


def check_launch(launch: Launch) -> None:
    """Refuse a command that does not serve. Secrets have the values of this command's environment."""
    known = {name: os.environ[name] for name in launch.secrets if name in os.environ}
    env = [f"{name}={value}" for name, value in {**launch.env, **known}.items()]
    command = shlex.join([launch.command, *launch.args])
    try:
        asyncio.run(_listed(TargetOptions(target=command, env=env, timeout=_SECONDS)))
    except EkidenError as error:
        raise UsageError(
            f"nothing was written, since the server does not answer: {error}. Does {launch.command} have "
            "ekiden[cli] and what the server needs? --python names another; --no-check writes it all the same"
        ) from None


async def _listed(connection: TargetOptions) -> None:
    async with open_client(connection) as client:
        await client.list_tools()
