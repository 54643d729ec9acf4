"""Durable tools of ekiden inside a FastMCP server, which is served as `their_fastmcp` is."""

from fastmcp import FastMCP

from bench.apps.ekiden_app import KEYS, confirm, survey
from bench.apps.serving import arguments, serve
from bench.apps.tools import tools
from ekiden.integrations.fastmcp import Durable


def main() -> None:
    server = FastMCP("bench", version="1")
    durable = Durable(server, keys=KEYS)
    for tool in tools(3, (confirm, survey)):
        durable.tool(tool)
    application = server.http_app(json_response=True, stateless_http=True)
    serve(application, arguments().parse_args().port)


if __name__ == "__main__":
    main()
