"""Durable tools of ekiden inside a server of the official SDK, which is served as `their_mcp` is."""

from mcp.server.mcpserver import MCPServer

from bench.apps.ekiden_app import KEYS, confirm, survey
from bench.apps.serving import arguments, serve
from bench.apps.tools import tools
from ekiden.integrations.mcp import Durable


def main() -> None:
    server = MCPServer("bench", version="1", log_level="WARNING")
    durable = Durable(server, keys=KEYS)
    for tool in tools(3, (confirm, survey)):
        durable.tool(tool)
    application = server.streamable_http_app(json_response=True, stateless_http=True)
    serve(application, arguments().parse_args().port)


if __name__ == "__main__":
    main()
