"""The dialects of 2024-11-05 to 2025-11-25: today's outcomes as those versions spell them.

`Legacy` takes results as 2026-07-28 has them and leaves out what its version does not know: the tags
and hints of 2026, and the fields that came in between. It also spells what a server asks of a client,
which in 2025 was a request of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ekiden.errors import InternalError, InvalidRequest, ProtocolError
from ekiden.signals import Unsayable
from ekiden.wire.json import decode, encode, is_array, is_object
from ekiden.wire.jsonrpc import MOST_RESULT_BYTES, RequestId, error_response, result_response
from ekiden.wire.meta import SERVER_INFO
from ekiden.wire.tasks import TaskView, legacy_task

__all__ = ["Legacy"]

_JUNE: Final = frozenset({"2025-06-18", "2025-11-25", "2026-06-XX"})
_FIRST: Final = "2024-11-05"
_NOVEMBER: Final = frozenset({"2025-11-25", "2026-06-XX"})
_SINCE: Final = {
    "title": _JUNE,
    "outputSchema": _JUNE,
    "_meta": _JUNE,
    "lastModified": _JUNE,
    "icons": _NOVEMBER,
    "execution": _NOVEMBER,
    "websiteUrl": _NOVEMBER,
}
"""The fields of definitions and content that came later than 2025-03-26, and the versions that know them."""

_OF_2026: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_CAPABILITIES: Final = (
    "experimental",
    "logging",
    "completions",
    "prompts",
    "resources",
    "tools",
    "tasks",
    "extensions",
)
_LISTS: Final = ("tools", "prompts", "resources", "resourceTemplates")
_MODERN_ONLY: Final = frozenset({-32020, -32021, -32022})
_NOT_FOUND: Final = -32002
_STAYING: Final = ("#/$defs/", "#/definitions/")
_AT_ROOT: Final = ("$schema", "$defs", "definitions")
"""What stays at the root of a schema that is wrapped."""
_DEEPEST: Final = 32
"""How far references are followed: one may lead to itself."""
_WRAPPED: Final = "result"
"""Where 2025 has a structured result that is not an object: the name that other SDKs give it, too."""
_MOST_READY: Final = 64
"""Respelled lists that are kept; each is one page of one list."""


class Legacy:
    """Spells results, errors and questions for one version with a handshake."""

    pushes = True
    """Whether questions are requests of their own."""
    most_bytes = MOST_RESULT_BYTES
    """The longest response that is sent."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._unknown = frozenset(name for name, since in _SINCE.items() if version not in since)
        self._offered = [name for name in _CAPABILITIES if name != "completions" or version != _FIRST]
        self._ready: dict[int, tuple[bytes, bytes]] = {}
        """Respelled lists, by the identity of the bytes they were made of. Equality would not do: two servers
        may list the same tools with other task support."""
        self.task_support: Callable[[str], str | None] | None = None
        """Whether a tool can be called as a task; the lists of 2026 do not say."""

    # Results

    def complete(self, request_id: RequestId, result: dict[str, Any] | bytes) -> bytes:
        """The response for a result; bytes are one that was spelled for 2026, and is kept once respelled."""
        if not isinstance(result, bytes):
            return result_response(request_id, encode(self.result(result)))
        source, ready = self._ready.get(id(result), (b"", b""))
        if source is not result:
            if len(self._ready) >= _MOST_READY:
                self._ready.clear()
            ready = encode(self.result(decode(result)))
            self._ready[id(result)] = (result, ready)
        return result_response(request_id, ready)

    def result(self, result: dict[str, Any]) -> dict[str, Any]:
        """A result without what this version does not know."""
        spelled = {name: value for name, value in result.items() if name not in _OF_2026}
        if is_object(meta := spelled.get("_meta")):
            spelled["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO}
            if not spelled["_meta"]:
                del spelled["_meta"]
        for field in _LISTS:
            if is_array(listed := spelled.get(field)):
                spelled[field] = [self._definition(entry) for entry in listed]
        for field, spell in (
            ("content", self._block),
            ("contents", self._known),
            ("messages", self._message),
        ):
            if is_array(items := spelled.get(field)):
                spelled[field] = [spell(item) for item in items]
        if "structuredContent" in spelled:
            if self.version not in _JUNE:
                del spelled["structuredContent"]  # It is in the text as well.
            elif not is_object(value := spelled["structuredContent"]):
                spelled["structuredContent"] = {_WRAPPED: value}
        return spelled

    def _known(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not self._unknown:
            return fields
        known = {name: value for name, value in fields.items() if name not in self._unknown}
        if "lastModified" in self._unknown and is_object(annotations := known.get("annotations")):
            known["annotations"] = {key: annotations[key] for key in annotations if key != "lastModified"}
        return known

    def _definition(self, entry: dict[str, Any]) -> dict[str, Any]:
        known = self._known(entry)
        if self.version == _FIRST and "inputSchema" in entry:
            known = {name: value for name, value in known.items() if name != "annotations"}
        if self.task_support is not None and "inputSchema" in entry and self.version in _NOVEMBER:
            support = self.task_support(str(entry.get("name")))
            known = known if support is None else {**known, "execution": {"taskSupport": support}}
        if is_object(output := known.get("outputSchema")) and output.get("type") != "object":
            known = {name: value for name, value in known.items() if name != "outputSchema"}
            if _never_object(output, output):
                known["outputSchema"] = _wrapped(output)
        if is_array(arguments := known.get("arguments")):
            known["arguments"] = [self._known(argument) for argument in arguments]
        return known

    def _block(self, block: dict[str, Any]) -> dict[str, Any]:
        if block.get("type") == "resource_link" and self.version not in _JUNE:
            return {"type": "text", "text": f"{block.get('title') or block.get('name')}: {block.get('uri')}"}
        known = self._known(block)
        if block.get("type") == "audio" and self.version == _FIRST:
            known = _attached(known)
        if is_object(resource := known.get("resource")):
            known = {**known, "resource": self._known(resource)}
        return known

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        return {**message, "content": self._block(content)} if is_object(content) else message

    def welcome(
        self,
        request_id: RequestId,
        capabilities: Mapping[str, Any],
        server_info: dict[str, Any],
        instructions: str | None,
    ) -> bytes:
        """The response to `initialize`."""
        info = self._known(server_info)
        if self.version not in _NOVEMBER:
            info = {name: value for name, value in info.items() if name != "description"}
        result: dict[str, Any] = {
            "protocolVersion": self.version,
            "capabilities": {name: capabilities[name] for name in self._offered if name in capabilities},
            "serverInfo": info,
        }
        if instructions is not None:
            result["instructions"] = instructions
        return result_response(request_id, encode(result))

    def input_required(self, request_id: RequestId, requests: Mapping[str, Any], state: str | None) -> bytes:
        """An error: this version has no interim results, so that no request may end with one."""
        return self.error(request_id, InternalError(f"{self.version} has no interim results"))

    def task(self, request_id: RequestId, task: TaskView) -> bytes:
        """The response for a request that has become a task, which only 2025-11-25 and the draft know."""
        if self.version not in _NOVEMBER:
            return self.error(request_id, InternalError(f"{self.version} has no tasks"))
        return result_response(request_id, encode({"task": legacy_task(task)}))

    # Errors

    def error(self, request_id: RequestId | None, error: ProtocolError) -> bytes:
        """The response for an error, in the codes of the time."""
        if error.code in _MODERN_ONLY:
            error = InvalidRequest(error.message, data=error.data)
        elif error.code == -32602 and is_object(error.data) and set(error.data) == {"uri"}:
            error = ProtocolError(error.message, data=error.data, code=_NOT_FOUND)
        return error_response(request_id, error)

    # Questions

    def question(self, method: str, params: Mapping[str, Any] | None, elicitation_id: str) -> dict[str, Any]:
        """The parameters of a question to the client; `Unsayable` if the version cannot express it."""
        spell = _QUESTIONS.get(method)
        asked = dict(params or {})
        return asked if spell is None else spell(self.version, asked, elicitation_id)


def _never_object(schema: Any, root: dict[str, Any], depth: int = 0) -> bool:
    """Whether no object fits a schema. Only then is it certain that its results are wrapped."""
    if not is_object(schema) or depth > _DEEPEST:
        return False
    if "type" in schema:
        kinds: Any = schema["type"]
        return "object" not in (kinds if is_array(kinds) else [kinds])
    if is_array(choices := schema.get("enum", [schema["const"]] if "const" in schema else None)):
        return not any(is_object(choice) for choice in choices)
    for name in ("anyOf", "oneOf"):
        if is_array(options := schema.get(name)):
            return all(_never_object(option, root, depth + 1) for option in options)
    return _never_object(_referred(schema.get("$ref"), root), root, depth + 1)


def _referred(reference: object, root: dict[str, Any]) -> Any:
    """The definition that a `$ref` of the usual kind names."""
    if type(reference) is not str or not reference.startswith("#/$defs/"):
        return None
    return root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that holds a result. Definitions stay at the root: references lead there."""
    kept = {name: value for name, value in schema.items() if name in _AT_ROOT}
    inner = {name: value for name, value in schema.items() if name not in kept}
    whole: dict[str, Any] = {**kept, "properties": {_WRAPPED: inner}}
    return {"type": "object", **_redirected(whole), "required": [_WRAPPED]}


def _redirected(value: Any) -> Any:
    """A schema whose references to its root, or to parts of it that have moved, lead to the new place."""
    if is_array(value):
        return [_redirected(item) for item in value]
    if not is_object(value):
        return value
    moved = {name: _redirected(item) for name, item in value.items()}
    reference = moved.get("$ref")
    if reference == "#" or (
        type(reference) is str and reference.startswith("#/") and not reference.startswith(_STAYING)
    ):
        moved["$ref"] = f"#/properties/{_WRAPPED}{reference[1:]}"
    return moved


def _attached(audio: dict[str, Any]) -> dict[str, Any]:
    """A sound as a resource that comes along: 2024-11-05 has no other place for one."""
    others = {name: value for name, value in audio.items() if name not in ("type", "data", "mimeType")}
    sound = {"uri": "attachment:audio", "mimeType": audio.get("mimeType"), "blob": audio.get("data")}
    return {**others, "type": "resource", "resource": sound}


def _elicitation(version: str, params: dict[str, Any], elicitation_id: str) -> dict[str, Any]:
    if params.get("mode") == "url":
        return {**params, "elicitationId": elicitation_id}
    if version in _NOVEMBER:
        return params
    schema: Mapping[str, Any] = params.get("requestedSchema") or {}
    fields = {name: _plain_field(name, field) for name, field in schema.get("properties", {}).items()}
    plain = {name: value for name, value in params.items() if name != "mode"}
    return {**plain, "requestedSchema": {**schema, "properties": fields}}


def _plain_field(name: str, field: dict[str, Any]) -> dict[str, Any]:
    """A field of a form in the words of June 2025: no lists, no titled choices, few defaults."""
    if field.get("type") == "array":
        raise Unsayable(f"field {name!r} is a list of choices, which came with 2025-11-25")
    plain = {key: value for key, value in field.items() if key not in ("oneOf", "pattern")}
    if field.get("type") != "boolean":
        plain.pop("default", None)
    if is_array(choices := field.get("oneOf")):
        plain["enum"] = [choice["const"] for choice in choices]
        plain["enumNames"] = [choice.get("title", choice["const"]) for choice in choices]
    return plain


def _sampling(version: str, params: dict[str, Any], _: str) -> dict[str, Any]:
    if version in _NOVEMBER:
        return params
    messages: list[dict[str, Any]] = []
    for message in params.get("messages", ()):
        content: Any = message.get("content")
        messages += [{**message, "content": block} for block in content] if is_array(content) else [message]
    return {**params, "messages": messages}


_QUESTIONS: Final[dict[str, Callable[[str, dict[str, Any], str], dict[str, Any]]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
}
