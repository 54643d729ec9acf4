"""What is wrong with a field of a form, in words for whoever fills it in."""

from typing import Any, Final

from ekiden.pages.web.fields import Field
from ekiden.wire.json import JsonObject
from ekiden.wire.printable import one_line
from ekiden.wire.schemas.validator import Problem

__all__ = ["wrong"]

_FORMATS: Final = {
    "email": "an e-mail address, such as name@example.com",
    "uri": "a URL, such as https://example.com",
    "date": "a date, such as 2026-07-28",
    "date-time": "a time, such as 2026-07-28T09:00:00Z",
    "time": "a time of day, such as 09:00:00Z",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
}
_BOUNDS: Final[dict[str, str]] = {
    "minLength": "This must have at least {} letters.",
    "maxLength": "This may have at most {} letters.",
    "minimum": "This must be {} or more.",
    "maximum": "This must be {} or less.",
    "exclusiveMinimum": "This must be more than {}.",
    "exclusiveMaximum": "This must be less than {}.",
    "multipleOf": "This must be a multiple of {}.",
    "pattern": "This must match {}.",
    "minItems": "At least {} are needed.",
    "maxItems": "At most {} are allowed.",
}
_FIXED: Final = {
    "uniqueItems": "No value may be there twice.",
    "enum": "This is not one of the allowed values.",
    "const": "This is not the allowed value.",
}


def wrong(field: Field, problem: Problem, inside: tuple[str, ...]) -> str:
    """A sentence about a problem of a field, or of something inside its value."""
    said = None if inside else _said(field.schema, problem.keyword)
    if said is not None:
        return said
    where = f"{one_line('.'.join(inside))}: " if inside else ""
    return f"This does not fit: {where}{one_line(problem.message)}"


def _said(schema: JsonObject, keyword: str) -> str | None:
    if keyword == "format" and (wanted := _FORMATS.get(str(schema.get("format")))):
        return f"This must be {wanted}."
    if keyword in _FIXED:
        return _FIXED[keyword]
    bound: Any = schema.get(keyword)
    return _BOUNDS[keyword].format(one_line(bound)) if keyword in _BOUNDS and bound is not None else None
