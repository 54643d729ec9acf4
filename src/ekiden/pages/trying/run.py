"""One call that was made on the page, from its start to its end, with all that is asked on the way."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from ekiden.client.checking import dump
from ekiden.client.client import Client
from ekiden.client.pending import PendingCall
from ekiden.client.tasks.handle import TaskHandle, TaskSnapshot
from ekiden.errors import CallCancelled, EkidenError, ProtocolError
from ekiden.pages.trying.kinds import ClientKind
from ekiden.pages.trying.questions import Question, QuestionKind
from ekiden.pages.trying.watching import Watched
from ekiden.wire.json import JsonObject, encode
from ekiden.wire.printable import harmless, one_line

if TYPE_CHECKING:
    from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

__all__ = ["Entry", "OpenClient", "Run", "RunState", "Target", "TargetKind"]

TargetKind = Literal["tool", "prompt", "resource", "template"]
RunState = Literal["working", "waiting", "done", "failed", "cancelled"]
OpenClient: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]

_MOST_ENTRIES: Final = 500
"""Lines of a run that are kept: the newest."""
_MOST_ROUNDS: Final = 100


class Target(msgspec.Struct, frozen=True):
    """Something that can be called."""

    kind: TargetKind
    name: str
    """Of a tool or a prompt; the URI of a resource; the template of a URI."""


class Entry(msgspec.Struct, frozen=True):
    """One line of what happened."""

    number: int
    at: float
    """Seconds since the start."""
    kind: str
    """`round`, `log`, `task`, or `answer`."""
    words: str
    level: str = ""


class Run(Watched):
    """One call. Its parts are `state`, `log`, `result`, and `question-3` for the third question."""

    def __init__(
        self, target: Target, name: str, arguments: JsonObject, kind: ClientKind, *, root: str
    ) -> None:
        super().__init__()
        self.id = secrets.token_hex(6)
        self.target = target
        """What was chosen on the page."""
        self.name = name
        """What is called: the name of a tool or a prompt, the URI of a resource."""
        self.arguments = arguments
        self.kind = kind
        self.trace = secrets.token_hex(16)
        """The trace id that a call of a tool is sent with: by it the story that the server tells is found."""
        self.lasted: float | None = None
        self.entries: list[Entry] = []
        self.questions: list[Question] = []
        self.progress: tuple[float, float | None, str] | None = None
        self.rounds = 0
        self.task: TaskSnapshot | None = None
        self.result: JsonObject | None = None
        self.error: tuple[str, str] | None = None
        """What went wrong: a headline, and the rest."""
        self.was_cancelled = False
        self._root = root
        self._handle: TaskHandle | None = None
        self._started = time.monotonic()
        self._counted = 0
        self._running: asyncio.Task[None] | None = None

    # What others see

    @property
    def state(self) -> RunState:
        """How it is doing."""
        if self.was_cancelled:
            return "cancelled"
        if self.error is not None or (self.result or {}).get("isError"):
            return "failed"
        if self.result is not None:
            return "done"
        return "waiting" if self.open_questions else "working"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return self.lasted is not None

    @property
    def open_questions(self) -> list[Question]:
        """What waits for an answer."""
        return [question for question in self.questions if question.is_open]

    def _note(self, kind: str, words: str, level: str = "") -> None:
        self._counted += 1
        entry = Entry(self._counted, time.monotonic() - self._started, kind, harmless(words), one_line(level))
        self.entries = [*self.entries[-_MOST_ENTRIES + 1 :], entry]
        self.changed("log", "state")

    # Its life

    def start(self, open_client: OpenClient) -> None:
        """Begin. It goes on in the background until it ends or is cancelled."""
        self._running = asyncio.create_task(self._run(open_client))

    async def cancel(self) -> None:
        """End it early, at the server too."""
        if self.ended or self._running is None:
            return
        self.was_cancelled = True
        self._running.cancel()
        await asyncio.wait({self._running})

    async def _run(self, open_client: OpenClient) -> None:
        try:
            async with open_client(self.kind, **self._callbacks()) as client:
                self.result = await self._drive(client)
        except ProtocolError as error:
            data = f"\n{encode(error.data).decode()}" if error.data is not None else ""
            self.error = (f"Error {error.code}", harmless(f"{error.message}{data}"))
        except CallCancelled as error:
            self.was_cancelled = True
            self._note("task", str(error))
        except EkidenError as error:
            self.error = (type(error).__name__, harmless(error))
        except asyncio.CancelledError:
            self.was_cancelled = True
        except OSError as error:
            self.error = ("The server cannot be reached", harmless(error))
        finally:
            self.lasted = time.monotonic() - self._started
            self.changed("state", "result", "log", *(f"question-{each.number}" for each in self.questions))

    async def _drive(self, client: Client) -> JsonObject:
        ended = await self._first(client)
        while isinstance(ended, PendingCall):
            self.rounds += 1
            self._note("round", _round_words(self.rounds, ended))
            ended = await self._next(client, ended)
        self.rounds += 1
        if not isinstance(ended, TaskHandle):
            return dump(ended)
        self._handle = ended
        self._note("task", f"It became task {one_line(ended.id)}.")
        try:
            return dump(await ended.wait(on_status=self._followed))
        except asyncio.CancelledError:
            await asyncio.shield(ended.try_cancel())
            raise

    async def _first(self, client: Client) -> Any:
        if self.target.kind == "tool":
            meta = {"traceparent": f"00-{self.trace}-{secrets.token_hex(8)}-01"}
            return await client.start_tool(self.name, self.arguments, progress=self._progressed, meta=meta)
        if self.target.kind == "prompt":
            return await client.start_prompt(self.name, self.arguments)
        return await client.start_resource(self.name)

    async def _next(self, client: Client, pending: PendingCall) -> Any:
        if self.target.kind == "tool":
            return await client.resume(pending, progress=self._progressed, max_rounds=_MOST_ROUNDS)
        if self.target.kind == "prompt":
            return await client.resume_prompt(pending, max_rounds=_MOST_ROUNDS)
        return await client.resume_resource(pending, max_rounds=_MOST_ROUNDS)

    def _followed(self, snapshot: TaskSnapshot) -> None:
        before = self.task
        self.task = snapshot
        if before is None or (before.status, before.status_message) != (
            snapshot.status,
            snapshot.status_message,
        ):
            said = f": {one_line(snapshot.status_message)}" if snapshot.status_message else ""
            self._note("task", f"The task is {snapshot.status}{said}")

    # What the client calls

    def _callbacks(self) -> dict[str, Any]:
        """The callbacks of what the client can do."""
        able = self.kind.able
        return {
            "elicit": self._form if "forms" in able else None,
            "elicit_url": self._link if "links" in able else None,
            "sample": self._model if "models" in able else None,
            "sample_tools": "models" in able,
            "roots": self._list_roots if "roots" in able else None,
            "tasks": "tasks" in able,
            "on_log": self._logged,
        }

    def _progressed(self, done: float, total: float | None, message: str | None) -> None:
        self.progress = (done, total, one_line(message or ""))
        self.changed("state")

    def _logged(self, params: JsonObject) -> None:
        data: Any = params.get("data")
        words = data if isinstance(data, str) else encode(data).decode()
        named = f"{one_line(params['logger'])}: " if params.get("logger") else ""
        self._note("log", f"{named}{words}", str(params.get("level", "")))

    async def _form(self, params: "ElicitRequestFormParams") -> Any:
        return await self._ask("form", dump(params))

    async def _link(self, params: "ElicitRequestURLParams") -> Any:
        return await self._ask("link", dump(params))

    async def _model(self, params: Any) -> Any:
        return await self._ask("model", dump(params))

    async def _list_roots(self) -> Any:
        return (await self._ask("roots", {}))["roots"]

    async def _ask(self, kind: QuestionKind, params: JsonObject) -> JsonObject:
        question = Question(len(self.questions) + 1, kind, params, self._root)
        self.questions.append(question)
        part = f"question-{question.number}"
        self.changed(part, "state")
        try:
            answer = await question.wait()
        finally:
            self.changed(part, "state")
        self._note("answer", _answer_words(question))
        return answer

    def answer(self, number: int, action: str, posted: Mapping[str, Any]) -> bool:
        """Answer a question with what was posted; False if something is wrong with it."""
        question = next((each for each in self.questions if each.number == number), None)
        return question is None or question.post(action, posted) is None


def _round_words(number: int, pending: PendingCall) -> str:
    asked = len(pending.requests)
    what = "1 question" if asked == 1 else f"{asked} questions"
    size = len(pending.state or "")
    return f"Round {number}: {what if asked else 'nothing'} to answer, {size} bytes of state to bring back."


def _answer_words(question: Question) -> str:
    if question.action != "accept":
        return (
            f"Question {question.number} was {'declined' if question.action == 'decline' else 'cancelled'}."
        )
    content = question.answer.get("content") if question.kind == "form" else None
    told = "." if content is None else f": {encode(content).decode()}"
    return f"Question {question.number} was answered{told}"
