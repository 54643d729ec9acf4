"""Extensions of a mounted server, which the server around it offers: its methods are answered inside."""

from collections.abc import Iterator
from typing import Final

from ekiden.server.middleware import Run
from ekiden.server.registration.extensions import OfferedExtension
from ekiden.server.registration.registry import Registry
from ekiden.wire import tasks
from ekiden.wire.extensions import skills

__all__ = ["check_extensions", "pass_extensions"]

_NOT_PASSED: Final = frozenset({tasks.EXTENSION, skills.EXTENSION})
"""Tasks have a way of their own. Entries of skills name URIs, with digests of what these lead to."""


def check_extensions(outer: Registry, inner: Registry) -> None:
    """Refuse a server with an extension of which the one around it has something already."""
    for extension in _passed(inner):
        if extension.names():
            outer.extensions.check(extension)


def pass_extensions(outer: Registry, inner: Registry, answer: Run) -> None:
    """Offer what an inner server has: what adds nothing but a declaration may come from several servers."""
    for extension in _passed(inner):
        offered = OfferedExtension(
            identifier=extension.identifier,
            settings=extension.settings,
            methods=dict.fromkeys(extension.methods, answer),
            hears=extension.hears,
            sends=extension.sends,
            result_types=extension.result_types,
            in_sessions=extension.in_sessions,
            is_offered=extension.is_offered,
        )
        if extension.names():
            outer.extensions.add(offered)
        else:
            outer.extensions.declare(offered)


def _passed(inner: Registry) -> Iterator[OfferedExtension]:
    return (extension for extension in inner.extensions if extension.identifier not in _NOT_PASSED)
