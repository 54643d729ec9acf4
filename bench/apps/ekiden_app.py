"""ekiden, as its README has it.

`--middleware` puts one that only passes on around every request. `--mounted` serves it as an ASGI
application on the uvicorn of the others, and not as `Server.run` does. With `--store` there are tasks;
`--no-tasks` leaves them to a process with `--worker`. `--jwt` asks for an access token.
"""

import asyncio
import signal
from typing import Any, Final

import uvloop
from pydantic import BaseModel

from bench.apps.serving import arguments, serve
from bench.apps.task_tools import add_task_tools, give
from bench.apps.tools import tools
from bench.disk import new_folder
from ekiden import Auth, CallNext, Context, HttpRequest, JWTVerifier, Outcome, Request, Server

KEYS: Final = [b"the key of a benchmark is no secret at all"]


class Confirm(BaseModel):
    ok: bool


async def confirm(name: str, ctx: Context) -> str:
    """Greet someone by name, if the user agrees."""
    answer = await ctx.elicit(f"Greet {name}?", Confirm)
    return f"Hello, {name}!" if answer.data and answer.data.ok else "No greeting."


async def survey(rounds: int, ctx: Context) -> str:
    """Ask the user about guests, one after the other."""
    for guest in range(rounds):
        answer = await ctx.elicit(f"Greet guest {guest}?", Confirm)
        if not (answer.data and answer.data.ok):
            return "No more guests."
    return f"{rounds} guests"


async def pay(amount: int, ctx: Context) -> str:
    """Ask the user, and take a step: the round with the answer is recorded in the store."""
    answer = await ctx.elicit(f"Pay {amount}?", Confirm)
    return f"Paid {await ctx.step(give, amount)}." if answer.data and answer.data.ok else "Not paid."


async def work(server: Server) -> None:
    """Run tasks, and serve nobody."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with server.running():
        print("works", flush=True)
        await stop.wait()


async def pass_on(request: Request, call_next: CallNext) -> Outcome:
    return await call_next(request)


def guarded(port: int, **options: Any) -> Server:
    """A server that admits who has a token of an issuer, which it plays itself."""
    from bench.tokens import (
        JWKS_PATH,
        KEY_SET,
        issuer,
    )  # What others do without must not make them start later.

    named = issuer(port)
    auth = Auth(f"{named}/mcp", verifier=JWTVerifier(named, jwks_uri=named + JWKS_PATH))
    server = Server("bench", auth=auth, **options)

    @server.route(JWKS_PATH)
    async def key_set(_: HttpRequest) -> dict[str, Any]:
        return KEY_SET

    return server


def main() -> None:
    parser = arguments()
    parser.add_argument("--middleware", action="store_true")
    parser.add_argument("--jwt", action="store_true")
    parser.add_argument("--mounted", action="store_true")
    parser.add_argument("--store")
    parser.add_argument("--no-tasks", action="store_true")
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    store = options.store
    if store == "temporary":
        store = f"sqlite:///{new_folder()}/tasks.db"
    about: dict[str, Any] = {"version": "1", "keys": KEYS, "store": store}
    server = guarded(options.port, **about) if options.jwt else Server("bench", **about)
    for tool in tools(options.tools, (confirm, survey)):
        server.add_tool(tool)
    if options.store:
        add_task_tools(server)
        server.add_tool(pay)
    if options.no_tasks:
        server.leave_tasks()
    if options.worker:
        uvloop.run(work(server))
        return
    if options.middleware:
        server.middleware(pass_on)
    if options.mounted:
        serve(server.asgi(), options.port)
    else:
        server.run(port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
