"""What happens in one leg of a task, told to its story."""

import asyncio
from collections.abc import Awaitable, Callable

from ekiden.rounds.leg import Suspended
from ekiden.rounds.outcome import Outcome
from ekiden.server.operations.recording import client_of
from ekiden.signals import Ended, TaskCancelled
from ekiden.stories.recorder import Recorder
from ekiden.stories.telling import CallTold, Story, current_story
from ekiden.tasks.leg import TaskLeg
from ekiden.tasks.record import TaskRecord
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION

__all__ = ["recorded_leg"]


async def recorded_leg(
    recorder: Recorder, record: TaskRecord, leg: TaskLeg, run: Callable[[], Awaitable[Outcome | Suspended]]
) -> Outcome | Suspended:
    """Run a leg, and record what its handler does and how it ended."""
    told = CallTold(
        method="tools/call",
        target=record.tool,
        principal=record.principal,
        arguments=record.arguments,
        client=client_of(record.meta.get(CLIENT_INFO)),
        era=record.meta.get(PROTOCOL_VERSION, ""),
        capabilities=record.meta.get(CLIENT_CAPABILITIES, {}),
        trace=record.trace or record.meta.get("traceparent") or "",
        flow=record.flow,
        task=record.id,
        started=record.started,
    )
    story = Story(recorder, told)
    story.leg(leg.effects.replay, fence=record.fence)
    before = current_story.set(story)
    try:
        ended = await run()
    except TaskCancelled:
        story.broke_off("cancelled")
        raise
    except (Ended, asyncio.CancelledError):
        story.broke_off("handed over")
        raise
    finally:
        current_story.reset(before)
    story.ended(ended)
    return ended
