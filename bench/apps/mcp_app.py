"""The official SDK in its fastest shape: stateless, plain JSON responses.

`structured_output=False`, because a tool that returns `str` is answered with text alone by ekiden
too: everybody sends the same content.
"""

from mcp.server.mcpserver import Context, MCPServer

from bench.apps.guards import guards
from bench.apps.serving import arguments, serve
from bench.apps.tools import tools


def main() -> None:
    options = arguments().parse_args()
    server = MCPServer("bench", version="1", log_level="WARNING")
    for tool in tools(options.tools, guards(Context)):
        server.add_tool(tool, structured_output=False)
    serve(server.streamable_http_app(json_response=True, stateless_http=True), options.port)


if __name__ == "__main__":
    main()
