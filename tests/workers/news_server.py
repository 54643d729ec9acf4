"""What the workers of the subscription tests serve: notes that change."""

import os
import sys

from ekiden import Server

server = Server("news", store=os.environ.get("STORE"))


@server.resource("note://{name}")
async def note(name: str) -> str:
    """A note."""
    return name


@server.tool
async def change(uri: str) -> str:
    """Say that a note has changed; who did it."""
    server.resource_updated(uri)
    return str(os.getpid())


@server.tool
def change_in_a_thread(uri: str) -> str:
    """The same, outside of the event loop."""
    server.resource_updated(uri)
    return str(os.getpid())


@server.tool
async def learn(name: str) -> str:
    """Offer one more prompt; who did it."""

    async def prompt() -> str:
        return name

    server.add_prompt(prompt, name=name)
    return str(os.getpid())


@server.prompt
async def first() -> str:
    """A prompt."""
    return "first"


@server.tool
async def who() -> str:
    """Tell which process answers."""
    return str(os.getpid())


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), log_level="warning", grace=2)
