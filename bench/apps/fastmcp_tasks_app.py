"""FastMCP with its tasks extension: `--docket memory://` or `--docket redis://...`."""

import time

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

from bench.apps.serving import arguments, serve


async def empty() -> str:
    """Do nothing."""
    return str(time.monotonic_ns())


def main() -> None:
    parser = arguments()
    parser.add_argument("--docket", default="memory://")
    options = parser.parse_args()
    server = FastMCP("bench", version="1")
    server.add_extension(TasksExtension(url=options.docket, concurrency=50))
    server.tool(empty, task=True, output_schema=None)
    serve(server.http_app(json_response=True, stateless_http=True), options.port)


if __name__ == "__main__":
    main()
