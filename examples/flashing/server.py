"""Flashes a firmware on a fleet: a task of hours.

It asks its user first, sleeps until the maintenance window, flashes one device, asks somebody else whether to
go on, and then flashes the others. `EKIDEN_STORE` names the store, `FLEET` the folder of devices, `ORIGIN` is
how browsers reach this server, `APPROVER` whom to ask.
"""

import asyncio
import os
from typing import Annotated, Final

from devices import Device, flash, fleet, roll_back, runs
from mcp_types import ToolAnnotations
from pydantic import AwareDatetime, BaseModel, Field

from ekiden import CancelledTask, Context, Pages, Person, Retry, Server, StepFailed, TaskLimits

APPROVER: Final = os.environ.get("APPROVER", "operations@example.com")
REMIND_SECONDS: Final = 600.0
DEADLINE_SECONDS: Final = 3600.0
RETRY: Final = Retry(attempts=4, seconds=2.0)

pages = Pages(os.environ.get("ORIGIN", "http://127.0.0.1:8000"))
server = Server(
    "flashing",
    version="2.0.0",
    title="Firmware desk",
    instructions="`update` takes hours. It asks its user when to begin, and somebody else before it goes on.",
    pages=pages,
    tasks=TaskLimits(
        ttl_seconds=3 * 86_400,  # The window may be tomorrow night.
        lease_seconds=float(os.environ.get("LEASE_SECONDS", "15")),
    ),
)


class Plan(BaseModel):
    """What an update is going to do. It is made once: what it says holds to the end, also after a deploy."""

    run: str
    devices: list[str]
    checked: bool = False


class Window(BaseModel):
    starts: Annotated[AwareDatetime, Field(title="When may it begin?")]
    at_once: Annotated[int, Field(title="How many devices at once, after the first?", ge=1, le=20)] = 1


class Approval(BaseModel):
    go_on: Annotated[bool, Field(title="Go on with the others?")]
    reason: Annotated[str, Field(title="Why", max_length=200)] = ""


def plan(firmware: str, ctx: Context) -> Plan:
    """Which devices need this firmware."""
    names = [device.name for device in fleet() if device.firmware != firmware]
    return Plan(run=ctx.step_key, devices=names, checked=True)


def clean_up(cancelled: CancelledTask) -> None:
    """Let go of what a task was writing when it was cancelled, expired, or lost too many workers."""
    for value in cancelled.steps.get("plan", []):
        planned = Plan.model_validate(value)
        for name in planned.devices:
            roll_back(name, planned.run)


@server.tool(task="required", on_cancel=clean_up, annotations=ToolAnnotations(destructive_hint=True))
async def update(firmware: str, ctx: Context) -> str:
    """Flash a firmware on all devices that do not have it yet."""
    planned = await ctx.step(plan, firmware, ctx)
    total = len(planned.devices)
    if not total:
        return f"All devices have {firmware}."

    window = await ctx.elicit(f"Flash {firmware} on {total} devices?", Window)
    if window.data is None:
        return "Nothing was flashed."
    await ctx.progress(0, total, f"waits until {window.data.starts:%d %B %H:%M %Z}")
    await ctx.sleep(max(0.0, (window.data.starts - ctx.now()).total_seconds()))

    first, *others = planned.devices
    if not await flashed(first, firmware, planned.run, ctx):
        return f"{first} could not be flashed, and keeps its firmware. The others were left alone."
    await ctx.progress(1, total, f"{first} runs {firmware}; {APPROVER} is asked")
    if others and not await approved(f"{first} runs {firmware}. Go on with {len(others)} more?", ctx):
        return f"{APPROVER} did not agree. {first} runs {firmware}, the others were left alone."

    for begin in range(0, len(others), window.data.at_once):
        group = others[begin : begin + window.data.at_once]
        went = await asyncio.gather(*(flashed(name, firmware, planned.run, ctx) for name in group))
        if not all(went):
            bad = ", ".join(name for name, well in zip(group, went, strict=True) if not well)
            return f"Stopped: {bad} could not be flashed, and keeps its firmware."
        await ctx.progress(1 + begin + len(group), total, f"{group[-1]} runs {firmware}")

    summary = f"{total} devices were flashed with {firmware}."
    if planned.checked:
        well = [await ctx.step(runs, name, firmware) for name in planned.devices]
        summary += f" {sum(well)} of them run it."
    return summary


async def flashed(name: str, firmware: str, run: str, ctx: Context) -> bool:
    """Flash one device. If it fails again and again, let go of it."""
    try:
        await ctx.step(flash, name, firmware, run, ctx, retry=RETRY)
    except StepFailed:
        await ctx.step(roll_back, name, run)
        return False
    return True


async def approved(message: str, ctx: Context) -> bool:
    """Ask the approver by a link. Without an answer in time, it is a no."""
    who = Person(APPROVER, remind=REMIND_SECONDS, deadline=DEADLINE_SECONDS, default=Approval(go_on=False))
    answer = await ctx.elicit(message, Approval, who=who)
    return answer.data is not None and answer.data.go_on


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_devices() -> list[Device]:
    """All devices, and what they run."""
    return fleet()


if __name__ == "__main__":
    server.run()
