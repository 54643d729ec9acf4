"""What the clients are to do with `server.py`, and what they must see.

A step is what a client does; next to it stands its outcome, as both clients report it: the result
without what every result bears (`resultType`, the server's name in `_meta`), or the error.
"""

from typing import Any

Json = dict[str, Any]

VERSION = "2026-07-28"
CLIENT = {"name": "peer", "version": "9.8.7"}
SERVER_INFO = {
    "name": "station",
    "version": "1.2.3",
    "title": "The station",
    "description": "One of everything",
    "websiteUrl": "https://station.example/",
    "icons": [{"src": "https://station.example/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}],
}
CAPABILITIES = {
    "logging": {},
    "completions": {},
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
PUBLIC_MINUTE = {"ttlMs": 60_000, "cacheScope": "public"}
UNCACHED = {"ttlMs": 0, "cacheScope": "private"}

# Content

IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "UklGRiQAAAA=", "mimeType": "audio/wav"}
TEXT_RESOURCE = {
    "type": "resource",
    "resource": {"uri": "note://inside", "mimeType": "text/plain", "text": "inside"},
}
BLOB_RESOURCE = {
    "type": "resource",
    "resource": {"uri": "note://blob", "mimeType": "application/x-blob", "blob": "AAEC"},
}
LINK = {
    "type": "resource_link",
    "uri": "note://plain",
    "name": "plain",
    "description": "The plain note",
    "mimeType": "text/plain",
    "size": 13,
}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def content(*blocks: Json) -> Json:
    return {"result": {"content": list(blocks)}}


def structured(data: Any, spelled: str) -> Json:
    return {"result": {"content": [text(spelled)], "structuredContent": data}}


def tool_error(words: str) -> Json:
    return {"result": {"content": [text(words)], "isError": True}}


def invalid_params(message: str, **data: Any) -> Json:
    return {"error": {"code": -32602, "message": message, **({"data": data} if data else {})}}


def call(name: str, meta: Json | None = None, /, **arguments: Any) -> Json:
    step: Json = {"do": "call", "name": name}
    if arguments:
        step["arguments"] = arguments
    if meta is not None:
        step["meta"] = meta
    return step


CALLS: dict[str, tuple[Json, Json]] = {
    "text": (call("text", name="Ōta"), content(text("Grüße, Ōta!"))),
    "text with all arguments": (call("text", name="Bo", times=2), content(text("Grüße, Bo! Grüße, Bo!"))),
    "image": (call("image"), content(IMAGE)),
    "audio": (call("audio"), content(AUDIO)),
    "embedded resource": (call("embedded"), content(TEXT_RESOURCE)),
    "resource link": (call("link"), content(LINK)),
    "several at once": (
        call("everything"),
        content(
            text("bare"),
            {**text("annotated"), "annotations": {"audience": ["user"], "priority": 0.5}},
            IMAGE,
            AUDIO,
            BLOB_RESOURCE,
            LINK,
        ),
    ),
    "nothing": (call("nothing"), content()),
    "model": (
        call("train", number=7),
        structured(
            {"number": 7, "stops": ["Ōmiya", "Sendai"], "delay": None},
            '{"number":7,"stops":["Ōmiya","Sendai"],"delay":null}',
        ),
    ),
    "list": (call("platforms"), structured([1, 2, 3], "[1,2,3]")),
    "plain function": (call("blocking", number=21), content(text("42 from another thread"))),
    "client": (
        call("caller", {"example.org/extra": [1, {"two": None}]}),
        structured(
            {"version": VERSION, "name": "peer", "capabilities": {}, "extra": [1, {"two": None}]},
            '{"version":"2026-07-28","name":"peer","capabilities":{},"extra":[1,{"two":null}]}',
        ),
    ),
}

FAILURES: dict[str, tuple[Json, Json]] = {
    "tool error": (call("refuses"), tool_error("The ticket office is closed.")),
    "exception": (call("breaks"), tool_error("Tool 'breaks' failed")),
    "missing argument": (
        call("train"),
        tool_error("Invalid arguments for tool 'train': number: Field required"),
    ),
    "ill-typed and unknown arguments": (
        call("train", number="many", colour="red"),
        tool_error(
            "Invalid arguments for tool 'train': number: Input should be a valid integer; "
            "colour: Extra inputs are not permitted"
        ),
    ),
    "unknown tool": (call("absent"), invalid_params("Unknown tool: absent")),
    "unknown resource": (
        {"do": "read", "uri": "note://absent"},
        invalid_params("Resource not found: note://absent", uri="note://absent"),
    ),
    "variable of the wrong type": (
        {"do": "read", "uri": "station://Ueno/platform/first"},
        invalid_params(
            "Resource not found: station://Ueno/platform/first", uri="station://Ueno/platform/first"
        ),
    ),
    "unknown prompt": ({"do": "get", "name": "absent"}, invalid_params("Unknown prompt: absent")),
    "missing prompt argument": (
        {"do": "get", "name": "itinerary"},
        invalid_params("Invalid arguments for prompt 'itinerary': city: Field required"),
    ),
    "completion for an unknown prompt": (
        {
            "do": "complete",
            "ref": {"type": "ref/prompt", "name": "absent"},
            "argument": {"name": "city", "value": ""},
        },
        invalid_params("Unknown prompt: absent"),
    ),
}


def contents(*items: Json, **cache: Any) -> Json:
    return {"result": {"contents": list(items), **(cache or UNCACHED)}}


READS: dict[str, tuple[Json, Json]] = {
    "text": (
        {"do": "read", "uri": "note://plain"},
        contents({"uri": "note://plain", "mimeType": "text/markdown", "text": "# Grüße"}),
    ),
    "bytes": (
        {"do": "read", "uri": "note://binary"},
        contents({"uri": "note://binary", "mimeType": "application/x-bytes", "blob": "AAECAwQF"}),
    ),
    "data with a caching hint": (
        {"do": "read", "uri": "note://timetable"},
        contents(
            {"uri": "note://timetable", "mimeType": "application/json", "text": '{"departures":[7,19]}'},
            ttlMs=5_000,
            cacheScope="public",
        ),
    ),
    "template": (
        {"do": "read", "uri": "station://Ueno/platform/13"},
        contents(
            {"uri": "station://Ueno/platform/13", "mimeType": "text/plain", "text": "platform 13 of Ueno"}
        ),
    ),
    "percent-encoded variable": (
        {"do": "read", "uri": "station://K%C3%B6ln/platform/1"},
        contents(
            {"uri": "station://K%C3%B6ln/platform/1", "mimeType": "text/plain", "text": "platform 1 of Köln"}
        ),
    ),
    "variable beyond ASCII": (
        {"do": "read", "uri": "station://東京/platform/1"},
        contents(
            {"uri": "station://東京/platform/1", "mimeType": "text/plain", "text": "platform 1 of 東京"}
        ),
    ),
    "query left out": (
        {"do": "read", "uri": "search://trains"},
        contents({"uri": "search://trains", "mimeType": "text/plain", "text": "10 trains to anywhere"}),
    ),
    "query": (
        {"do": "read", "uri": "search://trains?to=Nara&limit=3"},
        contents(
            {"uri": "search://trains?to=Nara&limit=3", "mimeType": "text/plain", "text": "3 trains to Nara"}
        ),
    ),
    "several contents": (
        {"do": "read", "uri": "file://docs/a/b"},
        contents(
            {"uri": "file://docs/a/b#head", "mimeType": "text/plain", "text": "head"},
            {"uri": "file://docs/a/b#body", "mimeType": "text/plain", "text": "body"},
        ),
    ),
}


def messages(description: str, *items: tuple[str, Json]) -> Json:
    said = [{"role": role, "content": block} for role, block in items]
    return {"result": {"description": description, "messages": said}}


PROMPTS: dict[str, tuple[Json, Json]] = {
    "without arguments": (
        {"do": "get", "name": "motto"},
        messages("A prompt without arguments.", ("user", text("Be on time."))),
    ),
    "with the required argument": (
        {"do": "get", "name": "itinerary", "arguments": {"city": "Nara"}},
        messages(
            "Plan a journey.",
            ("user", text("Plan 2 days in Nara, Japan.")),
            ("assistant", text("With pleasure.")),
        ),
    ),
    "with all arguments": (
        {"do": "get", "name": "itinerary", "arguments": {"city": "Sète", "country": "France", "days": "5"}},
        messages(
            "Plan a journey.",
            ("user", text("Plan 5 days in Sète, France.")),
            ("assistant", text("With pleasure.")),
        ),
    ),
    "with an image, and a name beyond ASCII": (
        {"do": "get", "name": "grüßen"},
        messages(
            "A prompt with an image, and a name that no HTTP header can carry as it is.",
            ("user", text("Who is this?")),
            ("user", IMAGE),
        ),
    ),
}


def complete(ref: Json, name: str, value: str, **context: str) -> Json:
    step = {"do": "complete", "ref": ref, "argument": {"name": name, "value": value}}
    return {**step, "context": context} if context else step


def values(*given: str, total: int, more: bool = False) -> Json:
    return {"result": {"completion": {"values": list(given), "total": total, "hasMore": more}}}


ITINERARY = {"type": "ref/prompt", "name": "itinerary"}
PLATFORM = {"type": "ref/resource", "uri": "station://{city}/platform/{number}"}

COMPLETIONS: dict[str, tuple[Json, Json]] = {
    "by the beginning": (complete(ITINERARY, "city", "S"), values("Sapporo", "Sendai", total=2)),
    "with other arguments": (complete(ITINERARY, "city", "S", country="France"), values("Sète", total=1)),
    "without a match": (complete(ITINERARY, "city", "Z"), values(total=0)),
    "the first hundred": (
        complete(PLATFORM, "number", "1"),
        values(*(f"1{number}" for number in range(100)), total=250, more=True),
    ),
    "for an argument without suggestions": (
        complete(PLATFORM, "city", "T"),
        {"result": {"completion": {"values": []}}},
    ),
}

# Around a call

PROGRESS = {"do": "follow", "name": "travels", "progress": 3, "then": call("arrives")}
PROGRESS_SEEN = [
    {"progress": 1},
    {"progress": 1.5, "total": 3},
    {"progress": 3, "total": 3, "message": "there"},
]

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
TALKS = {
    "silence": call("talks", topic="silence"),
    "warnings": call("talks", {LOG_LEVEL: "warning"}, topic="warnings"),
    "infos": call("talks", {LOG_LEVEL: "info"}, topic="infos"),
    "details": call("talks", {LOG_LEVEL: "debug"}, topic="details"),
}
LOGS = [
    {"level": "warning", "data": "warnings: end"},
    {"level": "info", "data": {"topic": "infos"}, "logger": "station.talks"},
    {"level": "warning", "data": "infos: end"},
    {"level": "debug", "data": "details: detail", "logger": "station.talks"},
    {"level": "info", "data": {"topic": "details"}, "logger": "station.talks"},
    {"level": "warning", "data": "details: end"},
]

HEADERS: dict[str, tuple[Json, Json]] = {
    "a word": (
        call("routed", region="eu-west-1"),
        {"mcp-name": "routed", "mcp-param-region": "eu-west-1", "mcp-param-track": None},
    ),
    "beyond ASCII, and a number": (
        call("routed", region="日本", track=7),
        {"mcp-name": "routed", "mcp-param-region": "=?base64?5pel5pys?=", "mcp-param-track": "7"},
    ),
}

# Lists


def tool(name: str, description: str, /, **properties: Json) -> Json:
    schema: Json = {"type": "object", "additionalProperties": False, "properties": properties}
    if required := [key for key, value in properties.items() if "default" not in value]:
        schema["required"] = required
    return {"name": name, "description": description, "inputSchema": schema}


GREET = tool(
    "text",
    "Greet somebody.",
    name={"type": "string", "description": "Who is greeted."},
    times={"type": "integer", "description": "How often.", "default": 1},
)
TRAIN_SCHEMA = {
    "type": "object",
    "description": "A train.",
    "properties": {
        "number": {"type": "integer"},
        "stops": {"type": "array", "items": {"type": "string"}, "description": "In the order of travel"},
        "delay": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
    },
    "required": ["number", "stops"],
}

TOOLS = [
    {
        **GREET,
        "title": "Text",
        "annotations": {"readOnlyHint": True, "idempotentHint": True},
        "_meta": {"example.org/colour": "blue"},
    },
    tool("image", "An image."),
    tool("audio", "A sound."),
    tool("embedded", "A resource inside the result."),
    tool("link", "A link to a resource."),
    tool("everything", "All kinds of content at once."),
    tool("nothing", "No content at all."),
    {
        **tool("train", "A model as structured output.", number={"type": "integer"}),
        "outputSchema": TRAIN_SCHEMA,
    },
    {
        **tool("platforms", "A list as structured output."),
        "outputSchema": {"type": "array", "items": {"type": "integer"}},
    },
    tool("refuses", "Fail in a way that the caller should read."),
    tool("breaks", "Fail in a way that the caller should not read."),
    tool("blocking", "A plain function: it runs in a thread of its own.", number={"type": "integer"}),
    tool("travels", "Report progress, with and without a total and a message; end once `arrives` is called."),
    tool("arrives", "Let `travels` end: the client has seen its progress while it was running."),
    tool("talks", "Log on several levels.", topic={"type": "string"}),
    {
        **tool(
            "routed",
            "Parameters that are mirrored into HTTP headers, and the headers that came.",
            region={"type": "string", "x-mcp-header": "Region"},
            track={"type": "integer", "x-mcp-header": "Track", "default": 0},
        ),
        "outputSchema": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    },
    {
        **tool("caller", "What the request says about its client."),
        "outputSchema": {"type": "object", "additionalProperties": True},
    },
    tool("meets", "Wait for a second call: both end only if they run at the same time."),
    tool("waits", "Wait until the client cancels."),
    tool("was_abandoned", "Return once `waits` was cancelled."),
    tool(
        "changes",
        "Change a list or the counter, for those who subscribed to it. Changed again, a list is as before.",
        what={"type": "string"},
    ),
    tool("closes", "Interrupt the server, as its operator would."),
]
PROMPT_LIST = [
    {"name": "motto", "title": "Motto", "description": "A prompt without arguments."},
    {
        "name": "itinerary",
        "description": "Plan a journey.",
        "arguments": [
            {"name": "city", "description": "Where to", "required": True},
            {"name": "country", "required": False},
            {"name": "days", "required": False},
        ],
    },
    {
        "name": "grüßen",
        "description": "A prompt with an image, and a name that no HTTP header can carry as it is.",
    },
]
RESOURCES = [
    {
        "uri": "note://plain",
        "name": "plain_note",
        "title": "Plain",
        "description": "A text.",
        "mimeType": "text/markdown",
        "size": 9,
    },
    {
        "uri": "note://binary",
        "name": "binary_note",
        "description": "Some bytes.",
        "mimeType": "application/x-bytes",
        "annotations": {"audience": ["assistant"], "priority": 1.0},
    },
    {"uri": "note://timetable", "name": "timetable", "description": "Data, sent as JSON."},
    {"uri": "note://counter", "name": "counter", "description": "How often it was bumped."},
]
TEMPLATES = [
    {
        "uriTemplate": "station://{city}/platform/{number}",
        "name": "platform",
        "title": "Platform",
        "description": "A platform of a station.",
        "mimeType": "text/plain",
    },
    {
        "uriTemplate": "search://trains{?to,limit}",
        "name": "search",
        "description": "A search with optional parts.",
    },
    {"uriTemplate": "file://docs/{+path}", "name": "document", "description": "Several contents."},
]
LISTS = {"tools": TOOLS, "prompts": PROMPT_LIST, "resources": RESOURCES, "resourceTemplates": TEMPLATES}
LATE_TOOL = {**GREET, "name": "late_tool"}
LATE_PROMPT = {"name": "late_prompt", "description": "A prompt without arguments."}

# Subscriptions

COUNTER_ONLY = {"resourceSubscriptions": ["note://counter"]}
ALL_CHANGES = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["note://counter"],
}
EVENTS = [
    {"kind": "ToolsListChanged"},
    {"kind": "PromptsListChanged"},
    {"kind": "ResourcesListChanged"},
    {"kind": "ResourceUpdated", "uri": "note://counter"},
]


def change(*kinds: str) -> dict[str, Json]:
    return {kind: call("changes", what=kind) for kind in kinds}


GROUPS = {
    "calls": CALLS,
    "failures": FAILURES,
    "reads": READS,
    "prompts": PROMPTS,
    "completions": COMPLETIONS,
    "headers": HEADERS,
}

PLAN: Json = {
    "client": CLIENT,
    "version": VERSION,
    "pinned": call("text", name="Aki"),
    "unlisted": {"routed": call("routed", region="eu")},
    "steps": {
        **{f"{group}: {name}": step for group, steps in GROUPS.items() for name, (step, _) in steps.items()},
        **TALKS,
        "progress": PROGRESS,
    },
    "logs": len(LOGS),
    "together": [call("meets"), call("meets")],
    "abandon": {"name": "waits", "then": call("was_abandoned")},
    "narrow": {"filter": COUNTER_ONLY, "steps": change("resources", "counter"), "events": 1},
    "wide": {
        "filter": ALL_CHANGES,
        "steps": change("tools", "prompts", "resources", "counter"),
        "events": len(EVENTS),
        "after": {
            "new tool": call("late_tool", name="Mio"),
            "counter": {"do": "read", "uri": "note://counter"},
            "closes": call("closes"),
        },
    },
}
