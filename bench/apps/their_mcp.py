"""A server of the official SDK as its author would write it: run by itself, or served by `ekiden run`.

By itself it has its fastest shape: stateless, plain JSON responses.
"""

from mcp.server.mcpserver import Context, MCPServer

from bench.apps.guards import guards
from bench.apps.serving import arguments, serve
from bench.apps.tools import tools

server = MCPServer("bench", version="1", log_level="WARNING")
for tool in tools(3, guards(Context)):
    server.add_tool(tool, structured_output=False)

if __name__ == "__main__":
    serve(server.streamable_http_app(json_response=True, stateless_http=True), arguments().parse_args().port)
