"""Messages that only extensions have: requests and notifications whose names the protocol does not know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from ekiden.client.results import typed
from ekiden.client.sessions.session import ClientRequest, ClientSession
from ekiden.errors import UsageError
from ekiden.wire.extensions.names import CORE_METHODS
from ekiden.wire.json import JsonObject, is_object

__all__ = ["CustomMessages"]

ModelT = TypeVar("ModelT", bound=BaseModel)


class CustomMessages(ABC):
    """The part of a client that speaks extensions."""

    @property
    @abstractmethod
    def session(self) -> ClientSession:
        """The open session."""

    @abstractmethod
    async def _request(self, request: ClientRequest) -> JsonObject:
        """Send a request, within the time limit."""

    @abstractmethod
    async def _notify(self, method: str, params: JsonObject) -> None:
        """Send a notification, within the time limit."""

    def server_extension(self, identifier: str) -> JsonObject | None:
        """What the server declares for an extension; None if it does not have it."""
        declared = self.session.capabilities.get("extensions")
        settings = declared.get(identifier) if is_object(declared) else None
        return settings if is_object(settings) else None

    @overload
    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> JsonObject: ...
    @overload
    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, result_type: type[ModelT]
    ) -> ModelT: ...
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result_type: type[ModelT] | None = None,
    ) -> JsonObject | ModelT:
        """Send a request that an extension has, and return its result: as a dict, or read into a model."""
        _check_custom(method)
        result = await self._request(ClientRequest(method, dict(params or {})))
        return result if result_type is None else typed(result_type, result)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification that an extension has."""
        _check_custom(method)
        await self._notify(method, dict(params or {}))


def _check_custom(method: str) -> None:
    if method in CORE_METHODS:
        raise UsageError(
            f"{method!r} is a method of the protocol: the client has methods of its own for those"
        )
