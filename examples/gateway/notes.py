"""Another server behind a gateway, which is started as a program."""

from ekiden import Server

server = Server("notes")


@server.resource("note://{name}")
def note(name: str) -> str:
    """A note."""
    return f"Remember {name}."


if __name__ == "__main__":
    server.run("stdio")
