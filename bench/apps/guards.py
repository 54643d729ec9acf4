"""How the peers ask on the modern wire: the tool returns the question, and is called again.

FastMCP calls this the guard pattern; the official SDK has the same, and seals the state for both. It
is the leanest of their ways. `survey` keeps nothing but a count, where ekiden keeps every answer.
"""

from typing import Any, Final

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from bench.apps.tools import Tool

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
}


def guards(context: Any) -> tuple[Tool, Tool]:
    """The tools that ask; `context` is the SDK's own, which it finds by the annotation."""

    async def confirm(name: str, ctx: context) -> str | InputRequiredResult:
        """Greet someone by name, if the user agrees."""
        if ctx.input_responses is None:
            return _question(f"Greet {name}?", "asked")
        return f"Hello, {name}!" if _agreed(ctx) else "No greeting."

    async def survey(rounds: int, ctx: context) -> str | InputRequiredResult:
        """Ask the user about guests, one after the other."""
        answered = 0 if ctx.request_state is None else int(ctx.request_state) + 1
        if answered and not _agreed(ctx):
            return "No more guests."
        if answered < rounds:
            return _question(f"Greet guest {answered}?", str(answered))
        return f"{rounds} guests"

    return confirm, survey


def _question(message: str, state: str) -> InputRequiredResult:
    form = ElicitRequestFormParams(message=message, requested_schema=_SCHEMA)
    return InputRequiredResult(input_requests={"ok": ElicitRequest(params=form)}, request_state=state)


def _agreed(ctx: Any) -> bool:
    answer = (ctx.input_responses or {}).get("ok")
    if not isinstance(answer, ElicitResult) or answer.content is None:
        return False
    return answer.action == "accept" and bool(answer.content["ok"])
