"""Another module of the author's, which has a function of the same name as `acts`."""

from ekiden import Context
from tests.simulation.acts import RUNS

__all__ = ["plain"]


async def plain(label: str, mix: str, drawn: str, ctx: Context) -> str:
    run = RUNS[id(ctx)]
    run.world.ends(run.world.begins(run, f"t{label}"))
    return f"twin of {label}"
