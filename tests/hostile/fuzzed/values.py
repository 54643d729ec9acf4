"""What hostile servers say: honest messages with something wrong somewhere, and questions that are traps."""

import random
from collections.abc import Callable
from typing import Any, TypeAlias

Json: TypeAlias = Any

POISON = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u061c\u200b\r\nekiden: FORGED\u2028ekiden: FORGED"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TIMES = {"createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z"}
STATUSES = ["working", "input_required", "completed", "failed", "cancelled", "thinking"]


def odd(dice: random.Random) -> Json:
    """A value that nobody expects."""
    return dice.choice(
        [
            *(None, True, 0, -1, 2**63, 1e308, -0.0, "", POISON, "x" * 5000),
            *([], {}, [[]], {"": {}}, ["a"] * 500, nested(dice.choice([5, 60, 127]))),
        ]
    )


def nested(depth: int) -> Json:
    """Lists and objects in each other."""
    value: Json = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def mutated(dice: random.Random, value: Json) -> Json:
    """The same value with something else in one place, somewhere on a random way down."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.2:
        return odd(dice)
    if isinstance(value, list):
        at = dice.randrange(len(value))
        return dice.choice(
            [[*value[:at], mutated(dice, value[at]), *value[at + 1 :]], value[:at], value[:3] * 100]
        )
    name = dice.choice(list(value))
    without = {key: member for key, member in value.items() if key != name}
    fields = ["_meta", "type", "resultType", POISON, "nextCursor", "ttlMs"]
    return dice.choice(
        [{**value, name: mutated(dice, value[name])}] * 4
        + [without, {**value, dice.choice(fields): odd(dice)}]  # Something is left out, or too much.
    )


def hostile_schema(dice: random.Random) -> Json:
    """A schema that is a trap."""
    traps: list[Callable[[], Json]] = [
        lambda: {"type": "string", "pattern": "((?=(a*)*(a*)*(a*)*x)|.)*y", "default": "a" * 20_000},
        lambda: {"type": "string", "pattern": "1[01]{5000}[23]", "default": "01" * 20_000},
        lambda: {"type": "string", "pattern": "(((a{100}){100}){100}){100}"},
        lambda: _wrapped(30, "allOf", {"unevaluatedProperties": False}),
        lambda: _wrapped(100, "anyOf", {"unevaluatedItems": False}),
        lambda: {"$ref": "#"},
        lambda: {"$ref": "https://evil.example/schema.json"},
        lambda: {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}, "$ref": "#/$defs/a"},
        lambda: {"enum": [{"a": number} for number in range(500)]},
        lambda: {"anyOf": [{"const": number, "title": POISON} for number in range(500)]},
        lambda: {"type": "string", "format": "regex", "default": "(" * 1000},
        lambda: {"type": POISON, "title": POISON, "description": POISON},
        lambda: {"type": ["string", POISON], "minLength": -1},
        lambda: {"$id": "https://evil.example/a", "$anchor": POISON},
        lambda: {"$schema": "https://evil.example/dialect"},
        lambda: odd(dice),
    ]
    return dice.choice(traps)()


def _wrapped(depth: int, word: str, beside: dict[str, Any]) -> Json:
    schema: Json = {"properties": {"a": {}}}
    for _ in range(depth):
        schema = {word: [schema], **beside}
    return schema


def question(dice: random.Random) -> Json:
    """Something to ask."""
    trap = hostile_schema(dice)
    properties = {f"f{number}": trap for number in range(dice.choice([0, 1, 1, 2, 201]))}
    form = {
        "mode": "form",
        "message": POISON,
        "requestedSchema": {"type": "object", "properties": properties},
    }
    page = {"mode": "url", "message": "look", "url": dice.choice(_URLS), "elicitationId": "1"}
    said = {"role": "user", "content": {"type": "text", "text": POISON}}
    return dice.choice(
        [
            {"method": "elicitation/create", "params": form},
            {"method": "elicitation/create", "params": page},
            {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": 5}},
            {"method": "roots/list"},
            {"method": POISON},
        ]
    )


_URLS = [
    r"https://evil.example\@bank.example/",
    "javascript:alert(1)",
    "file:///etc/passwd",
    POISON,
    "https://",
]


def questions(dice: random.Random) -> Json:
    """Some questions, or very many."""
    asked = question(dice)
    return dice.choice(
        [{}, {"0": asked}, {"0": asked, "1": question(dice)}] * 3 + [{str(n): asked for n in range(101)}]
    )


def task(dice: random.Random) -> Json:
    """A task in some state, which has nothing to do with the one before."""
    status = dice.choice(STATUSES)
    made: dict[str, Any] = {
        "taskId": dice.choice(["t", "t", "t", "other", POISON]),
        "status": status,
        "statusMessage": dice.choice([POISON, "1/2", "9" * 500 + "/2", "(" * 1000 + "1/2"]),
        "ttlMs": dice.choice([None, 0, -5, 60_000, 2**63]),
        "pollIntervalMs": dice.choice([None, 0, -1, 5, 10**15, 1.5]),
        **TIMES,
    }
    if status == "input_required":
        made["inputRequests"] = questions(dice)
    if status == "completed":
        made["result"] = tool_result(dice)
    if status == "failed":
        made["error"] = {"code": dice.choice([-32603, "x", None]), "message": POISON}
    return made


def tool_result(dice: random.Random) -> Json:
    """The result of a tool."""
    blocks = [
        {"type": "text", "text": POISON},
        {"type": "image", "data": dice.choice(["aGk=", "?"]), "mimeType": POISON},
        {"type": "resource_link", "uri": POISON, "name": POISON},
        {"type": "resource", "resource": {"uri": POISON, "text": POISON}},
        {"type": POISON},
    ]
    result: dict[str, Any] = {"content": dice.choices(blocks, k=dice.choice([0, 1, 5]))}
    if dice.random() < 0.5:
        result["structuredContent"] = dice.choice([odd(dice), [{POISON: POISON}], "a" * 20_000, {"a": 1}])
    return result


def result_for(dice: random.Random, method: str, number: int) -> Json:
    """What would be an honest result, as far as its form goes; `number` makes cursors and states new."""
    if method in _LISTS:
        return _LISTS[method](dice, dice.choice([0, 1, 2, 2, 300])) | dice.choice(
            [{}, {}, {"nextCursor": str(number)}]
        )
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": POISON}
    if method == "initialize":
        version = dice.choice(["2025-11-25", "2025-11-25", "2025-06-18", "2024-11-05", "1999-01-01"])
        return {
            "protocolVersion": version,
            "capabilities": {},
            "serverInfo": {"name": POISON, "version": "1"},
        }
    if method.startswith("tasks/"):
        return task(dice)
    said = {"role": dice.choice(["user", POISON]), "content": {"type": "text", "text": POISON}}
    results = {
        "prompts/get": {"messages": [said]},
        "resources/read": {"contents": [{"uri": POISON, "text": POISON}]},
    }
    return _called(dice, number, results.get(method) or tool_result(dice))


def _tools(dice: random.Random, many: int) -> dict[str, Any]:
    tool = {**_NAMED, "inputSchema": hostile_schema(dice) if dice.random() < 0.3 else SCHEMA}
    if dice.random() < 0.5:
        tool["outputSchema"] = hostile_schema(dice)
    deed = {"name": "deed", "inputSchema": SCHEMA}
    if dice.random() < 0.5:
        deed["outputSchema"] = hostile_schema(dice)
    return {"tools": [deed, *([tool] * many)]}


_NAMED = {"name": POISON, "title": POISON, "description": POISON}
_LISTS: dict[str, Callable[[random.Random, int], dict[str, Any]]] = {
    "tools/list": _tools,
    "prompts/list": lambda dice, many: {
        "prompts": [{**_NAMED, "arguments": [{"name": POISON}]}, {"name": "deed"}] * many
    },
    "resources/list": lambda dice, many: {
        "resources": [{**_NAMED, "uri": POISON, "mimeType": POISON}] * many
    },
    "resources/templates/list": lambda dice, many: {
        "resourceTemplates": [{**_NAMED, "uriTemplate": "x://" + "{a}a" * 30}] * many
    },
}


def _called(dice: random.Random, number: int, result: Json) -> Json:
    """The end of a call, one round of it, or a task."""
    kind = dice.choice(["complete", "complete", "input_required", "task"])
    if kind == "input_required":
        requests = {str(at): question(dice) for at in range(dice.choice([0, 1, 2, 150]))}
        return {
            "resultType": kind,
            "inputRequests": requests,
            "requestState": dice.choice(["s", str(number)]),
        }
    if kind == "task":
        return {"resultType": kind, **task(dice)}
    return {"resultType": kind, **result}
