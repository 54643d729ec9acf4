"""What an operator may do to a task. Every try is a line of the audit log, whatever came of it."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ekiden.errors import EkidenError, IllegalMove, LostClaim, StatusError
from ekiden.pages.desk.access import Viewer
from ekiden.stories.events import Action
from ekiden.stories.store import StoryStore
from ekiden.tasks.record import TaskRecord
from ekiden.tasks.store import TaskStore

__all__ = ["Actions"]

_GONE: Final = "There is no such task any more."


class Actions:
    """Changes tasks in a store."""

    def __init__(self, tasks: TaskStore, stories: StoryStore, clock: Callable[[], float]) -> None:
        self._tasks = tasks
        self._stories = stories
        self._clock = clock

    async def cancel(self, viewer: Viewer, task_id: str) -> str:
        """Cancel a task; what came of it."""
        return await self._noted(viewer, "cancel", task_id, self._cancel)

    async def _cancel(self, record: TaskRecord) -> str:
        if record.final:
            return f"It had ended already: {record.state}."
        await self._tasks.cancel(
            record.id, now=self._clock(), tidy=True, message="Cancelled by the operator."
        )
        after = await self._tasks.load(record.id)
        state = "gone" if after is None else after.state
        told = {"stopping": "It was told to stop.", "tidying": "It was cancelled; a worker cleans up."}
        return told.get(state, f"It is {state}.")

    async def wake(self, viewer: Viewer, task_id: str) -> str:
        """Let a task that waits for a time go on now."""
        return await self._noted(viewer, "wake", task_id, self._wake)

    async def _wake(self, record: TaskRecord) -> str:
        if record.state != "waiting" or record.due is None:
            return "It does not wait for a time."
        entries = await self._tasks.entries(record.id)
        await self._tasks.wake(record, entries, now=self._clock())
        return "It goes on now."

    async def answer(self, viewer: Viewer, task_id: str, key: str, response: Mapping[str, Any]) -> str:
        """Answer an open question in place of the client."""

        async def answer(record: TaskRecord) -> str:
            kept = await self._tasks.answer(record.id, {key: response}, now=self._clock())
            return "The answer was taken." if kept else "This question is not open any more."

        return await self._noted(
            viewer, "answer", task_id, answer, about=f"{key} {response.get('action', '')}"
        )

    async def run_again(self, viewer: Viewer, task_id: str, key: str) -> tuple[str, str]:
        """Make a new task with the journal up to an entry, which is done again; its id, and the outcome."""
        made: list[str] = []

        async def again(record: TaskRecord) -> str:
            entries = await self._tasks.entries(record.id)
            if key not in entries:
                return "The journal has no such entry."
            names = list(entries)
            kept = {name: entries[name] for name in names[: names.index(key)]}
            copy = _copy(record, self._clock())
            await self._tasks.insert(copy, kept)
            made.append(copy.id)
            return f"It runs again as {copy.id}."

        outcome = await self._noted(viewer, "run again", task_id, again, about=key)
        return (made[0] if made else ""), outcome

    async def _noted(
        self, viewer: Viewer, what: str, task_id: str, work: Callable[[TaskRecord], Any], about: str = ""
    ) -> str:
        if not viewer.acts:
            await self._note(viewer, what, task_id, "refused: not allowed", about)
            raise StatusError(403, "You may look at tasks here, but not change them.")
        record = await self._tasks.load(task_id)
        if record is None:
            raise StatusError(404, _GONE)
        try:
            outcome: str = await work(record)
        except (IllegalMove, LostClaim):
            outcome = "It has changed meanwhile; look at it again."
        except EkidenError as problem:
            await self._note(viewer, what, task_id, f"failed: {problem}", about)
            raise
        await self._note(viewer, what, task_id, outcome, about)
        return outcome

    async def _note(self, viewer: Viewer, what: str, task_id: str, outcome: str, about: str) -> None:
        await self._stories.note(Action(self._clock(), viewer.name, what, task_id, outcome, about))


def _copy(record: TaskRecord, now: float) -> TaskRecord:
    """A new task of the same call, which has done nothing yet."""
    return msgspec.structs.replace(
        record,
        id=secrets.token_hex(16),
        flow=secrets.token_hex(12),
        started=now,
        created=now,
        updated=now,
        state="queued",
        fence=0,
        due=now,
        losses=0,
        message=None,
        questions={},
        asked={},
        result=None,
        error=None,
        tool_failed=False,
        expired=False,
        version=0,
    )
