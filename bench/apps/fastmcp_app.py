"""FastMCP in its fastest shape: stateless, plain JSON responses, text without structured content."""

from fastmcp import Context, FastMCP

from bench.apps.guards import guards
from bench.apps.serving import arguments, serve
from bench.apps.tools import tools


def main() -> None:
    options = arguments().parse_args()
    server = FastMCP("bench", version="1")
    for tool in tools(options.tools, guards(Context)):
        server.tool(tool, output_schema=None)
    serve(server.http_app(json_response=True, stateless_http=True), options.port)


if __name__ == "__main__":
    main()
