"""A server on stdio that tells variables of its environment."""

import os

from ekiden import Server

server = Server("environment")


@server.tool
async def variables(names: list[str]) -> list[str | None]:
    """Some variables, in order."""
    return [os.environ.get(name) for name in names]


if __name__ == "__main__":
    server.run("stdio")
