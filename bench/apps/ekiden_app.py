"""ekiden, as its README has it. `--middleware` puts one that only passes on around every request."""

from bench.apps.serving import arguments, serve
from bench.apps.tools import tools
from ekiden import CallNext, Outcome, Request, Server


async def pass_on(request: Request, call_next: CallNext) -> Outcome:
    return await call_next(request)


def main() -> None:
    parser = arguments()
    parser.add_argument("--middleware", action="store_true")
    options = parser.parse_args()
    server = Server("bench", version="1")
    for tool in tools(options.tools):
        server.add_tool(tool)
    if options.middleware:
        server.middleware(pass_on)
    serve(server.asgi(), options.port)


if __name__ == "__main__":
    main()
