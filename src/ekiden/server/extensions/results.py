"""Results of extensions: complete ones, and those of a type that only the extension knows."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import BaseModel

from ekiden.errors import InternalError, MissingCapability
from ekiden.rounds.outcome import Complete, Dialect, Failed, Interim, Outcome, Task, too_large
from ekiden.server.questions.content import dump
from ekiden.server.registration.extensions import OfferedExtension
from ekiden.wire import versions
from ekiden.wire.extensions.names import declaring
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, encode, is_object
from ekiden.wire.jsonrpc import RequestId, result_response
from ekiden.wire.modern import Modern, Request

__all__ = ["ExtensionResult", "checked", "outcome_of"]

_log = logging.getLogger(__name__)


class ExtensionResult(Complete, kw_only=True):
    """A result whose `resultType` is one of an extension's. Its client must declare the extension."""

    result_type: str


class _InSession(Complete):
    """A result for a client of 2025, sent as it is: what its fields mean is the extension's business."""

    def render(self, dialect: Dialect, request_id: RequestId) -> bytes:
        try:
            response = result_response(request_id, encode(self.result))
        except ENCODE_ERRORS:
            _log.exception("A result cannot be sent")
            return dialect.error(request_id, InternalError("The result cannot be sent as JSON"))
        if len(response) > dialect.most_bytes:
            return dialect.error(request_id, too_large(len(response), dialect.most_bytes))
        return response


def outcome_of(value: object, request: Request) -> Outcome:
    """What the function of a method returned, as an outcome: None is an empty result.

    A `Complete` is spelled as results of the protocol are: for clients of 2025 without the fields of 2026.
    """
    if isinstance(value, Complete | Failed | Interim | Task):
        return value
    result = _fields(value)
    problem = "an object: a dict, a model, a struct or None" if result is None else _wrong_fields(result)
    if result is None or problem is not None:
        _log.error("%s must return %s, not %r", request.method, problem, value)
        return Failed(InternalError("Internal error"))
    return Complete(result) if request.meta.protocol_version == versions.MODERN else _InSession(result)


def _fields(value: object) -> JsonObject | None:
    if value is None:
        return {}
    if isinstance(value, BaseModel):
        return dump(value)
    if isinstance(value, msgspec.Struct):
        built: Any = msgspec.to_builtins(value)
        return built if isinstance(built, dict) else None  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    return None


def _wrong_fields(result: JsonObject) -> str | None:
    """What a result must have instead of what it has in the fields that all results share."""
    if result.get("resultType", "complete") != "complete":
        return "results of another type as `ExtensionResult`"
    if not is_object(result.get("_meta", {})):
        return "an object as `_meta`"
    return None


def checked(outcome: Outcome, extension: OfferedExtension, request: Request, dialect: Modern) -> Outcome:
    """An outcome as it may leave: a type that the extension or the client does not declare may not."""
    if not isinstance(outcome, ExtensionResult):
        return outcome
    if outcome.result_type not in extension.result_types:
        _log.error(
            "Extension %r returned a result of type %r, which is not one of its result_types",
            extension.identifier,
            outcome.result_type,
        )
        return Failed(InternalError("Internal error"))
    if request.meta.protocol_version != versions.MODERN:
        reason = f"A result of type {outcome.result_type!r} needs protocol version {versions.MODERN}"
        return Failed(InternalError(reason))
    if not extension.declared_by(request):
        reason = f"A result of type {outcome.result_type!r} is only for clients that declare the extension"
        return Failed(MissingCapability(declaring(extension.identifier), f"{reason} {extension.identifier}"))
    return Complete(dialect.typed(outcome.result_type, outcome.as_dict()))
