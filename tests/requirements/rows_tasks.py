"""Demands of the tasks extension, `io.modelcontextprotocol/tasks` (SEP-2663): of a server, then of a client.

Left out: the SHOULD that lets clients with only the old capability read tasks of 2025 under 2026-07-28. It
contradicts the MUST of TASK-34, which the official suite checks.
"""

from .rows import Row

_SEP = "SEP-2663 § "

TASKS = (
    Row(
        "TASK-01",
        "MUST NOT",
        _SEP + "Capability Negotiation",
        "A request that does not declare the extension never gets a `CreateTaskResult`, whatever others "
        "declared.",
    ),
    Row(
        "TASK-02",
        "MUST",
        _SEP + "Capability Negotiation",
        "Where only a task would do, a client without the extension gets -32021 with the extension in "
        "`data`.",
    ),
    Row(
        "TASK-03",
        "states",
        _SEP + "Capability Negotiation",
        "The extension is advertised by `server/discover`, with an empty object.",
    ),
    Row("TASK-04", "MUST", _SEP + "Polymorphic Results", "A `CreateTaskResult` has `resultType: task`."),
    Row("TASK-05", "MUST NOT", _SEP + "Polymorphic Results", "No other result has it."),
    Row("TASK-06", "states", _SEP + "Supported Methods", "Only `tools/call` becomes a task."),
    Row(
        "TASK-07",
        "states",
        _SEP + "Tasks",
        "A task has the fields that are named for it: `ttlMs` and `pollIntervalMs` in whole "
        "milliseconds, `ttlMs` null for ever, times in ISO 8601.",
    ),
    Row(
        "TASK-08",
        "MUST NOT",
        _SEP + "Task Status; Task Execution Errors",
        "`failed` is for JSON-RPC errors only.",
    ),
    Row(
        "TASK-09",
        "MUST",
        _SEP + "Task Execution Errors",
        "What a tool's result reports as its error completes the task, with that result.",
    ),
    Row(
        "TASK-10",
        "MUST NOT",
        _SEP + "Task Creation",
        "No `CreateTaskResult` leaves before `tasks/get` would find the task, on any replica.",
    ),
    Row(
        "TASK-11",
        "SHOULD",
        _SEP + "Task Creation",
        "What is asked by rounds is settled before the task is created.",
    ),
    Row(
        "TASK-12",
        "MUST",
        _SEP + "Task Polling § Response",
        "`tasks/get` shows a task that works as `working`.",
    ),
    Row(
        "TASK-13",
        "MUST",
        _SEP + "Task Polling § Response",
        "`tasks/get` shows a task that asks as `input_required`, with all that is open in `inputRequests`.",
    ),
    Row(
        "TASK-14",
        "MUST",
        _SEP + "Task Polling § Response; Task Execution Errors",
        "`tasks/get` shows a completed task with exactly the result that the request would have had.",
    ),
    Row(
        "TASK-15",
        "MUST",
        _SEP + "Task Polling § Response",
        "`tasks/get` shows a cancelled task as `cancelled`.",
    ),
    Row(
        "TASK-16",
        "MUST",
        _SEP + "Task Polling § Response; Task Execution Errors",
        "`tasks/get` shows a failed task with the JSON-RPC error in `error`.",
    ),
    Row("TASK-17", "MUST", _SEP + "Task Polling § Response", "`resultType` of `tasks/get` is `complete`."),
    Row(
        "TASK-18",
        "states",
        _SEP + "Task Polling § Response",
        "A task whose time is over may fail, and later be removed.",
    ),
    Row("TASK-19", "MUST", _SEP + "Task Update Requests", "A key is unique over the life of a task."),
    Row(
        "TASK-20",
        "MUST NOT",
        _SEP + "Task Update Requests",
        "A key is not used for another question, nor again after it was answered.",
    ),
    Row(
        "TASK-21",
        "MUST",
        _SEP + "Task Update Requests § Response",
        "`tasks/update` is acknowledged with an empty result, `resultType: complete`.",
    ),
    Row(
        "TASK-22",
        "SHOULD",
        _SEP + "Task Update Requests § Response",
        "Answers to what is not open are ignored: never asked, answered before, or asked anew.",
    ),
    Row(
        "TASK-23",
        "states",
        _SEP + "Task Update Requests § Response",
        "Some of the answers may come before the others.",
    ),
    Row(
        "TASK-24",
        "MUST",
        _SEP + "Task Cancellation § Response",
        "`tasks/cancel` is acknowledged with an empty result, `resultType: complete`.",
    ),
    Row(
        "TASK-25",
        "states",
        _SEP + "Task Cancellation § Response",
        "Cancellation is cooperative: a task may end otherwise, and other tasks go on.",
    ),
    Row(
        "TASK-26",
        "MUST",
        _SEP + "Task Status Notifications",
        "To listen to tasks without the extension is -32021.",
    ),
    Row(
        "TASK-27",
        "states",
        _SEP + "Task Status Notifications",
        "The acknowledgement lists the tasks that will be told of.",
    ),
    Row(
        "TASK-28",
        "states",
        _SEP + "Task Status Notifications",
        "A notification shows the whole task, as `tasks/get` would.",
    ),
    Row(
        "TASK-29",
        "MUST NOT",
        _SEP + "Task Status Notifications",
        "No progress and no log message of a task is sent.",
    ),
    Row(
        "TASK-30",
        "MUST",
        _SEP + "Streamable HTTP: Routing Headers",
        "`Mcp-Name` is the task's id: another one is refused. One that is left out is tolerated.",
    ),
    Row("TASK-31", "MUST", _SEP + "Protocol Errors", "`tasks/get` of an unknown task is -32602."),
    Row(
        "TASK-32",
        "SHOULD",
        _SEP + "Protocol Errors; Ack-only Cancellation",
        "`tasks/update` and `tasks/cancel` of an unknown task are -32602.",
    ),
    Row("TASK-33", "MUST", _SEP + "Protocol Errors", "What goes wrong inside the server is -32603."),
    Row(
        "TASK-34",
        "MUST",
        _SEP + "Protocol Errors",
        "`tasks/get`, `tasks/update` and `tasks/cancel` without the extension are -32021.",
    ),
    Row("TASK-35", "SHOULD", _SEP + "Task Execution Errors", "A failed task says why in `statusMessage`."),
    Row(
        "TASK-36",
        "MUST NOT",
        _SEP + "Backward Compatibility",
        "Under 2025-11-25 the extension enables nothing.",
    ),
    Row(
        "TASK-37",
        "MUST",
        _SEP + "Backward Compatibility",
        "A client that declares only the old capability counts as one without the extension.",
    ),
    Row("TASK-38", "MUST", _SEP + "Backward Compatibility", "`tasks/result` is -32601."),
    Row("TASK-39", "MUST", _SEP + "Backward Compatibility", "The `task` parameter of a call is ignored."),
    Row(
        "TASK-40",
        "MUST NOT",
        _SEP + "Backward Compatibility",
        "The old capabilities are not advertised where the extension is.",
    ),
    Row("TASK-41", "MUST", _SEP + "Security Implications", "Ids of tasks cannot be guessed."),
    Row(
        "TASK-42",
        "MUST",
        _SEP + "Security Implications",
        "Every request about a task is held to who may see it.",
    ),
    Row(
        "TASK-43",
        "states",
        _SEP + "Composition with Multi Round-Trip Requests",
        "Keys and states of rounds and of the task are apart.",
    ),
    Row(
        "TASK-50",
        "MUST",
        _SEP + "Capability Negotiation; Backward Compatibility",
        "A client that declares the extension takes both a result and a task.",
    ),
    Row(
        "TASK-51",
        "MUST",
        _SEP + "Capability Negotiation",
        "A client takes a task in answer to another method for an invalid response.",
    ),
    Row(
        "TASK-52",
        "SHOULD",
        _SEP + "Task Polling",
        "A client polls no more often than `pollIntervalMs`, until the task has ended.",
    ),
    Row(
        "TASK-53",
        "MUST",
        _SEP + "Task Status; Task Update Requests",
        "A client looks at `inputRequests`, and answers what is there by `tasks/update`.",
    ),
    Row(
        "TASK-54",
        "MUST",
        _SEP + "Task Update Requests; Security Implications",
        "A client treats a question of a task as it would any other: the same callbacks, and none where "
        "none was declared.",
    ),
    Row(
        "TASK-55",
        "SHOULD",
        _SEP + "Task Update Requests",
        "A client puts each key to its user once, and answers it once.",
    ),
    Row(
        "TASK-56",
        "MUST",
        _SEP + "Task Update Requests § Request",
        "Each key of `inputResponses` is one that is open.",
    ),
    Row(
        "TASK-57",
        "MUST NOT",
        _SEP + "Task Cancellation",
        "A client does not cancel a task by `notifications/cancelled`.",
    ),
    Row(
        "TASK-58",
        "MUST",
        _SEP + "Streamable HTTP: Routing Headers",
        "A client sets `Mcp-Name` to the task's id, and `Mcp-Method` to the method.",
    ),
    Row(
        "TASK-59",
        "SHOULD",
        _SEP + "Task Polling",
        "Ids of tasks are kept where they survive the client.",
        author=True,
        why="Where that is, only the application knows; `TaskHandle.to_json` gives it the text.",
    ),
)
