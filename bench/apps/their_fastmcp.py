"""A server on FastMCP as its author would write it: run by itself, or served by `ekiden run`.

By itself it has its fastest shape: stateless, plain JSON responses.
"""

from fastmcp import Context, FastMCP

from bench.apps.guards import guards
from bench.apps.serving import arguments, serve
from bench.apps.tools import tools

server = FastMCP("bench", version="1")
for tool in tools(3, guards(Context)):
    server.tool(tool, output_schema=None)

if __name__ == "__main__":
    application = server.http_app(json_response=True, stateless_http=True)
    serve(application, arguments().parse_args().port)
