"""The questions that are not forms: a page to open, the client's model, the client's roots."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from ekiden.errors import RegistrationError, UsageError
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE, Ask, digest_of, malformed
from ekiden.server.questions.content import dump
from ekiden.server.questions.forms import accepted_content, elicitation_reader, form_for
from ekiden.server.questions.input_required import capabilities_for, sampling_needs
from ekiden.server.schemas import explain
from ekiden.signals import MalformedAnswer
from ekiden.wire.json import JsonObject, copied, is_object

if TYPE_CHECKING:
    from mcp_types import CreateMessageResultWithTools, Root, SamplingMessage

__all__ = ["NEEDS", "ROOTS", "Askable", "check_answers", "needed_for", "sampling", "spelled_out", "url"]

ModelT = TypeVar("ModelT", bound=BaseModel)

Askable: TypeAlias = Literal["elicitation", "elicitation.url", "sampling", "sampling.tools", "roots"]

NEEDS: Final[dict[Askable, JsonObject]] = {
    "elicitation": {"elicitation": {"form": {}}},
    "elicitation.url": {"elicitation": {"url": {}}},
    "sampling": {"sampling": {}},
    "sampling.tools": {"sampling": {"tools": {}}},
    "roots": {"roots": {}},
}


def needed_for(asked: object) -> JsonObject:
    """The capabilities for an entry of `asks=`: a name, or the type of a form, which is checked here."""
    if isinstance(asked, str):
        if asked not in NEEDS:
            raise RegistrationError(f"asks= takes {', '.join(NEEDS)} and the types of forms, not {asked!r}")
        return NEEDS[asked]
    try:
        form_for(asked)
    except UsageError as error:
        raise RegistrationError(str(error)) from None
    return NEEDS["elicitation"]


def url(message: str, address: str) -> Ask:
    """The question that asks the user to open a page."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"elicit_url needs a full http(s) URL, not {address!r}")
    params = {"mode": "url", "message": message, "url": address}
    return Ask(
        ELICIT,
        params,
        NEEDS["elicitation.url"],
        elicitation_reader(_no_content),
        digest_of(ELICIT, params),
    )


def _no_content(_: JsonObject) -> None:
    return None


def sampling(messages: "str | Sequence[SamplingMessage | str]", **options: Any) -> Ask:
    """The question to the client's model."""
    listed = [messages] if isinstance(messages, str) else messages
    params: JsonObject = {"messages": [_message(message) for message in listed]}
    params.update((name, _plain(value)) for name, value in options.items() if value is not None)
    return Ask(SAMPLE, params, {"sampling": sampling_needs(params)}, _read_sample, digest_of(SAMPLE, params))


def _message(message: Any) -> JsonObject:
    if isinstance(message, str):
        return {"role": "user", "content": {"type": "text", "text": message}}
    return dump(message) if isinstance(message, BaseModel) else dict(message)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return dump(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]  narrowed from Any
    return dict(value) if isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


def _read_sample(raw: object) -> "CreateMessageResultWithTools":
    from mcp_types import CreateMessageResultWithTools  # 0.3 s that only this answer needs.

    return _validated(CreateMessageResultWithTools, raw)


def _read_roots(raw: object) -> "list[Root]":
    from mcp_types import ListRootsResult  # 0.3 s that only this answer needs.

    return _validated(ListRootsResult, raw).roots


def _validated(model: type[ModelT], raw: object) -> ModelT:
    if not is_object(raw):
        raise MalformedAnswer("it must be an object")
    try:
        return model.model_validate(copied(raw), by_name=False)
    except ValidationError as error:
        raise MalformedAnswer(explain(error)) from None


def check_answers(asked: Mapping[str, str], responses: Mapping[str, object]) -> None:
    """Refuse answers of the wrong kind, before anything runs. The rules of a form are checked later."""
    for key, label in asked.items():
        if key in responses:
            try:
                if label.startswith("elicit-"):
                    accepted_content(responses[key])
                elif label.startswith("sample-"):
                    _read_sample(responses[key])
                elif label.startswith("roots-"):
                    _read_roots(responses[key])
            except MalformedAnswer as problem:
                raise malformed(key, problem) from None


def spelled_out(request: Mapping[str, Any]) -> Ask:
    """The question that an input request of the protocol asks; its answer is read as it came."""
    method, params = request.get("method"), request.get("params")
    if method not in (ELICIT, SAMPLE, LIST_ROOTS) or not (params is None or is_object(params)):
        raise UsageError(f"ctx.ask() takes a request of {ELICIT}, {SAMPLE} or {LIST_ROOTS}, with its params")
    read = {ELICIT: accepted_content, SAMPLE: _read_sample, LIST_ROOTS: _read_roots}[method]

    def read_raw(raw: object) -> Any:
        read(raw)
        return raw

    return Ask(method, params, capabilities_for(request), read_raw, digest_of(method, params))


ROOTS: Final = Ask(LIST_ROOTS, None, NEEDS["roots"], _read_roots, digest_of(LIST_ROOTS, None))
"""The question for the client's roots; there is only one."""
