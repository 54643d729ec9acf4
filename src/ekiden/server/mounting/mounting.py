"""`Server.mount`: the servers inside a server, and what concerns all of them."""

from collections.abc import Iterator

import msgspec

from ekiden.errors import RegistrationError, UsageError
from ekiden.server.auth.auth import Auth
from ekiden.server.endpoint import ServerEndpoint
from ekiden.server.mounting.mount import Mount
from ekiden.server.mounting.names import Neighbours, Prefix
from ekiden.server.rounds.rounds import Rounds
from ekiden.server.sealing.key_source import KeySource

__all__ = ["Mounting"]


class Insides(msgspec.Struct):
    """The parts of a server that one around it must know."""

    audience: str
    auth: Auth | None
    keys: KeySource
    rounds: Rounds


class Mounting:
    """The part of a `Server` with which other servers are mounted in it."""

    name: str
    endpoint: ServerEndpoint
    _auth: Auth | None
    _audience: str
    _keys: KeySource
    _rounds: Rounds

    def __init__(self) -> None:
        self._mounts: list[tuple[Mount, Mounting]] = []
        self._prefixes = Neighbours()

    @property
    def insides(self) -> Insides:
        """For a server that this one is mounted in."""
        return Insides(self._audience, self._auth, self._keys, self._rounds)

    def mount(self, other: "Mounting", *, prefix: str | None = None) -> None:
        """Offer everything that another server has, with `prefix` in front of its names.

        The tool `refund` becomes `billing_refund`, the resource `config://app` `billing+config://app`. What
        is registered there later appears here, too. The other server starts and stops with this one; it keeps
        its store, its middleware and its limits. Its keys are those of this server, unless it has some of its
        own; the same holds for who its callers are.
        """
        inner, spelled = other, Prefix(prefix or "")
        self._check_mount(inner, spelled)
        mount = Mount(self.endpoint, inner.endpoint, spelled, self._prefixes)
        mount.connect()
        self._prefixes.add(spelled)
        self._mounts.append((mount, inner))
        parts = inner.insides
        parts.keys.follow(self._keys)
        parts.rounds.adopt_principal(self._rounds.principal_of)

    def _check_mount(self, other: object, prefix: Prefix) -> None:
        if not isinstance(other, Mounting):
            raise UsageError(
                f"mount() takes a Server, not {type(other).__name__}: see ekiden.gateway for others"
            )
        if self in other.tree():
            raise RegistrationError(f"{other.name!r} cannot be mounted in itself")
        if self.endpoint.started:
            raise UsageError("mount() must be called before the server starts")
        if (auth := other.insides.auth) is not None and auth is not self._auth:
            raise RegistrationError(
                f"{other.name!r} has an auth= of its own, which is not used when it is mounted: "
                "give both servers the same Auth"
            )
        for mount, _ in self._mounts:
            if prefix.text and mount.prefix.scheme == prefix.scheme:
                raise RegistrationError(f"the prefix {prefix.text!r} is taken: choose another prefix=")
            if (under := mount.listed_under(prefix)) is not None:
                raise RegistrationError(
                    f"{under!r} of a server that is mounted begins with the prefix {prefix.text!r}: "
                    "choose another prefix="
                )
        known = {server.insides.audience: server for server in self.tree()}
        for server in other.tree():
            if known.get(audience := server.insides.audience, server) is not server:
                raise RegistrationError(
                    f"two servers are called {audience!r}, and could not tell their tokens apart: "
                    "give one of them another audience="
                )

    def tree(self) -> "Iterator[Mounting]":
        """This server, and all that are mounted in it or in those."""
        yield self
        for _, inner in self._mounts:
            yield from inner.tree()

    # Tasks

    @property
    def has_tasks(self) -> bool:
        """Whether any tool, here or in a mounted server, can become a task of a store."""
        return any(server.endpoint.registry.has_tasks for server in self.tree())

    def leave_tasks(self) -> None:
        """Run no tasks in this process: calls still become tasks, and workers elsewhere run them."""
        self._limit_tasks(concurrency=0)

    def stop_tasks_within(self, seconds: float) -> None:
        """Set how long steps of tasks may take to end when the server stops. Call it before the start."""
        self._limit_tasks(grace_seconds=seconds)

    def _limit_tasks(self, **limits: float) -> None:
        for server in self.tree():
            if server.endpoint.tasks is not None:
                server.endpoint.tasks.limit(**limits)
