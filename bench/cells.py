"""What is measured, and the floors that hold for it: the table of the design's budgets.

A cell is one entry of `CELLS`. Its subject is always ekiden; the ratio is the baseline's CPU time
per request over the subject's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.exchange import VERSION, Call
from bench.failure import BenchFailure

Ask = Callable[[Call], dict[str, Any]]
"""Sends a call to the server under test, and gives the result."""

FEW: Final = 3
"""Tools registered where their number does not matter: `greet`, and the two that ask."""

_SEALED: Final = 64
"""Characters that a state has at least when it is sealed; what the tools write into theirs is shorter."""


@dataclass(frozen=True)
class Setup:
    """A contestant, by its name in `servers.CONTESTANTS`, and how it is started."""

    contestant: str
    options: tuple[str, ...] = ()
    python: str = ""
    """Another Python than that of the benchmark, such as 3.13."""

    @property
    def label(self) -> str:
        return " ".join((self.contestant, *self.options, *([f"on {self.python}"] if self.python else [])))


@dataclass(frozen=True)
class Cell:
    """One kind of work."""

    key: str
    title: str
    prepare: Callable[[Ask], Call]
    """The call that is repeated. It may talk to the server before: a second round needs a first."""
    check: Callable[[dict[str, Any]], bool]
    """Whether a result is right."""
    tools: int = FEW
    options: tuple[str, ...] = ()
    """How ekiden is started, besides the number of tools."""
    baseline: Setup | None = None
    """What the ratio is taken to; None is the ceiling."""
    floor: float | None = None
    """The least ratio to the baseline."""
    times_mcp: float | None = None
    """The least multiple of the official server; None leaves the peers out."""
    python: str = ""
    """Where it is measured on another Python, to be reported: the floors are for that of the benchmark."""
    host: Setup | None = None
    """The subject, if it is not a server of ekiden alone: one of another SDK is in it, or around it."""

    @property
    def subject(self) -> Setup:
        if self.host is not None:
            return self.host
        return Setup("ekiden", (*_tools(self.tools), *self.options), self.python)

    @property
    def reference(self) -> Setup:
        return self.baseline or Setup("bare", python=self.python)

    @property
    def peers(self) -> tuple[Setup, ...]:
        if self.times_mcp is None:
            return ()
        mcp = Setup("mcp", _tools(self.tools), self.python)
        return (mcp,) if self.python else (mcp, Setup("fastmcp", _tools(self.tools)))

    def accept(self, result: dict[str, Any]) -> None:
        if not self.check(result):
            raise BenchFailure(f"cell {self.key}: a wrong result: {str(result)[:300]}")


def _tools(count: int) -> tuple[str, ...]:
    return "--tools", str(count)


def _always(call: Call) -> Callable[[Ask], Call]:
    return lambda ask: call


def _answer(ask: Ask) -> Call:
    """The second round: the first is made once, and its state is good for as often as it is needed."""
    asked = ask(_CONFIRM)
    answers = {key: {"action": "accept", "content": {"ok": True}} for key in asked["inputRequests"]}
    return replace(
        _CONFIRM,
        params={**_CONFIRM.params, "inputResponses": answers, "requestState": asked["requestState"]},
    )


def _greets(result: dict[str, Any]) -> bool:
    blocks = result.get("content", [])
    return not result.get("isError") and [block.get("text") for block in blocks] == ["Hello, World!"]


def _asks(result: dict[str, Any]) -> bool:
    methods = [request.get("method") for request in result.get("inputRequests", {}).values()]
    sealed = len(result.get("requestState", "")) >= _SEALED
    return result.get("resultType") == "input_required" and methods == ["elicitation/create"] and sealed


def _lists_fifty(result: dict[str, Any]) -> bool:
    names = [tool["name"] for tool in result.get("tools", [])]
    return len(set(names)) == len(names) == 50 and "greet" in names and "nextCursor" not in result


def _discovers(result: dict[str, Any]) -> bool:
    return VERSION in result.get("supportedVersions", []) and "tools" in result.get("capabilities", {})


_TASKS: Final[dict[str, Any]] = {
    "elicitation": {"form": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}


def _waiting_task(ask: Ask) -> Call:
    """Look at a task that waits for an answer."""
    created = ask(Call("tools/call", {"name": "waits", "arguments": {}}, "waits", _TASKS))
    task_id = str(created["taskId"])
    look = Call("tasks/get", {"taskId": task_id}, task_id, _TASKS)
    for _ in range(1000):
        if ask(look)["status"] == "input_required":
            return look
    raise BenchFailure("the task does not come to its question")


def _waits(result: dict[str, Any]) -> bool:
    return result.get("status") == "input_required" and len(result["inputRequests"]) == 1


DISCOVER: Final = Call("server/discover")
_GREET: Final = _always(Call("tools/call", {"name": "greet", "arguments": {"name": "World"}}, name="greet"))
_CONFIRM: Final = Call(
    "tools/call",
    {"name": "confirm", "arguments": {"name": "World"}},
    name="confirm",
    capabilities={"elicitation": {"form": {}}},
)
_PLAIN: Final = Setup("ekiden", _tools(FEW))

_MOUNTED: Final = ("--mounted",)

GUARDED: Final = "--jwt"
"""The option of a server that wants an access token with every request."""

_CELLS: Final = (
    Cell("A", "`tools/call`, trivial tool", _GREET, _greets, floor=0.85, times_mcp=7),
    Cell("B", "first round that asks", _always(_CONFIRM), _asks, floor=0.50, times_mcp=6),
    Cell("C", "second round, with the answer", _answer, _greets, floor=0.45, times_mcp=6),
    Cell(
        "D", "`tools/list`, 50 tools", _always(Call("tools/list")), _lists_fifty, 50, floor=0.95, times_mcp=20
    ),
    Cell("E", "`server/discover`", _always(DISCOVER), _discovers, floor=0.95, times_mcp=5),
    Cell(
        "G",
        "`tasks/get`, SQLite",
        _waiting_task,
        _waits,
        options=("--store", "temporary"),
        floor=0.50,
    ),
    Cell("A1000", "A with 1,000 tools registered", _GREET, _greets, 1000, baseline=_PLAIN, floor=0.95),
    Cell("A+mw", "A with one middleware", _GREET, _greets, options=("--middleware",), baseline=_PLAIN),
    Cell(
        "A+jwt",
        "A with a JWT, which is verified once and then known",
        _GREET,
        _greets,
        options=(GUARDED,),
        baseline=_PLAIN,
        floor=0.60,
    ),
    Cell("A+asgi", "A, mounted in another's uvicorn", _GREET, _greets, options=_MOUNTED, floor=0.60),
    Cell("B+asgi", "B, mounted", _always(_CONFIRM), _asks, options=_MOUNTED, floor=0.40),
    Cell("C+asgi", "C, mounted", _answer, _greets, options=_MOUNTED, floor=0.40),
    Cell("D+asgi", "D, mounted", _always(Call("tools/list")), _lists_fifty, 50, options=_MOUNTED, floor=0.80),
    Cell("E+asgi", "E, mounted", _always(DISCOVER), _discovers, options=_MOUNTED, floor=0.80),
    *(
        Cell(
            f"{key}/{sdk}",
            f"{title}, an unmodified {sdk} server by `ekiden run`",
            prepare,
            check,
            baseline=Setup(f"their-{sdk}"),
            floor=floor,
            host=Setup(f"carried-{sdk}", (f"bench/apps/their_{sdk}.py",)),
        )
        for sdk in ("mcp", "fastmcp")
        for key, title, prepare, check, floor in (
            ("A", "`tools/call`", _GREET, _greets, 5.0),
            ("B", "first round that asks", _always(_CONFIRM), _asks, None),
        )
    ),
    *(
        Cell(
            f"{key}+{sdk}",
            f"{title}, a durable tool inside {sdk}",
            prepare,
            check,
            baseline=Setup(f"their-{sdk}"),
            host=Setup(f"durable-{sdk}"),
        )
        for sdk in ("mcp", "fastmcp")
        for key, title, prepare, check in (
            ("A", "`tools/call`", _GREET, _greets),
            ("B", "first round that asks", _always(_CONFIRM), _asks),
            ("C", "second round, with the answer", _answer, _greets),
        )
    ),
)

NEWER: Final = "3.13"
"""A handler begins at once there, and one pass of the loop later on 3.11."""

CELLS: Final = (
    *_CELLS,
    *(
        replace(cell, key=f"{cell.key}-{NEWER}", python=NEWER)
        for cell in _CELLS
        if cell.key in ("A", "B", "C")
    ),
)

HALF: Final = 0.5
"""Import, and start to first answer, take at most this part of the official server's time."""
