"""Where a server tells what happens to its calls, if that is recorded: around what answers a request."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from ekiden.rounds.outcome import Outcome
from ekiden.stories.log_lines import LogLines
from ekiden.stories.recorder import Recorder
from ekiden.stories.telling import CallTold, Story, current_story
from ekiden.telemetry.context import first_trace
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.modern import Request

__all__ = ["CallRecording", "client_of"]

Run: TypeAlias = Callable[[Request, Stream], Coroutine[Any, Any, Outcome]]

_CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods that run a handler of an author."""


class CallRecording:
    """Records the calls that one server answers."""

    def __init__(self, recorder: Recorder, principal_of: Callable[[Request], str]) -> None:
        self.recorder = recorder
        self._principal_of = principal_of
        self._log_lines: LogLines | None = None

    def around(self, run: Run) -> Run:
        """Answer as `run` does, and record that."""

        async def recorded(request: Request, stream: Stream) -> Outcome:
            outer = current_story.get()
            is_passed_on = (
                outer is not None and not outer.has_legs
            )  # By a server that this one is mounted in.
            if request.method not in _CALLS or is_passed_on:
                return await run(request, stream)
            story = self._begun(request)
            before = current_story.set(story)
            try:
                outcome = await run(request, stream)
            except BaseException as error:
                cancelled = isinstance(error, asyncio.CancelledError)
                story.broke_off("cancelled" if cancelled else type(error).__name__)
                raise
            finally:
                current_story.reset(before)
            story.ended(outcome)
            return outcome

        return recorded

    def _begun(self, request: Request) -> Story:
        if self._log_lines is None:
            self._log_lines = LogLines(self.recorder)
            logging.getLogger().addHandler(self._log_lines)
        arguments, responses = request.params.get("arguments"), request.params.get("inputResponses")
        told = CallTold(
            method=request.method,
            target=request.name or "",
            principal=self._principal_of(request),
            arguments=arguments if is_object(arguments) else {},
            client=client_of(request.meta.client_info),
            era=request.meta.protocol_version,
            capabilities=dict(request.meta.capabilities),
            responses=responses if is_object(responses) else {},
            trace=first_trace(request.meta.fields) or "",
        )
        story = Story(self.recorder, told)
        asyncio.get_running_loop().call_soon(story.show_early)
        return story

    async def stop(self) -> None:
        """Write what is not written yet."""
        if self._log_lines is not None:
            logging.getLogger().removeHandler(self._log_lines)
            self._log_lines = None
        await self.recorder.flush()


def client_of(info: JsonObject | None) -> str:
    """The name and the version that a client gives itself."""
    known = info or {}
    return f"{known.get('name', '')} {known.get('version', '')}".strip()
