"""Pictures and files as results: the code of the reference."""

from ekiden import File, Image, Server

server = Server("pictures")


def bars(values: list[int]) -> bytes:
    """A bar chart as SVG."""
    drawn = [f'<rect x="{12 * n}" width="10" height="{value}"/>' for n, value in enumerate(values)]
    return f'<svg xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'.encode()


@server.tool
async def chart(values: list[int]) -> list[str | Image]:
    """Draw a bar chart."""
    return [f"{len(values)} bars:", Image(data=bars(values), format="svg")]


@server.tool
async def export(values: list[int]) -> File:
    """The values as a file."""
    return File(data="\n".join(map(str, values)), name="values.csv")


if __name__ == "__main__":
    server.run()
