"""What the MCP Registry asks of a `server.json` (format of 2025-12-11), for the parts that ekiden writes.

Written from the format's schema and from what the registry checks beyond it, and stricter: a part that is not
named here is an error.
"""

from typing import Any

import jsonschema_rs

TEXT = {"type": "string", "minLength": 1}
SHORT = {**TEXT, "maxLength": 100}
URL = {"type": "string", "pattern": r"^https://[!-~]+$"}
REPOSITORY = {"type": "string", "pattern": r"^https://(github|gitlab)\.com/[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$"}
RELEASE = r"^https://(github\.com/[^/]+/[^/]+/releases/download/[^/]+|gitlab\.com/\S+/-/\w+/[^/]+(/downloads)?)/[^/]+$"
SIDE = "[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]"


def exactly(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object with these members and no other."""
    both = {**required, **(optional or {})}
    return {"type": "object", "required": [*required], "properties": both, "additionalProperties": False}


def many(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": of}


VARIABLE = exactly(
    {"name": TEXT},
    {"value": {"type": "string"}, "isRequired": {"type": "boolean"}, "isSecret": {"type": "boolean"}},
)
STDIO = exactly({"type": {"const": "stdio"}})
PYPI = exactly(
    {
        "registryType": {"const": "pypi"},
        "identifier": TEXT,
        "version": {**TEXT, "not": {"const": "latest"}},
        "transport": STDIO,
    },
    {
        "runtimeHint": {"const": "uvx"},
        "environmentVariables": many(VARIABLE),
    },
)
MCPB = exactly(
    {
        "registryType": {"const": "mcpb"},
        "identifier": {"type": "string", "pattern": RELEASE, "allOf": [{"pattern": "[mM][cC][pP]"}]},
        "fileSha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
        "transport": STDIO,
    },
    {"environmentVariables": many(VARIABLE)},
)
ENTRY = exactly(
    {
        "$schema": URL,
        "name": {"type": "string", "maxLength": 200, "pattern": f"^{SIDE}/{SIDE}$"},
        "description": SHORT,
        "version": {**TEXT, "maxLength": 255, "pattern": r"^[^\^~<>=*\s]+$"},
    },
    {
        "title": SHORT,
        "repository": exactly({"url": REPOSITORY, "source": {"enum": ["github", "gitlab"]}}),
        "websiteUrl": URL,
        "packages": many({"oneOf": [PYPI, MCPB]}),
        "remotes": many(exactly({"type": {"const": "streamable-http"}, "url": URL})),
    },
)


def held_to_the_rules(entry: Any) -> Any:
    """The same entry, if the registry would take it."""
    jsonschema_rs.validator_for(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **ENTRY}
    ).validate(entry)
    return entry
