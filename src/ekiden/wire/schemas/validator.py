"""JSON Schemas as validators: 2020-12 unless `$schema` says otherwise.

No `$ref` is ever fetched: one that leaves its document makes the schema unusable. A schema from a peer also
has a budget (`wire.schemas.cost`), because a few lines of it can mean years of checking, and its patterns
are run by an engine without backtracking. A pattern that only backtracking can match makes it unusable.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from ekiden.signals import TooCostly, UnusableSchema
from ekiden.wire.json import encode
from ekiden.wire.schemas.cost import ValidationCost, measure

__all__ = ["MAX_REPORTED", "Problem", "SchemaOfPeer", "json_validator", "path_text"]

MAX_REPORTED: Final = 10
"""Errors that are listed: enough to correct a value, short enough for a model's context."""
_MOST_SHOWN: Final = 300
"""Characters of one error. It quotes the value, which may be large."""
_MOST_BYTES: Final = 16 * 1024
"""The validator lists all errors of a value or only the first: of a larger value only the first."""
_MOST_QUOTED: Final = 5_000_000
"""Checks times the size of a value. Beyond this, what is wrong with a peer's schema is not explained: every
branch that a value does not fit copies it for its explanation."""
_PATTERN_BYTES: Final = 10 * 1024 * 1024
"""What one compiled pattern of a peer may take; how many of them there may be is limited by their places."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a value."""

    path: tuple[int | str, ...]
    keyword: str
    """The keyword of the schema that is broken; empty if that is not known."""
    message: str


class SchemaOfPeer:
    """A schema that came from the other side: neither it nor the value may cost more than a budget."""

    def __init__(self, schema: Any, *, formats: bool = False) -> None:
        """`UnusableSchema` if the schema cannot be used."""
        import jsonschema_rs  # 20 ms that only schemas need.

        try:
            self._cost = ValidationCost(schema)
            self._validator: Any = jsonschema_rs.validator_for(
                schema,
                retriever=_never_fetch,
                validate_formats=formats,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES),
            )
        except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
            raise UnusableSchema(_shortened(str(error))) from error

    def problems(self, value: Any) -> Iterator[Problem]:
        """What is wrong with a value, one by one; `TooCostly` if it cannot be found out."""
        checks = self._cost.spend(value)
        if self._validator.is_valid(value):
            return
        size = measure(value)
        if checks * (size.nodes + size.letters) > _MOST_QUOTED:
            yield Problem((), "", "does not fit the schema")
            return
        yield from _found(self._validator, value)


def json_validator(
    schema: Any,
    *,
    formats: bool = False,
    trusted: bool = True,
    whole: str = "arguments",
    quotes: bool = True,
) -> Callable[[Any], str | None]:
    """A validator of JSON values: it returns what is wrong, or None. `whole` is what a value is called.

    What is wrong with a trusted schema's value quotes it, unless that is for a log: then `quotes` is False.
    """
    if not trusted:
        return _validator_of_peer(schema, formats=formats, whole=whole)
    import jsonschema_rs  # 20 ms that only schemas need.

    try:
        mask = None if quotes else "the value"
        validator = jsonschema_rs.validator_for(
            schema, retriever=_never_fetch, validate_formats=formats, mask=mask
        )
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise UnusableSchema(str(error)) from error

    def problems(value: Any) -> str | None:
        return None if validator.is_valid(value) else _listed(_found(validator, value), whole)

    return problems


def _validator_of_peer(schema: Any, *, formats: bool, whole: str) -> Callable[[Any], str | None]:
    of_peer = SchemaOfPeer(schema, formats=formats)

    def problems(value: Any) -> str | None:
        try:
            return _listed(of_peer.problems(value), whole)
        except TooCostly as refusal:
            return str(refusal)

    return problems


def _found(validator: Any, value: Any) -> Iterator[Problem]:
    for error in _errors(validator, value):
        keyword = str(error.schema_path[-1]) if error.schema_path else ""
        yield Problem(tuple(error.instance_path), keyword, _shortened(error.message))


def _errors(validator: Any, value: Any) -> Iterable[Any]:
    import jsonschema_rs

    if len(encode(value)) <= _MOST_BYTES:
        return cast("Iterable[Any]", validator.iter_errors(value))
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as first:
        return [first]
    return []


def _listed(problems: Iterator[Problem], whole: str) -> str | None:
    found: list[str] = []
    for problem in problems:
        if len(found) == MAX_REPORTED:
            found.append("and more")
            break
        found.append(f"{path_text(problem.path, whole)}: {problem.message}")
    return "; ".join(found) or None


def _shortened(text: str) -> str:
    """The beginning, which quotes the value, and the end, which says what is wrong with it."""
    if len(text) <= _MOST_SHOWN:
        return text
    return f"{text[: _MOST_SHOWN // 2]} ... {text[-_MOST_SHOWN // 2 :]}"


def path_text(location: tuple[int | str, ...], whole: str = "arguments") -> str:
    """Where in a value, in words."""
    return _shortened(".".join(str(part) for part in location)) or whole


def _never_fetch(uri: str) -> Any:
    raise ValueError(f"$ref {uri[:200]!r} leaves the schema, and references are never fetched")
