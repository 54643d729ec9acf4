"""A server with what an operator wants: rate limits, and pages of its own beside the endpoint.

Run it:     ekiden run examples/operated.py
"""

from ekiden import HttpRequest, HttpResponse, Rate, RateLimit, Server

server = Server("operated")

server.middleware(RateLimit(per_principal=Rate(600, seconds=60), per_address=Rate(50, seconds=1)))


@server.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.route("/")
async def index(request: HttpRequest) -> HttpResponse:
    """A page for people who open the address of the server in a browser."""
    return HttpResponse("<h1>Tools</h1>The endpoint is /mcp.", headers={"Content-Type": "text/html"})


@server.route("/hooks/deploy", methods=["POST"])
async def deployed(request: HttpRequest) -> dict[str, object]:
    """What another service calls. A dict is sent as JSON."""
    return {"seen": request.json()["version"], "dry": request.query.get("dry") == "1"}
