"""Makes an ekiden server out of a server of another SDK, and says what could not come along."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from ekiden import Server, UsageError
from ekiden.engine import Carrier, ResumeMode
from ekiden.integrations.carried.host import Host
from ekiden.integrations.inside.checks import require, stable_name

__all__ = ["CarriedServer", "carry", "is_foreign"]

_KINDS: Final = {("fastmcp", "FastMCP"), ("mcp", "FastMCP"), ("mcp", "MCPServer")}
"""Package and name of the classes that are carried. The `FastMCP` of `mcp` is of its version 1: too old."""
_WHO: Final = "`ekiden run`"


def is_foreign(thing: object) -> bool:
    """Whether something is a server of another SDK that can be carried. Imports nothing."""
    return _package(thing) is not None


def _package(thing: object) -> str | None:
    for kind in type(thing).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _KINDS:
            return package
    return None


class CarriedServer(Server):
    """An ekiden server with the tools, prompts and resources of a server of another SDK."""

    def __init__(self, host: Host, resume: ResumeMode) -> None:
        about = host.about()
        # The name of an unnamed FastMCP is drawn anew in every process; states must fit all of them.
        super().__init__(**about, audience=stable_name(about["name"]), lifespan=self._host_lifespan)
        self._host = host
        self._carrier = Carrier(self, resume=resume)
        for identifier, settings in host.declarations().items():
            self._carrier.declare(identifier, settings)
        self.left_behind = host.left_behind()
        """What could not be carried, one line for each."""
        self.runs_anew = resume == "replay"
        """Whether its handlers run anew after each answer of a client of 2026-07-28."""

    @asynccontextmanager
    async def _host_lifespan(self, _: Server) -> AsyncGenerator[Any, None]:
        async with self._host.lifespan() as state:
            # Here, and not before: a lifespan may register more.
            await self._host.register(self._carrier, self._told)
            with self._host.listening(self._told):
                yield state

    async def _told(self, method: str, params: Mapping[str, Any]) -> None:
        """A handler says that something has changed."""
        if method == "notifications/resources/updated":
            self.resource_updated(str(params["uri"]))
        else:
            await self._host.register(self._carrier, self._told)


def carry(
    server: object,
    *,
    resume: ResumeMode = "replay",
    strict: bool = False,
    without_auth: bool = False,
    without_middleware: bool = False,
) -> CarriedServer:
    """A FastMCP or an `MCPServer` as an ekiden server.

    `resume` is that of `Server.tool`, for all handlers. With `strict`, a server of which something cannot be
    carried is refused. One that has an auth provider is refused in any case, unless `without_auth`; so is one
    with middleware of its author's own, which may check callers, unless `without_middleware`.
    """
    host = _host(server)
    if (protections := host.protections()) and not without_auth:
        raise UsageError(
            f"{host.about()['name']} has an auth provider ({', '.join(protections)}), which is not carried: "
            "everybody could call it. Pass --without-auth if a proxy in front of it checks its callers, "
            "or write it with ekiden's Server(auth=...)"
        )
    carried = CarriedServer(host, resume)
    carried.left_behind[:0] = [f"auth provider {each}: nobody is asked who they are" for each in protections]
    if strict and carried.left_behind:
        lines = "".join(f"\n  {line}" for line in carried.left_behind)
        raise UsageError(f"--strict: not all of {carried.name} can be carried:{lines}")
    if (guards := host.guards()) and not without_middleware:
        raise UsageError(
            f"{carried.name} has middleware ({', '.join(guards)}), which is not carried: what it checks, "
            "nobody would check. Pass --without-middleware if it may be left out, or write it with ekiden's "
            "@server.middleware"
        )
    return carried


def _host(server: Any) -> Host:
    if _package(server) == "fastmcp":
        require("fastmcp", (4, 1), 5, who=_WHO)
        from ekiden.integrations.carried.fastmcp_server import FastMcpHost

        return FastMcpHost(server)
    require("mcp", (2, 3), 3, who=_WHO)
    from ekiden.integrations.carried.official import OfficialHost

    return OfficialHost(server)
