"""HTTP headers that mirror the body, and their verification against it.

Implements Streamable HTTP: Request Metadata (SEP-2243). The body is the truth; a header that is
missing, malformed or different is `HeaderMismatch`, so that no intermediary which routed by the
header was deceived. Header names arrive in lower case, as ASGI has them.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ekiden.errors import HeaderMismatch
from ekiden.wire import versions
from ekiden.wire.json import is_array, is_object

__all__ = [
    "METHOD",
    "MODERN",
    "NAME",
    "VERSION",
    "Headers",
    "MirroredParam",
    "check_method",
    "check_mirrored_params",
    "check_name",
    "check_version",
    "encode_value",
    "find_mirrored_params",
    "mirrored_headers",
    "reject_duplicates",
]

Headers: TypeAlias = Mapping[bytes, bytes]

VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
MODERN: Final = versions.MODERN.encode()
"""The value of `VERSION` in a request of 2026-07-28."""
_PARAM_PREFIX: Final = b"mcp-param-"

_PRINTABLE: Final = re.compile(rb"[\t\x20-\x7e]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SENTINEL: Final = re.compile(rb"=\?base64\?(.*)\?=", re.DOTALL)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}(\.0{1,19})?")


def reject_duplicates(pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a mirrored header that is sent twice: two readers could pick different ones."""
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in seen and (name in (VERSION, METHOD, NAME) or name.startswith(_PARAM_PREFIX)):
            raise HeaderMismatch(f"Header mismatch: {name.decode('latin-1')} is sent more than once")
        seen.add(name)


def check_version(headers: Headers, version: str | None) -> None:
    """`MCP-Protocol-Version` is there and equals the body's (None: it is not compared)."""
    value = headers.get(VERSION)
    if value is None:
        raise HeaderMismatch(
            "Header mismatch: the MCP-Protocol-Version header is required; "
            f"this server speaks {', '.join(versions.SUPPORTED)}"
        )
    if version is not None:
        _require_equal("MCP-Protocol-Version", value, version)


def check_method(headers: Headers, method: str) -> None:
    """`Mcp-Method` is there and equals the body's method."""
    value = headers.get(METHOD)
    if value is None:
        raise HeaderMismatch("Header mismatch: the Mcp-Method header is required")
    _require_equal("Mcp-Method", value, method)


def check_name(headers: Headers, name: str) -> None:
    """`Mcp-Name` is there and, decoded, equals the body's name, URI or task id."""
    value = headers.get(NAME)
    if value is None:
        raise HeaderMismatch("Header mismatch: the Mcp-Name header is required")
    if (decoded := _decode("Mcp-Name", value)) != name:
        raise _differs("Mcp-Name", decoded, name)


def _require_equal(header: str, value: bytes, expected: str) -> None:
    # httptools keeps optional whitespace around a value; h11 strips it.
    if (text := value.strip(b" \t").decode("latin-1")) != expected:
        raise _differs(header, text, expected)


def _differs(header: str, value: str, expected: str) -> HeaderMismatch:
    return HeaderMismatch(
        f"Header mismatch: {header} header value {value[:200]!r} does not match body value {expected[:200]!r}"
    )


def _decode(header: str, value: bytes) -> str:
    """A header value as text: plain printable ASCII, or UTF-8 inside the base64 sentinel."""
    value = value.strip(b" \t")
    if not _PRINTABLE.fullmatch(value):
        raise HeaderMismatch(f"Header mismatch: {header} contains invalid characters")
    encoded = _SENTINEL.fullmatch(value)
    if encoded is None:
        return value.decode("ascii")
    try:
        return base64.b64decode(encoded[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise HeaderMismatch(f"Header mismatch: {header} is not valid base64 of UTF-8 text") from None


class MirroredParam(msgspec.Struct, frozen=True):
    """A tool parameter that its schema mirrors into `Mcp-Param-{name}` with `x-mcp-header`."""

    name: str
    path: tuple[str, ...]

    @property
    def key(self) -> bytes:
        """The header's name as ASGI spells it."""
        return _PARAM_PREFIX + self.name.lower().encode()


def check_mirrored_params(
    headers: Headers, mirrored: Sequence[MirroredParam], arguments: Mapping[str, Any]
) -> None:
    """Every mirrored parameter with a value has its header and equals it; the others have none."""
    for param in mirrored:
        header = f"Mcp-Param-{param.name}"
        value = _value_at(param.path, arguments)
        sent = headers.get(param.key)
        if sent is None:
            if value is not None:
                raise HeaderMismatch(f"Header mismatch: the {header} header is required for this call")
            continue
        text = _decode(header, sent)
        if value is None:
            raise HeaderMismatch(f"Header mismatch: {header} is sent, but the argument has no value")
        if type(value) is int and abs(value) > _SAFE_INTEGER:
            raise HeaderMismatch(f"Header mismatch: {header} is beyond the integers that JSON keeps exactly")
        if not _agrees(value, text):
            raise _differs(header, text, str(value))


def _value_at(path: tuple[str, ...], arguments: Mapping[str, Any]) -> Any:
    value: Any = arguments
    for key in path:
        if not is_object(value):
            return None
        value = value.get(key)
    return value


def _agrees(value: Any, text: str) -> bool:
    if type(value) is bool:
        return text == ("true" if value else "false")
    if type(value) is int or type(value) is float:
        return _INTEGER.fullmatch(text) is not None and int(text.partition(".")[0]) == value
    return bool(value == text)


_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|")


def encode_value(value: str) -> str:
    """A value as a header carries it: as it is where that is safe, else inside the base64 sentinel."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def mirrored_headers(mirrored: Sequence[MirroredParam], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that mirror a call's arguments; an argument without a value has none."""
    headers: dict[str, str] = {}
    for param in mirrored:
        value = _value_at(param.path, arguments)
        if type(value) is bool:
            headers[f"Mcp-Param-{param.name}"] = "true" if value else "false"
        elif type(value) is str or type(value) is int:
            headers[f"Mcp-Param-{param.name}"] = encode_value(str(value))
    return headers


_MIRRORABLE: Final = frozenset({"string", "integer", "boolean"})
_SAFE_INTEGER: Final = 2**53 - 1


def find_mirrored_params(schema: Mapping[str, Any]) -> tuple[MirroredParam, ...]:
    """The `x-mcp-header` annotations of a tool's input schema; a misplaced one is a `ValueError`."""
    found: dict[str, MirroredParam] = {}
    for param in _annotated(schema, ()):
        if (name := param.name.lower()) in found:
            raise ValueError(f"x-mcp-header {name!r} is used more than once")
        found[name] = param
    if _count_annotations(schema) != len(found):
        raise ValueError("x-mcp-header is only allowed on properties reached through `properties` alone")
    return tuple(found.values())


def _annotated(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[MirroredParam]:
    properties = schema.get("properties")
    if not is_object(properties):
        return
    for key, subschema in properties.items():
        if is_object(subschema):
            here = (*path, key)
            if "x-mcp-header" in subschema:
                yield _mirrored_param(subschema, here)
            if "properties" in subschema:
                yield from _annotated(subschema, here)


def _mirrored_param(schema: Mapping[str, Any], path: tuple[str, ...]) -> MirroredParam:
    name = schema["x-mcp-header"]
    where = ".".join(path)
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ValueError(f"x-mcp-header of {where!r} must be a non-empty HTTP token, not {name!r}")
    if not _is_mirrorable(schema.get("type")):
        raise ValueError(f"x-mcp-header of {where!r} needs type string, integer or boolean")
    return MirroredParam(name, path)


def _is_mirrorable(kind: Any) -> bool:
    """One primitive type; that it may be null as well does no harm, null has no header."""
    if is_array(kind):
        named = [name for name in kind if name != "null"]
        return len(named) == 1 and _is_mirrorable(named[0])
    return isinstance(kind, str) and kind in _MIRRORABLE


def _count_annotations(node: Any, *, names: bool = False) -> int:
    """Annotations anywhere below; `names` says that the keys are property names, not keywords."""
    if is_object(node):
        own = 0 if names else int("x-mcp-header" in node)
        return own + sum(
            _count_annotations(value, names=not names and key in _NAME_KEYED)
            for key, value in node.items()
            if names or key not in _LITERALS
        )
    if is_array(node):
        return sum(_count_annotations(item) for item in node)
    return 0


_NAME_KEYED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"}) | {
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
}
_LITERALS: Final = frozenset({"const", "enum", "default", "examples"})
