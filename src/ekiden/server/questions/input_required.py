"""The manual way: a handler that returns its own `InputRequired` and keeps its own state."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ekiden.errors import InvalidParams, UsageError
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE
from ekiden.server.questions.content import dump
from ekiden.wire.json import JsonObject, copied, is_object

if TYPE_CHECKING:
    from mcp_types import InputRequest

__all__ = [
    "InputRequired",
    "capabilities_for",
    "read_response",
    "sampling_needs",
    "spelled_requests",
    "words_of",
]


class InputRequired(Exception):
    """Ends the round: the client answers `input_requests` and calls again, with `request_state`.

    Return it or raise it. On the next round the answers are `ctx.input_responses` and the state,
    as it was written here, is `ctx.request_state`.
    """

    keeps_answers = True
    """Whether the answers of earlier rounds are carried on."""

    def __init__(
        self,
        input_requests: "Mapping[str, InputRequest | JsonObject] | None" = None,
        request_state: str | None = None,
    ) -> None:
        super().__init__("input required")
        if not input_requests and request_state is None:
            raise UsageError("InputRequired needs input_requests, request_state, or both")
        if not isinstance(request_state, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]  authors may err
            raise UsageError(f"request_state must be a string, not {type(request_state).__name__}")
        self.input_requests = dict(input_requests or {})
        self.request_state = request_state


def spelled_requests(manual: InputRequired) -> dict[str, JsonObject]:
    """The requests as they go on the wire."""
    return {key: _spelled(key, request) for key, request in manual.input_requests.items()}


def _spelled(key: str, request: object) -> JsonObject:
    if isinstance(request, BaseModel):
        request = dump(request)
    if not is_object(request) or request.get("method") not in (ELICIT, SAMPLE, LIST_ROOTS):
        raise UsageError(f"input request {key!r} must be one of {ELICIT}, {SAMPLE}, {LIST_ROOTS}")
    return request


def capabilities_for(request: Mapping[str, Any]) -> JsonObject:
    """The client capabilities that a request needs."""
    method: str = request["method"]
    params: Mapping[str, Any] = request.get("params") or {}
    if method == ELICIT:
        return {"elicitation": {"url" if params.get("mode") == "url" else "form": {}}}
    if method == SAMPLE:
        return {"sampling": sampling_needs(params)}
    return {"roots": {}}


def words_of(request: Mapping[str, Any]) -> str:
    """What the user would read of a request; empty if somebody else is asked."""
    params: Mapping[str, Any] = request.get("params") or {}
    message: Any = params.get("message")
    return message if isinstance(message, str) else ""


def sampling_needs(params: Mapping[str, Any]) -> JsonObject:
    """What a client must have declared of `sampling` for these parameters."""
    needs: JsonObject = {"tools": {}} if "tools" in params or "toolChoice" in params else {}
    if params.get("includeContext", "none") != "none":
        needs["context"] = {}
    return needs


def read_response(key: str, raw: object, method: str | None) -> Any:
    """A response as the official result of its kind. `method` is what was asked, None if that is unknown.

    Without a `method` the kind is guessed, and a response that does not fit is None. With one it is refused.
    """
    import mcp_types  # 0.3 s that only the manual way needs.

    models: dict[str, type[BaseModel]] = {
        ELICIT: mcp_types.ElicitResult,
        SAMPLE: mcp_types.CreateMessageResultWithTools,
        LIST_ROOTS: mcp_types.ListRootsResult,
    }
    kind = method or _kind_of(raw)
    if kind is None:
        return None
    try:
        return models[kind].model_validate(copied(raw), by_name=False)
    except ValueError:
        if method is None:
            return None
        raise InvalidParams(f"Invalid params: the response {key!r} does not answer the question") from None


def _kind_of(raw: object) -> str | None:
    """Guess the kind of an answer from its fields."""
    if not is_object(raw):
        return None
    for field, kind in (("action", ELICIT), ("roots", LIST_ROOTS), ("role", SAMPLE)):
        if field in raw:
            return kind
    return None
