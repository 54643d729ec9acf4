"""SQL for a model: reading at once, changing only what the user has seen and confirmed in writing.

`EKIDEN_STORE` names the store that `once=True` needs, `DATABASE_URL` the database.
"""

from typing import Annotated, Any, Final

from database import Effect, apply, dry_run, read
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from ekiden import Context, Server

server = Server(
    "careful-sql",
    instructions="Use `query` to read. `change` shows the user what a statement would do, and asks first.",
)

MOST_PREVIEWS: Final = 3


class Confirmation(BaseModel):
    typed: Annotated[str, Field(title="Type it here")]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def query(statement: str) -> list[dict[str, Any]]:
    """Read with one SQL statement. At most 200 rows come back."""
    return await read(statement)


@server.tool(once=True, cannot_ask="result", annotations=ToolAnnotations(destructive_hint=True))
async def change(statement: str, ctx: Context) -> str:
    """Change data or tables with one SQL statement, after the user has confirmed it."""
    seen = await ctx.step(dry_run, statement)
    for _ in range(MOST_PREVIEWS):
        if seen.rows == 0:
            return "It would change no row, so nothing was done."
        answer = await ctx.elicit(question(statement, seen), Confirmation)
        if answer.action != "accept":
            return "The user did not confirm. Nothing was changed."
        if answer.data.typed.strip().lower() != seen.phrase:
            return f"The user typed something other than `{seen.phrase}`. Nothing was changed."
        done = await ctx.step(apply, statement, seen, ctx)
        if done.made:
            return f"Done: {done.phrase}."
        await ctx.warning(
            f"the data changed in between: it would now be `{done.phrase}`, not `{seen.phrase}`"
        )
        seen = done
    return "The data keeps changing while the user decides. Nothing was changed."


def question(statement: str, seen: Effect) -> str:
    """What the user reads before typing."""
    rows = "" if seen.rows is None else f" of {seen.rows} row{'s' if seen.rows != 1 else ''}"
    lines = [f"This is a {seen.command}{rows}:", statement.strip(), *(f"- {row}" for row in seen.shown)]
    if seen.rows is not None and seen.rows > len(seen.shown) > 0:
        lines.append(f"- and {seen.rows - len(seen.shown)} more")
    return "\n".join([*lines, f"To do it, type: {seen.phrase}"])
