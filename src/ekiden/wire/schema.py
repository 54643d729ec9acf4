"""JSON Schemas as validators: 2020-12 unless `$schema` says otherwise.

No `$ref` is ever fetched: one that leaves its document makes the schema unusable. A schema
from a peer also has a budget (`wire.validation_cost`), because a few lines of it can mean years of checking.
"""

from collections.abc import Callable
from typing import Any, Final

from ekiden.errors import TooCostly, UnusableSchema
from ekiden.wire.validation_cost import ValidationCost

__all__ = ["MAX_REPORTED", "json_validator", "path_text"]

MAX_REPORTED: Final = 10
"""Errors that are listed: enough to correct a value, short enough for a model's context."""


def json_validator(
    schema: Any, *, formats: bool = False, trusted: bool = True
) -> Callable[[Any], str | None]:
    """A validator of JSON values: it returns what is wrong, or None."""
    import jsonschema_rs  # 20 ms that only schemas need.

    try:
        validator = jsonschema_rs.validator_for(schema, retriever=_never_fetch, validate_formats=formats)
        cost = None if trusted else ValidationCost(schema)
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
        raise UnusableSchema(str(error)) from error

    def problems(value: Any) -> str | None:
        if cost is not None:
            try:
                cost.spend(value)
            except TooCostly as refusal:
                return str(refusal)
        found: list[str] = []
        for problem in validator.iter_errors(value):
            if len(found) == MAX_REPORTED:
                found.append("and more")
                break
            found.append(f"{path_text(tuple(problem.instance_path))}: {problem.message}")
        return "; ".join(found) or None

    return problems


def path_text(location: tuple[int | str, ...]) -> str:
    """Where in a value, in words."""
    return ".".join(str(part) for part in location) or "arguments"


def _never_fetch(uri: str) -> Any:
    raise ValueError(f"$ref {uri!r} leaves the schema, and references are never fetched")
